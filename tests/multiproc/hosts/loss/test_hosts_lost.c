/* Hosts and their workers that a run of two hosts loses, and a silence that is no loss. Would
 * catch: a run that ends with a worker or a host that it can do without, and one that gives up
 * hosts which are well. */
#include "device/system/clock.h"
#include "support/hosts/long_run.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <cmocka.h>

static void test_hosts_lost__goes_on_without_a_remote_worker(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(long_run_n_lost(h) > 0);
    long_run_stop(h, LONG_RUN_STOPPED);
    long_run_check(h);
}

/* Its training thread stops; its link, a thread of its own, goes on. */
static void test_hosts_lost__throws_out_a_remote_worker_that_hangs(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) != 0) {
        print_message("skipped: no right to stop a thread: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(ptrace(PTRACE_INTERRUPT, worker, NULL, NULL), 0);
    NET_AWAIT(long_run_n_lost(h) > 0);
    NET_AWAIT(waitpid(worker, NULL, WNOHANG) < 0); /* its tracer sees the end first */
    long_run_stop(h, LONG_RUN_STOPPED);
    long_run_check(h);
}

/* Would catch: a loss that is noticed only after fault.detect, and workers of a lost host that are
 * reported as killed by a signal. */
static void test_hosts_lost__goes_on_without_a_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    kill(h->host[1].agent, SIGKILL);
    NET_AWAIT(long_run_n_lost(h) > 0);
    long_run_stop(h, 128 + SIGKILL);
    NET_AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
    assert_true(net_hosts_log_has(h, "head.log", "host b (10.213.8.2) is lost"));
    assert_true(net_hosts_log_has(h, "head.log", "the connection of its agent was closed"));
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"how\": \"host lost\""), 1);
    long_run_check(h);
}

/* Fault.detect of the run that must be in time: what is left of it once a host is found lost is
 * longer than a busy machine takes to train again. */
enum { IN_TIME_MS = 8000 };

/* Wait until the run trains again; by how much this process was late meanwhile, at most: the load
 * of the machine, which the processes of the run have, too. */
static double await_recovery(const net_hosts *h)
{
    int64_t late_us = 0, before_us = fl_now_us(), until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
    for (; net_hosts_n_events(h, "run.recovered", "") == 0; nap(2000)) {
        int64_t now_us = fl_now_us();
        late_us = now_us - before_us > late_us ? now_us - before_us : late_us;
        before_us = now_us;
        if (fl_left_ms(until_us) == 0) {
            net_hosts_show_logs(h);
            fail_msg("the run does not go on");
        }
    }
    return (double)late_us * 1e-3;
}

/* From the last answer of the host until the others train again, by the run's own clock. */
static void check_in_time(const net_hosts *h, double late_ms)
{
    double silent_ms, collect_ms, move_ms;
    assert_true(net_hosts_shell("grep run.recovered %s/run/events.jsonl | sed 's/.*\"detect_ms\": "
                                "\\([0-9.]*\\), \"collect_ms\": \\([0-9.]*\\), \"move_ms\": "
                                "\\([0-9.]*\\).*/\\1 \\2 \\3/'",
                                h->dir));
    int n = sscanf(net_hosts_said(), "%lf %lf %lf", &silent_ms, &collect_ms, &move_ms);
    assert_int_equal(n, 3);
    print_message("silent for %.0f ms, trains %.0f ms later; at most %.0f ms late\n", silent_ms,
                  collect_ms + move_ms, late_ms);
    assert_true(silent_ms + collect_ms + move_ms < IN_TIME_MS + late_ms);
}

/* Would catch: a host that is noticed so late that the others train again after fault.detect. */
static void test_hosts_lost__notices_a_cut_cable(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_of(h, REPLICAS, "", IN_TIME_MS);
    assert_true(net_hosts_shell("ip -n %s link set fl0 down", h->host[1].space));
    double late_ms = await_recovery(h);
    check_in_time(h, late_ms);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "has been silent")); /* while the head lives */
    long_run_stop(h, 3);
    assert_true(net_hosts_log_has(h, "head.log", "it has not answered for"));
    assert_true(net_hosts_log_has(h, "b.log", "the head at tcp://10.213.8.1:5570 has been silent"));
    long_run_check(h);
}

/* Its process stands still for three times the silence that is a loss, as one does that waits for a
 * slow disk. Hosts that nobody listened to were not silent. */
static void test_hosts_lost__a_controller_that_pauses_loses_no_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    kill(h->head, SIGSTOP);
    for (int64_t until_us = fl_deadline_us(6000); fl_left_ms(until_us) > 0;) {
        nap(50000);
        assert_int_equal(waitpid(h->host[1].agent, NULL, WNOHANG), 0);
    }
    kill(h->head, SIGCONT);
    long_run_stop(h, LONG_RUN_STOPPED);
    assert_int_equal(long_run_n_lost(h), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    long_run_check(h);
}

static void signal_host(const net_hosts *h, int i, const char *signal)
{
    assert_true(net_hosts_shell("kill -%s $(ip netns pids %s)", signal, h->host[i].space));
}

/* As machines that sleep, or that have no processor left for this run. Would catch: a head that
 * counts its own standstill as the silence of its hosts. */
static void test_hosts_lost__a_standstill_of_all_hosts_loses_none(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    for (int i = 0; i < h->n; i++) {
        signal_host(h, i, "STOP");
    }
    for (int64_t until_us = fl_deadline_us(5000); fl_left_ms(until_us) > 0; nap(50000)) {
    }
    for (int i = 0; i < h->n; i++) { /* the head goes on first, without an answer */
        signal_host(h, i, "CONT");
        NET_AWAIT(i > 0 || net_hosts_log_has(h, "head.log", "(the gate) did not run for"));
    }
    long_run_stop(h, LONG_RUN_STOPPED);
    assert_int_equal(long_run_n_lost(h), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    long_run_check(h);
}

/* Worker 0 is stopped: the start cannot succeed before host b is lost. Would catch: a record that
 * says that the run goes on, where its start has failed. */
static void test_hosts_lost__a_start_that_fails_is_in_the_record(void **state)
{
    net_hosts *h = *state;
    int worker;
    NET_NEED(h);
    net_hosts_start_head(h, NET_JOB REPLICAS " --set fault.restarts=0 --set fault.detect=60s");
    NET_AWAIT(net_hosts_shell("sed -n 's/.*worker 0: .*, process \\([0-9]*\\)$/\\1/p' "
                              "%s/run/worker-0.log | grep .",
                              h->dir));
    assert_int_equal(sscanf(net_hosts_said(), "%d", &worker), 1);
    net_hosts_stop(h, worker);
    net_hosts_start_agent(h, 1);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "joined the run"));
    kill(h->host[1].agent, SIGKILL);
    net_hosts_expect_codes(h, 3, 128 + SIGKILL);
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 1);
    assert_true(net_hosts_shell("grep -q 'host b\\|worker 1' %s/run/summary.txt", h->dir));
    assert_true(net_hosts_shell("'%s/frostline' list %s | grep -q ^failed", FL_BINARY_DIR, h->dir));
}

/* Would catch: an agent that blames the head for its own standstill, and one that waits for a head
 * which has given it up. */
static void test_hosts_lost__an_agent_that_stood_still_says_so(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_with(h, REPLICAS, "");
    kill(h->host[1].agent, SIGSTOP);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "host b (10.213.8.2) is lost"));
    kill(h->host[1].agent, SIGCONT);
    assert_int_equal(net_hosts_await_exit(&h->host[1].agent), 3);
    kill(h->head, SIGTERM);
    assert_int_equal(net_hosts_await_exit(&h->head), 5);
    assert_true(net_hosts_log_has(h, "b.log", "this agent stood still for"));
    assert_true(net_hosts_log_has(h, "b.log",
                                  "counts this host as lost, after this agent itself stood still"));
    assert_true(net_hosts_log_has(h, "b.log", "it has not answered for"));
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, long_run_set_up, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts_lost__goes_on_without_a_remote_worker),
        SPACES(test_hosts_lost__throws_out_a_remote_worker_that_hangs),
        SPACES(test_hosts_lost__goes_on_without_a_host),
        SPACES(test_hosts_lost__notices_a_cut_cable),
        SPACES(test_hosts_lost__a_controller_that_pauses_loses_no_host),
        SPACES(test_hosts_lost__a_standstill_of_all_hosts_loses_none),
        SPACES(test_hosts_lost__a_start_that_fails_is_in_the_record),
        SPACES(test_hosts_lost__an_agent_that_stood_still_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
