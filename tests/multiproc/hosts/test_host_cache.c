/* The cache of frozen activations on several hosts: a store on each. Would catch: a sample that is
 * trained on where its value does not lie, hosts that disagree about who takes which sample, and a
 * loss that depends on the cache. Hosts are network name spaces; without the right to make them,
 * the test is skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SAMPLES = 128, EPOCH = SAMPLES / 16, FREEZE_AT = EPOCH, STEPS = 7 * EPOCH };
enum { COMPARED = 40 };

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 2});
}

static int make_three_alike(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

typedef struct reads {
    int hits, misses;
    bool by[4];    /* workers that have found a value */
    int values[4]; /* that the store of this worker's host held last */
} reads;

/* Since that step. */
static reads count_reads(const net_hosts *h, int from)
{
    char dir[FOLDER_SIZE + 16];
    reads r = {.hits = 0};
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    json_t *events = lines_with(dir, "events.jsonl", "\"hits\""), *event;
    FOR_EACH(event, events)
    {
        if (number(event, "step") < from) {
            continue;
        }
        r.hits += number(event, "hits");
        r.misses += number(event, "misses");
        r.by[number(event, "rank")] |= number(event, "hits") > 0;
        r.values[number(event, "rank")] = number(event, "values");
    }
    json_decref(events);
    return r;
}

#define FROZEN                                                                                     \
    "--set data.samples=%d --set train.epochs=7 --set 'elastic.script=[{step: %d, f: 1}]' "

/* Each sample is computed once after the freeze, and then found; some find no room in the share of
 * the replica on their host, and are computed on another one. */
static void test_host_cache__has_a_store_on_each_host(void **state)
{
    net_hosts *h = *state;
    char job[2048];
    NET_NEED(h);
    snprintf(job, sizeof job,
             NET_JOB FROZEN "--set pipe.k=1 --set autodp.r=4 --set pipe.m=1 "
                            "--set data.augment=none --set cache.policy=on",
             SAMPLES, FREEZE_AT);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    net_hosts_expect(h, 0);
    reads r = count_reads(h, 0);
    print_message("%d values found, %d computed\n", r.hits, r.misses);
    assert_int_equal(r.hits + r.misses, (STEPS - FREEZE_AT) * 16);
    assert_true(r.by[0] && r.by[1] && r.by[2] && r.by[3]);
    assert_true(r.hits > (STEPS - FREEZE_AT - EPOCH) * 16 * 7 / 10);
    snprintf(job, sizeof job, FROZEN "--set data.augment=none --set cache.policy=off", SAMPLES,
             FREEZE_AT);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, STEPS, STEPS);
}

/* The step after which all three hosts have trained; -1: not yet. */
static int step_of_scale(const net_hosts *h)
{
    char dir[FOLDER_SIZE + 16];
    int step = -1;
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    json_t *events = lines_with(dir, "events.jsonl", "\"transition.done\""), *event;
    FOR_EACH(event, events)
    {
        step = number(event, "r") == 3 ? number(event, "step") : step;
    }
    json_decref(events);
    return step;
}

/* The defect: a new host had the number of the last host's store. So either of both got a sample of
 * the two stores, and after a while both kept its value. */
static void test_host_cache__a_host_that_joins_has_its_own_store(void **state)
{
    net_hosts *h = *state;
    char job[2048];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    snprintf(job, sizeof job,
             NET_JOB "--set data.samples=%d --set train.epochs=2000 --set pipe.k=1 "
                     "--set autodp.r=2 --set pipe.m=1 --set devices.max=3 "
                     "--set 'elastic.script=[{step: %d, f: 1}]' --set data.augment=none "
                     "--set cache.policy=on",
             SAMPLES, FREEZE_AT);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"c\"") == 1);
    assert_true(net_hosts_shell("'%s/frostline' ctl %s/run scale k=1 r=3", FL_BINARY_DIR, h->dir));
    NET_AWAIT(step_of_scale(h) >= 0);
    int from = step_of_scale(h) + 3 * EPOCH;
    NET_AWAIT(net_hosts_n_steps(h) > from + 10 * EPOCH);
    assert_true(net_hosts_shell("'%s/frostline' ctl %s/run stop", FL_BINARY_DIR, h->dir));
    net_hosts_expect(h, 130);
    reads r = count_reads(h, from);
    print_message("%d values found, %d computed; the new host keeps %d of %d\n", r.hits, r.misses,
                  r.values[2], SAMPLES);
    assert_true(r.by[0] && r.by[1] && r.by[2]);
    assert_true(r.hits > (r.hits + r.misses) * 75 / 100);
    assert_true(r.values[2] > 0 && r.values[2] < SAMPLES / 2);
    snprintf(job, sizeof job,
             "--set data.samples=%d --set train.epochs=%d "
             "--set 'elastic.script=[{step: %d, f: 1}]' --set data.augment=none "
             "--set cache.policy=off",
             SAMPLES, COMPARED / EPOCH, FREEZE_AT);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_host_cache__has_a_store_on_each_host, make_three,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_cache__a_host_that_joins_has_its_own_store,
                                        make_three_alike, net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
