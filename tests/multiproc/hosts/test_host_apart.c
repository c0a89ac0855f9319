/* Hosts that share no files (run.shared: false): the job goes to them, and what they have of the
 * model and of checkpoints comes to the head. Would catch: layers that are missing in the model or
 * in a checkpoint, or are those of another step, and a run that can neither go back nor be resumed.
 * Hosts are network name spaces that do not see each other's run directory; without the right to
 * make them, the tests are skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { FIRST = 7, LAST = 20, KILL_AT = 30, MORE = 20, COMPARED = 100 };

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 2});
}

#define APART                                                                                      \
    "--set run.shared=false --set fault.snapshot=none --set 'checkpoint.every=5 steps' "           \
    "--set pipe.k=4 --set autodp.r=1 "

static void start_run(net_hosts *h, const char *job)
{
    net_hosts_start_head(h, job);
    net_hosts_start_agent_apart(h, 1);
    net_hosts_start_agent_apart(h, 2);
}

/* Evaluated alone, the model has the loss that the last step would have: its weights are those of
 * all hosts. */
static void check_model(const net_hosts *h)
{
    double loss[2];
    for (int i = 0; i < 2; i++) {
        assert_true(net_hosts_shell("'%s/frostline' evaluate %s/%s | tee /dev/stderr | "
                                    "grep -o 'loss *[0-9.]*' | head -1 | grep -o '[0-9.]*$'",
                                    FL_BINARY_DIR, h->dir, i == 0 ? "alone" : "run"));
        loss[i] = strtod(net_hosts_said(), NULL);
    }
    print_message("loss of the model: %g, of one worker's: %g\n", loss[1], loss[0]);
    assert_true(loss[0] > 0.0 && loss[1] > loss[0] * 0.9999 && loss[1] < loss[0] * 1.0001);
}

static void test_host_apart__model_and_checkpoints_come_to_the_head(void **state)
{
    net_hosts *h = *state;
    char job[1024];
    NET_NEED(h);
    snprintf(job, sizeof job,
             NET_JOB APART
             "--set train.max_steps=%d --set 'elastic.script=[{step: 3, k: 2, r: 2}]'",
             FIRST);
    start_run(h, job);
    net_hosts_expect(h, 0);
    assert_true(net_hosts_shell("test -s %s/c/runs/run-c/worker-2.log && "
                                "! test -e %s/run/worker-2.log && test -e %s/run/worker-0.log",
                                h->dir, h->dir, h->dir));
    snprintf(job, sizeof job, "--resume %s/run --set train.max_steps=%d", h->dir, LAST);
    start_run(h, job);
    net_hosts_expect(h, 0);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "\"step\": 7"), 1);
    snprintf(job, sizeof job, "--set train.max_steps=%d", LAST);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, LAST, LAST);
    check_model(h);
}

/* A host is lost with layers that no other one has. The run lasts until it is stopped: the loss
 * comes in the middle of its training, however fast its steps are. */
static void test_host_apart__goes_back_to_a_checkpoint(void **state)
{
    net_hosts *h = *state;
    char job[1024];
    NET_NEED(h);
    start_run(h, NET_JOB APART "--set train.epochs=100000");
    NET_AWAIT(net_hosts_n_steps(h) > KILL_AT &&
              net_hosts_n_events(h, "checkpoint.written", "") > 0);
    kill(h->host[2].agent, SIGINT);
    assert_int_equal(net_hosts_await_exit(&h->host[2].agent), 130);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") > 0);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + MORE && net_hosts_n_steps(h) > COMPARED);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    assert_int_equal(net_hosts_n_events(h, "run.resumed", "checkpoints/step-"), 1);
    snprintf(job, sizeof job, "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

/* ssh passes the keys on: no file of the other host has them. */
static void test_host_apart__keys_go_through_ssh(void **state)
{
    net_hosts *h = *state;
    char job[1024], path[4096], before[4096];
    NET_NEED(h);
    net_hosts_write_file(h, "ab");
    assert_true(net_hosts_shell("mkdir %s/bin && cat > %s/bin/ssh <<'END'\n#!/bin/sh\n"
                                "exec ip netns exec %s sh -c \"mount -t tmpfs none %s/run && $4\"\n"
                                "END\nchmod 755 %s/bin/ssh",
                                h->dir, h->dir, h->host[1].space, h->dir, h->dir));
    snprintf(before, sizeof before, "%s", getenv("PATH"));
    snprintf(path, sizeof path, "%s/bin:%.3900s", h->dir, before);
    setenv("PATH", path, 1);
    snprintf(job, sizeof job,
             NET_JOB "--ssh --set run.shared=false --set pipe.k=2 --set autodp.r=1 "
                     "--set train.max_steps=%d --set run.dir=%s/remote",
             FIRST, h->dir);
    net_hosts_start_head(h, job);
    setenv("PATH", before, 1);
    net_hosts_expect(h, 0);
    snprintf(job, sizeof job, "--set train.max_steps=%d", FIRST);
    net_hosts_run_alone(h, job);
    net_hosts_check(h, FIRST, FIRST);
}

/* Would catch: hashes of weights that stay in the run directory of another host, and runs that
 * frostline diff calls equal although most of their weights were not compared. The leader, and
 * replica 0 with it, may be of any host. */
static void test_host_apart__hashes_of_weights_come_to_the_head(void **state)
{
    net_hosts *h = *state;
    char job[1024];
    NET_NEED(h);
    snprintf(job, sizeof job, NET_JOB APART "--set train.max_steps=%d --set train.hash_weights=1",
             FIRST);
    start_run(h, job);
    net_hosts_expect(h, 0);
    assert_true(net_hosts_shell("! find %s -name weights.jsonl | grep -v %s/run/weights.jsonl",
                                h->dir, h->dir));
    assert_true(
        net_hosts_shell("'%s/frostline' diff %s/run %s/run", FL_BINARY_DIR, h->dir, h->dir));
    assert_true(net_hosts_shell("grep -o '\"layers\": [0-9]*' %s/run/events.jsonl | head -1 | "
                                "grep -o '[0-9]*'",
                                h->dir));
    long n_layers = strtol(net_hosts_said(), NULL, 10);
    assert_true(n_layers >= 4);
    assert_true(net_hosts_shell("sort -u %s/run/weights.jsonl | wc -l", h->dir));
    assert_int_equal(strtol(net_hosts_said(), NULL, 10), FIRST * n_layers);
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_apart__model_and_checkpoints_come_to_the_head),
        HOSTS(test_host_apart__goes_back_to_a_checkpoint),
        HOSTS(test_host_apart__hashes_of_weights_come_to_the_head),
        HOSTS(test_host_apart__keys_go_through_ssh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
