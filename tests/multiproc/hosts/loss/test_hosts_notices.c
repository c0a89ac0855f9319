/* Notices to the hosts of a run and to its head, hosts that are drained, and the end of the head.
 * Would catch: a step or a sample that a drain loses, a host whose release waits for ever, and
 * workers that outlive the head. */
#include "support/hosts/long_run.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

#include <cmocka.h>

/* The run has lost nothing, and has taken no step twice: long_run_check reads the steps, and the
 * ledger the samples. */
static void check_drained(net_hosts *h)
{
    NET_AWAIT(net_hosts_n_events(h, "host.drained", "") > 0);
    long_run_stop(h, 6);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.drained", "\"host\": \"b\""), 1);
    long_run_check(h);
}

static void test_hosts_notices__a_notice_drains_a_replica(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    kill(h->host[1].agent, SIGTERM);
    check_drained(h);
    assert_int_equal(net_hosts_n_events(h, "host.draining", "\"why\": \"notice\""), 1);
    assert_true(net_hosts_log_has(h, "b.log", "drained: the run goes on without this host"));
}

/* The parent of the workers does not run, and does not end for its own parent after SIGKILL: its
 * tracer does not let go of it. It stands for a process that is stuck in the kernel. Would catch: a
 * host whose release waits for ever, and the same warning twice a second. */
static void test_hosts_notices__a_process_that_cannot_end_does_not_hold_its_host(void **state)
{
    net_hosts *h = *state;
    pid_t parent = 0;
    NET_NEED(h);
    long_run_start_with(h, REPLICAS, "--grace 86400");
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
static void test_hosts_notices__a_notice_drains_a_stage(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_with(h, STAGES, "");
    kill(h->host[1].agent, SIGTERM);
    check_drained(h);
}

/* A model that needs the memory of both: the agent does not wait for what cannot be. */
static void test_hosts_notices__a_host_that_the_run_needs_is_not_drained(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_with(h,
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
    long_run_start_with(h, REPLICAS, of_agent);
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
    NET_AWAIT(long_run_n_lost(h) > 0);
    long_run_stop_head(h);
    assert_int_equal(net_hosts_await_exit(&h->head), LONG_RUN_STOPPED);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "stopped by signal 15"), 1);
    long_run_check(h);
}

static void test_hosts_notices__a_second_notice_ends_a_host_at_once(void **state)
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
    assert_true(net_hosts_log_has(
        h, "b.log", "host 'b' was stopped by signal 15; the run has lost this host\n"));
}

static void test_hosts_notices__a_host_that_is_not_drained_in_time_is_lost(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    ask_in_vain(h, "--grace 1");
    check_lost(h);
    assert_true(net_hosts_log_has(h, "b.log", "did not drain this host in the time of --grace"));
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

static void test_hosts_notices__an_interrupt_ends_the_wait_for_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    stop_while_it_waits(h, SIGINT, 130);
}

static void test_hosts_notices__a_notice_ends_the_wait_for_hosts(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    stop_while_it_waits(h, SIGTERM, 5);
}

static void test_hosts_notices__workers_end_with_the_head(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start(h);
    pid_t worker = net_hosts_worker_pid(h, 1);
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
    NET_AWAIT(kill(worker, 0) != 0 && errno == ESRCH);
}

/* The head is killed while it chooses where the run goes back to, or just after. Would catch: an
 * agent that waits five minutes for a head which is dead, and does not say for what. */
static void test_hosts_notices__the_head_dies_while_the_run_goes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_with(h, STAGES, "");
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "the run goes back"));
    kill(h->head, SIGSTOP); /* it may have come further, and the host may be in the run again */
    NET_AWAIT(net_hosts_log_has(h, "b.log", "waits up to 300 s for the head at tcp://10.213.8.1:"));
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
}

/* Would catch: a scheduler that takes the failure of a run for its end. */
static void test_hosts_notices__the_agents_of_a_run_that_fails_say_so(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    long_run_start_with(h, STAGES " --set fault.restarts=0", "");
    kill(net_hosts_worker_pid(h, 1), SIGKILL); /* of the agent that then ends with 3 */
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "b.log", "the run has failed"));
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, long_run_set_up, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPACES(test_hosts_notices__a_notice_drains_a_replica),
        SPACES(test_hosts_notices__a_process_that_cannot_end_does_not_hold_its_host),
        SPACES(test_hosts_notices__a_notice_drains_a_stage),
        SPACES(test_hosts_notices__a_host_that_the_run_needs_is_not_drained),
        SPACES(test_hosts_notices__a_second_notice_ends_a_host_at_once),
        SPACES(test_hosts_notices__a_host_that_is_not_drained_in_time_is_lost),
        cmocka_unit_test_setup_teardown(test_hosts_notices__an_interrupt_ends_the_wait_for_hosts,
                                        make_three, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_notices__a_notice_ends_the_wait_for_hosts,
                                        make_three, net_hosts_tear_down),
        SPACES(test_hosts_notices__workers_end_with_the_head),
        SPACES(test_hosts_notices__the_head_dies_while_the_run_goes_back),
        SPACES(test_hosts_notices__the_agents_of_a_run_that_fails_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
