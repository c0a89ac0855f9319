/* A host that joined by hand has left, and then the run goes back twice. Would catch: a host that
 * status does not know any more, an event about it that is written once more each time, and its
 * worker that is started for the first time when it comes back. Hosts are network name spaces;
 * without the right to make them, the tests are skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

static bool ctl(const net_hosts *h, const char *words)
{
    return net_hosts_shell("'%s/frostline' ctl %s/run %s", FL_BINARY_DIR, h->dir, words);
}

/* Hosts a and b have a stage each; host c joins, and stands by. */
static void start_with_guest(net_hosts *h)
{
    net_hosts_write_file(h, "ab");
    net_hosts_start_head(h, NET_JOB "--set train.epochs=100000 --set fault.detect=6s "
                                    "--set elastic.enabled=false --set pipe.k=2 --set autodp.r=1 "
                                    "--set pipe.m=2 --set devices.max=3 --set fault.snapshot=none "
                                    "--set checkpoint.every='5 steps' --set control.metrics=9464");
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"c\"") == 1);
}

/* The run loses a worker with a layer, and goes back: behind the event of the host if a checkpoint
 * has come since. */
static void go_back(net_hosts *h, int nth)
{
    assert_true(ctl(h, "checkpoint"));
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") == nth);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + 5);
}

static void expect_state(net_hosts *h, const char *state)
{
    char event[32], shown[64];
    snprintf(event, sizeof event, "host.%s", state);
    snprintf(shown, sizeof shown, "\"state\": \"%s\"", state);
    assert_true(ctl(h, "status --json"));
    const char *c = strstr(net_hosts_said(), "\"name\": \"c\"");
    const char *found = c == NULL ? NULL : strstr(c, shown);
    if (found == NULL || found - c > 200 || net_hosts_n_events(h, event, "\"host\": \"c\"") != 1) {
        fail_msg("host c is not %s once: %d events, %s", state,
                 net_hosts_n_events(h, event, "\"host\": \"c\""), net_hosts_said());
    }
}

/* When host c ended: by ctl status, and since 1970 by the metrics; 0.0: it is not known. */
static double ended_at(net_hosts *h)
{
    assert_true(ctl(h, "status --json"));
    const char *c = strstr(net_hosts_said(), "\"name\": \"c\"");
    const char *at = c == NULL ? NULL : strstr(c, "\"ended_at\": ");
    return at == NULL ? 0.0 : strtod(at + strlen("\"ended_at\": "), NULL);
}

static double end_time(net_hosts *h)
{
    static const char name[] = "frostline_host_end_time_seconds{host=\"c\"} ";
    net_hosts_shell("ip netns exec %s bash -c 'exec 3<>/dev/tcp/127.0.0.1/9464; printf "
                    "\"GET /metrics HTTP/1.0\\r\\n\\r\\n\" >&3; cat <&3'",
                    h->host[0].space);
    const char *at = strstr(net_hosts_said(), name);
    return at == NULL ? 0.0 : strtod(at + strlen(name), NULL);
}

static void go_back_twice(net_hosts *h, const char *state)
{
    double at_s = ended_at(h), wall_s = 0.0;
    assert_true(at_s > 0.0);
    NET_AWAIT((wall_s = end_time(h)) > 1.5e9);
    for (int nth = 1; nth < 3; nth++) {
        double wall_again_s = -1.0;
        go_back(h, nth);
        expect_state(h, state);
        assert_true(ended_at(h) == at_s);
        NET_AWAIT((wall_again_s = end_time(h)) != 0.0);
        assert_true(wall_again_s == wall_s);
    }
    net_hosts_start_agent(h, 2); /* by its name, with the rank that it had */
    NET_AWAIT(net_hosts_n_events(h, "host.joined", "\"host\": \"c\"") == 2);
    assert_int_equal(net_hosts_n_events(h, "host.joined", "\"first_worker\": 2"), 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"host\": \"c\"") == 2);
    assert_int_equal(net_hosts_n_events(h, "worker.started", "\"host\": \"c\""), 1);
    assert_int_equal(net_hosts_n_events(h, "worker.restarted", "\"host joined\""), 1);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
}

/* In the only event of this name, of host c. */
static int step_of(const net_hosts *h, const char *event)
{
    char run[sizeof h->dir + 8];
    snprintf(run, sizeof run, "%s/run", h->dir);
    json_t *lines = lines_with(run, "events.jsonl", event);
    assert_int_equal(length(lines), 1);
    int step = number(json_array_get(lines, 0), "step");
    json_decref(lines);
    return step;
}

static void test_host_again__a_drained_guest_stays_known(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_with_guest(h);
    assert_true(ctl(h, "drain host c"));
    assert_int_equal(net_hosts_await_exit(&h->host[2].agent), 6);
    go_back_twice(h, "drained");
}

static void test_host_again__a_lost_guest_is_told_once(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_with_guest(h);
    kill(h->host[2].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[2].agent);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "\"host\": \"c\"") == 1);
    NET_AWAIT(net_hosts_n_events(h, "worker.lost", "\"host\": \"c\"") == 1);
    assert_int_equal(step_of(h, "worker.lost"), step_of(h, "host.lost"));
    go_back_twice(h, "lost");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_host_again__a_drained_guest_stays_known, make_three,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_host_again__a_lost_guest_is_told_once, make_three,
                                        net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
