/* Hosts and their workers that a run of two hosts loses, and hosts that are drained. Would catch: a
 * run that ends with a worker or a host that it can do without, a step or a sample that a drain
 * loses, and workers that outlive the head. */
#include "device/system/clock.h"
#include "support/hosts/net_hosts.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs last until they are stopped: a loss comes in the middle of the training, however fast steps
 * are. */
enum { ENDLESS = 100000000, STOPPED = 5, COMPARED = 12, DETECT_MS = 2000 };

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* How often the run has lost the worker of host b. */
static int n_lost(const net_hosts *h)
{
    return net_hosts_n_events(h, "worker.lost", "\"rank\": 1");
}

static void start_long_of(net_hosts *h, const char *plan, const char *of_agent, int detect_ms)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB
             "--set train.max_steps=%d --set train.epochs=100000 %s --set elastic.enabled=false "
             "--set fault.detect=%dms",
             ENDLESS, plan, detect_ms);
    net_hosts_start_head(h, job);
    net_hosts_start_agent_for(h, 1, of_agent);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
}

static void start_long_with(net_hosts *h, const char *plan, const char *of_agent)
{
    start_long_of(h, plan, of_agent, DETECT_MS);
}

#define REPLICAS "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1"
#define STAGES "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2"

static void start_long(net_hosts *h)
{
    start_long_with(h, REPLICAS, "");
}

/* It still trains. */
static void stop_head(const net_hosts *h)
{
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + COMPARED);
    kill(h->head, SIGTERM);
}

static void stop_long(net_hosts *h, int agent_code)
{
    stop_head(h);
    net_hosts_expect_codes(h, STOPPED, agent_code);
}

static void check_long(const net_hosts *h)
{
    char more[64];
    snprintf(more, sizeof more, "--set train.max_steps=%d", COMPARED);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

static void test_hosts_lost__goes_on_without_a_remote_worker(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(n_lost(h) > 0);
    stop_long(h, STOPPED);
    check_long(h);
}

/* Its training thread stops; its link, a thread of its own, goes on. */
static void test_hosts_lost__throws_out_a_remote_worker_that_hangs(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) != 0) {
        print_message("skipped: no right to stop a thread: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(ptrace(PTRACE_INTERRUPT, worker, NULL, NULL), 0);
    NET_AWAIT(n_lost(h) > 0);
    NET_AWAIT(waitpid(worker, NULL, WNOHANG) < 0); /* its tracer sees the end first */
    stop_long(h, STOPPED);
    check_long(h);
}

/* Would catch: a loss that is noticed only after fault.detect, and workers of a lost host that are
 * reported as killed by a signal. */
static void test_hosts_lost__goes_on_without_a_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    kill(h->host[1].agent, SIGKILL);
    NET_AWAIT(n_lost(h) > 0);
    stop_long(h, 128 + SIGKILL);
    NET_AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
    assert_true(net_hosts_log_has(h, "head.log", "host b (10.213.8.2) is lost"));
    assert_true(net_hosts_log_has(h, "head.log", "the connection of its agent was closed"));
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"how\": \"host lost\""), 1);
    check_long(h);
}

/* ---- hosts that are drained ---- */

/* The run has lost nothing, and has taken no step twice: check_long reads the steps, and the ledger
 * the samples. */
static void check_drained(net_hosts *h)
{
    NET_AWAIT(net_hosts_n_events(h, "host.drained", "") > 0);
    stop_long(h, 6);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.drained", "\"host\": \"b\""), 1);
    check_long(h);
}

static void test_hosts_lost__a_notice_drains_a_replica(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    kill(h->host[1].agent, SIGTERM);
    check_drained(h);
    assert_int_equal(net_hosts_n_events(h, "host.draining", "\"why\": \"notice\""), 1);
    assert_true(net_hosts_log_has(h, "b.log", "drained: the run goes on without this host"));
}

/* The parent of the workers does not run, and does not end for its own parent after SIGKILL: its
 * tracer does not let go of it. It stands for a process that is stuck in the kernel. Would catch: a
 * host whose release waits for ever, and the same warning twice a second. */
static void test_hosts_lost__a_process_that_cannot_end_does_not_hold_its_host(void **state)
{
    net_hosts *h = *state;
    pid_t parent = 0;
    NET_NEED(h);
    start_long_with(h, REPLICAS, "--grace 86400");
    NET_AWAIT((parent = net_hosts_child_of(h->host[1].agent)) > 0);
    if (ptrace(PTRACE_SEIZE, parent, NULL, NULL) != 0) {
        print_message("skipped: no right to stop a process: %s\n", strerror(errno));
        skip();
    }
    assert_int_equal(ptrace(PTRACE_INTERRUPT, parent, NULL, NULL), 0);
    kill(h->host[1].agent, SIGTERM);
    int code = net_hosts_await_exit(&h->host[1].agent);
    kill(h->head, SIGTERM);
    int head_code = net_hosts_await_exit(&h->head);
    NET_AWAIT(waitpid(parent, NULL, WNOHANG) < 0);
    if (code != 6 || head_code != 5) {
        net_hosts_show_logs(h);
        fail_msg("agent %d, head %d", code, head_code);
    }
    assert_true(net_hosts_log_has(h, "b.log",
                                  "was killed, and has not ended within 2000 ms: nobody waits"));
    assert_true(net_hosts_log_has(h, "head.log", "host b is released, although worker 1, process"));
    assert_true(net_hosts_shell("[ $(grep -c 'did not exit' %s/head.log) = 1 ]", h->dir));
    assert_int_equal(net_hosts_n_events(h, "host.drained", "\"host\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
}

/* The loss of this host would end the run. */
static void test_hosts_lost__a_notice_drains_a_stage(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long_with(h, STAGES, "");
    kill(h->host[1].agent, SIGTERM);
    check_drained(h);
}

/* A model that needs the memory of both: the agent does not wait for what cannot be. */
static void test_hosts_lost__a_host_that_the_run_needs_is_not_drained(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long_with(h,
                    "--set model.blocks=6 --set model.dim=48 --set devices.memory=2560KiB "
                    "--set pipe.k=2 --set autodp.r=1 --set pipe.m=16",
                    "--grace 86400");
    kill(h->host[1].agent, SIGTERM);
    net_hosts_expect_codes(h, 3, 5);
    assert_true(net_hosts_log_has(h, "head.log", "host b cannot be drained"));
    assert_true(net_hosts_log_has(h, "b.log", "stopped by signal 15: "));
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 1);
}

/* The controller, which is stopped, does not answer, and neither does the worker, so that the
 * others do not train on. */
static void ask_in_vain(net_hosts *h, const char *of_agent)
{
    start_long_with(h, REPLICAS, of_agent);
    kill(net_hosts_worker_pid(h, 1), SIGSTOP);
    kill(h->head, SIGSTOP);
    kill(h->host[1].agent, SIGTERM);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "asked the head to go on without this host"));
}

static void check_lost(net_hosts *h)
{
    int agent = net_hosts_await_exit(&h->host[1].agent);
    kill(h->head, SIGCONT);
    if (agent != 5) {
        net_hosts_show_logs(h);
        fail_msg("agent %d", agent);
    }
    NET_AWAIT(n_lost(h) > 0);
    stop_head(h);
    assert_int_equal(net_hosts_await_exit(&h->head), STOPPED);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "stopped by signal 15"), 1);
    check_long(h);
}

static void test_hosts_lost__a_second_notice_ends_a_host_at_once(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    ask_in_vain(h, "--grace 86400");
    while (kill(h->host[1].agent, 0) == 0 &&
           waitid(P_PID, (id_t)h->host[1].agent, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) ==
               0 &&
           !net_hosts_log_has(h, "b.log", "stopped by signal 15")) {
        kill(h->host[1].agent, SIGTERM);
        nap(50000);
    }
    check_lost(h);
}

static void test_hosts_lost__a_host_that_is_not_drained_in_time_is_lost(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    ask_in_vain(h, "--grace 1");
    check_lost(h);
    assert_true(net_hosts_log_has(h, "b.log", "did not drain this host in the time of --grace"));
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
    start_long_of(h, REPLICAS, "", IN_TIME_MS);
    assert_true(net_hosts_shell("ip -n %s link set fl0 down", h->host[1].space));
    double late_ms = await_recovery(h);
    check_in_time(h, late_ms);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "has been silent")); /* while the head lives */
    stop_long(h, 3);
    assert_true(net_hosts_log_has(h, "head.log", "it has not answered for"));
    assert_true(net_hosts_log_has(h, "b.log", "the head at tcp://10.213.8.1:5570 has been silent"));
    check_long(h);
}

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

/* Host b is lost with a layer, and the run goes back; host c, whose agent is stopped, does not join
 * again. The user does not want to wait for it. */
static void stop_while_it_waits(net_hosts *h, int number, int code)
{
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=100000 --set train.epochs=100 "
                                    "--set pipe.k=3 --set autodp.r=1 --set pipe.m=2 "
                                    "--set elastic.enabled=false --set checkpoint.every='5 steps'");
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    NET_AWAIT(net_hosts_n_events(h, "checkpoint.written", "") > 0);
    kill(h->host[2].agent, SIGSTOP);
    kill(h->host[1].agent, SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "waits for 1 other host to join again"));
    kill(h->head, number);
    int ended = net_hosts_await_exit(&h->head);
    if (ended != code) {
        net_hosts_show_logs(h);
        fail_msg("head %d", ended);
    }
    assert_int_equal(net_hosts_n_events(h, "run.stopped", ""), 1);
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 0);
    assert_true(
        net_hosts_log_has(h, "head.log", "stopped while it waited for hosts to join again"));
}

static void test_hosts_lost__an_interrupt_ends_the_wait_for_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    stop_while_it_waits(h, SIGINT, 130);
}

static void test_hosts_lost__a_notice_ends_the_wait_for_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    stop_while_it_waits(h, SIGTERM, 5);
}

static void test_hosts_lost__workers_end_with_the_head(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
    NET_AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
}

/* The head is killed while it chooses where the run goes back to, or just after. Would catch: an
 * agent that waits five minutes for a head which is dead, and does not say for what. */
static void test_hosts_lost__the_head_dies_while_the_run_goes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long_with(h, STAGES, "");
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "the run goes back"));
    kill(h->head, SIGSTOP); /* it may have come further, and the host may be in the run again */
    NET_AWAIT(net_hosts_log_has(h, "b.log", "waits up to 300 s for the head at tcp://10.213.8.1:"));
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
}

/* Its process stands still for three times the silence that is a loss, as one does that waits for a
 * slow disk. Hosts that nobody listened to were not silent. */
static void test_hosts_lost__a_controller_that_pauses_loses_no_host(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long(h);
    kill(h->head, SIGSTOP);
    for (int64_t until_us = fl_deadline_us(6000); fl_left_ms(until_us) > 0;) {
        nap(50000);
        assert_int_equal(waitpid(h->host[1].agent, NULL, WNOHANG), 0);
    }
    kill(h->head, SIGCONT);
    stop_long(h, STOPPED);
    assert_int_equal(n_lost(h), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    check_long(h);
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
    start_long(h);
    for (int i = 0; i < h->n; i++) {
        signal_host(h, i, "STOP");
    }
    for (int64_t until_us = fl_deadline_us(5000); fl_left_ms(until_us) > 0; nap(50000)) {
    }
    for (int i = 0; i < h->n; i++) { /* the head goes on first, without an answer */
        signal_host(h, i, "CONT");
        NET_AWAIT(i > 0 || net_hosts_log_has(h, "head.log", "(the gate) did not run for"));
    }
    stop_long(h, STOPPED);
    assert_int_equal(n_lost(h), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    check_long(h);
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
    start_long_with(h, REPLICAS, "");
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

/* Would catch: a scheduler that takes the failure of a run for its end. */
static void test_hosts_lost__the_agents_of_a_run_that_fails_say_so(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_long_with(h, STAGES " --set fault.restarts=0", "");
    kill(net_hosts_worker_pid(h, 1), SIGKILL); /* of the agent that then ends with 3 */
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "b.log", "the run has failed"));
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts_lost__goes_on_without_a_remote_worker),
        SPACES(test_hosts_lost__throws_out_a_remote_worker_that_hangs),
        SPACES(test_hosts_lost__goes_on_without_a_host),
        SPACES(test_hosts_lost__a_notice_drains_a_replica),
        SPACES(test_hosts_lost__a_process_that_cannot_end_does_not_hold_its_host),
        SPACES(test_hosts_lost__a_notice_drains_a_stage),
        SPACES(test_hosts_lost__a_host_that_the_run_needs_is_not_drained),
        SPACES(test_hosts_lost__a_second_notice_ends_a_host_at_once),
        SPACES(test_hosts_lost__a_host_that_is_not_drained_in_time_is_lost),
        SPACES(test_hosts_lost__notices_a_cut_cable),
        SPACES(test_hosts_lost__a_controller_that_pauses_loses_no_host),
        SPACES(test_hosts_lost__a_standstill_of_all_hosts_loses_none),
        cmocka_unit_test_setup_teardown(test_hosts_lost__an_interrupt_ends_the_wait_for_hosts,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_lost__a_notice_ends_the_wait_for_hosts,
                                        make_three, net_hosts_tear_down),
        SPACES(test_hosts_lost__workers_end_with_the_head),
        SPACES(test_hosts_lost__the_head_dies_while_the_run_goes_back),
        SPACES(test_hosts_lost__a_start_that_fails_is_in_the_record),
        SPACES(test_hosts_lost__an_agent_that_stood_still_says_so),
        SPACES(test_hosts_lost__the_agents_of_a_run_that_fails_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
