/* The links between hosts, measured before the plan of a run. Would catch: a plan for links that
 * nobody has measured, a pair of hosts that cannot talk and is found out by a loss in the middle of
 * the run, and agents that the measuring keeps from joining. */
#include "support/lines.h"
#include "support/net_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 12, COMPARED = 12 };

static int make_three(void **state)
{
    static const int n_devices[] = {1, 1, 1};
    return net_hosts_set_up(state, 3, n_devices);
}

/* DIR/hosts.yaml without links. */
static void forget_links(const net_hosts *h)
{
    assert_true(net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir));
}

/* Hosts b and c reach the head, and not each other. */
static bool part_hosts(void)
{
    int id = (int)getpid();
    return net_hosts_shell("ip -n fn%dx link set p1 type bridge_slave isolated on && "
                           "ip -n fn%dx link set p2 type bridge_slave isolated on",
                           id, id);
}

static void test_host_links__are_measured_before_the_plan(void **state)
{
    net_hosts *h = *state;
    char dir[FOLDER_SIZE + 16], job[NET_HOSTS_TEXT];
    NET_NEED(h);
    forget_links(h);
    snprintf(job, sizeof job, NET_JOB "--set train.max_steps=%d --set pipe.k=3 --set autodp.r=1",
             STEPS);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    net_hosts_expect(h, 0);
    snprintf(dir, sizeof dir, "%s/run", h->dir);
    json_t *events = lines_with(dir, "events.jsonl", "hosts.measured");
    assert_int_equal(length(events), 1);
    json_t *event = json_array_get(events, 0), *pairs = json_object_get(event, "pairs"), *pair;
    assert_int_equal(length(pairs), 3);
    FOR_EACH(pair, pairs)
    {
        assert_true(json_number_value(json_object_get(pair, "latency_us")) > 0.0);
        assert_true(json_number_value(json_object_get(pair, "reduce_bytes_per_s")) > 0.0);
        assert_true(json_number_value(json_object_get(pair, "bytes_per_s")) >=
                    json_number_value(json_object_get(event, "bytes_per_s")));
    }
    json_decref(events);
    assert_true(net_hosts_shell("grep -A3 '^between_hosts:' %s/profile.yaml | "
                                "grep -Eq 'hosts_bytes_per_us: [0-9.]*[1-9]'",
                                dir));
    snprintf(job, sizeof job, "--set train.max_steps=%d", STEPS);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, STEPS, COMPARED);
}

static void test_host_links__a_pair_that_cannot_talk_ends_the_start(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    if (!part_hosts()) {
        print_message("skipped: the bridge cannot keep two hosts apart\n");
        skip();
    }
    forget_links(h);
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=4");
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "hosts b (10.213.8.2) and c (10.213.8.3) cannot talk to each "
                                  "other: no connection in 5 s; workers connect to any port"));
    assert_true(net_hosts_log_has(h, "b.log", "cannot talk to each other")); /* nobody waits */
    assert_int_equal(net_hosts_n_steps(h), 0);
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_links__are_measured_before_the_plan),
        HOSTS(test_host_links__a_pair_that_cannot_talk_ends_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
