/* Two hosts that do not reach each other, while both reach the head. Would catch: a run that ends
 * although fewer hosts would do, a message that does not name the pair, a host that stays out
 * although its link works again, and one that comes back before it does.
 *
 * With FL_TEST_MATRIX in the environment, the other cases run (ctest -L long). */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { COMPARED = 12, STEPS = 150, ENDLESS = 1000000, STOPPED = 5, A = 0, B = 1, C = 2 };

#define CHAIN_MODEL "--set model.blocks=3 "
#define CHAIN "--set pipe.k=3 --set autodp.r=1 --set pipe.m=2 " CHAIN_MODEL
#define THREE "--set pipe.k=1 --set autodp.r=3 --set pipe.m=1 "
#define TWO "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "
#define PLAIN "--set autodp.security=none "
#define FIXED "--set elastic.enabled=false "
#define SCRIPT                                                                                     \
    FIXED "--set 'elastic.script=[{step: 13, k: 1, r: 3, m: 2}, {step: 16, k: 3, r: 1, m: 2}]' "

static int make_three(void **state)
{
    return net_hosts_set_up(state, 3, (const int[]){1, 1, 1});
}

static void start_patient(net_hosts *h, const char *plan, int steps, int detect_s)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "%s --set train.max_steps=%d --set train.epochs=%d --set fault.detect=%ds "
                     "--set fault.restarts=3",
             plan, steps, steps, detect_s);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, B);
    net_hosts_start_agent(h, C);
}

static void start_run(net_hosts *h, const char *plan, int steps)
{
    start_patient(h, plan, steps, 2);
}

static void cut_pair(const net_hosts *h, bool both, bool cut)
{
    net_hosts_cut(h, B, C, cut);
    if (both) {
        net_hosts_cut(h, C, B, cut);
    }
}

/* Which of the two was left out. */
static char left_out(const net_hosts *h)
{
    return net_hosts_n_events(h, "host.lost", "\"host\": \"c\"") > 0 ? 'c' : 'b';
}

static void check_told(const net_hosts *h)
{
    char text[64];
    bool told = net_hosts_log_has(h, "head.log", ") do not reach each other (");
    if (!told || net_hosts_n_events(h, "host.lost", "do not reach each other") != 1) {
        net_hosts_show_logs(h);
        fail_msg("the pair is not named");
    }
    snprintf(text, sizeof text, "the run does without host %c", left_out(h));
    assert_true(net_hosts_log_has(h, "head.log", text));
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"apart_from\": \""), 1);
}

/* The run has gone on without one of the two until it ended with this code; the agent of that one
 * waited until then. */
static void check_run(net_hosts *h, const char *plan, int code)
{
    char more[256];
    net_hosts_expect_codes(h, code, code);
    check_told(h);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
    assert_int_equal(net_hosts_n_events(h, "run.failed", ""), 0);
    snprintf(more, sizeof more, "--set train.max_steps=%d %s", COMPARED,
             strstr(plan, CHAIN_MODEL) == NULL ? "" : CHAIN_MODEL);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, net_hosts_n_steps(h), COMPARED);
}

/* The run lasts until it is stopped: the cut comes in the middle of its training, however fast its
 * steps are. */
static void go_on(net_hosts *h, const char *plan, bool both, int at_step)
{
    start_run(h, plan, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) >= at_step);
    cut_pair(h, both, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "may join once it reaches host")); /* it waits */
    kill(h->head, SIGTERM);
    check_run(h, plan, STOPPED);
}

/* ---- the run goes on ---- */

static void test_hosts_apart__a_chain_goes_on_with_one_of_them(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    go_on(h, FIXED CHAIN, true, COMPARED);
}

static void test_hosts_apart__a_cut_of_one_direction(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    go_on(h, FIXED THREE, false, COMPARED);
}

/* The pair is asked for when all have stood still for a fifth of fault.detect. Would catch: a loss
 * that counts from when it was noticed, so that the report has no time without training. */
static void check_time(const net_hosts *h, int detect_s)
{
    double detect_ms;
    assert_true(net_hosts_shell("sed -n 's/.*\"run.recovered\".*\"detect_ms\": "
                                "\\([0-9.]*\\).*/\\1/p' %s/run/events.jsonl",
                                h->dir));
    assert_int_equal(sscanf(net_hosts_said(), "%lf", &detect_ms), 1);
    print_message("noticed after %.0f ms\n", detect_ms);
    assert_true(detect_ms > detect_s * 200);
    assert_false(net_hosts_log_has(h, "head.log", "; 0.0 s without training"));
}

/* Would catch: hosts that try whether they reach each other only when a worker that is silent for
 * so long would be lost. */
static void test_hosts_apart__a_pair_is_found_as_fast_as_a_lost_host(void **state)
{
    enum { DETECT_S = 10 };
    net_hosts *h = *state;
    NET_NEED(h);
    start_patient(h, FIXED THREE, ENDLESS, DETECT_S);
    NET_AWAIT(net_hosts_n_steps(h) >= COMPARED);
    cut_pair(h, true, true);
    int64_t cut_us = fl_now_us();
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    int64_t found_us = fl_now_us() - cut_us;
    NET_AWAIT(net_hosts_n_events(h, "run.recovered", "") == 1);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    check_told(h);
    check_time(h, DETECT_S);
    if (found_us >= DETECT_S * INT64_C(1000000)) {
        fail_msg("found after %lld us", (long long)found_us);
    }
}

/* The hosts are cut off from each other while they open the connections of the next plan, which
 * has a deadline of a minute. */
static void test_hosts_apart__a_cut_during_a_transition(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, SCRIPT CHAIN, STEPS);
    NET_AWAIT(net_hosts_n_steps(h) >= COMPARED - 1);
    cut_pair(h, true, true);
    check_run(h, SCRIPT CHAIN, 0);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

static void test_hosts_apart__a_cut_before_the_start(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    cut_pair(h, true, true);
    start_run(h, FIXED CHAIN, STEPS);
    check_run(h, FIXED CHAIN, 0);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

/* The host that is cut off has no work, and is missed only when all meet at the end. */
static void test_hosts_apart__a_cut_from_a_worker_in_standby(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED TWO, STEPS);
    NET_AWAIT(net_hosts_n_steps(h) >= COMPARED);
    cut_pair(h, false, true);
    check_run(h, FIXED TWO, 0);
    assert_int_equal(net_hosts_n_steps(h), STEPS);
}

/* Every plan and transport. */
static void test_hosts_apart__matrix(void **state)
{
    static const char *const plans[] = {FIXED CHAIN, FIXED CHAIN PLAIN, FIXED THREE PLAIN,
                                        FIXED THREE, SCRIPT CHAIN PLAIN};
    (void)state;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        for (int both = 0; both < 2; both++) {
            for (int at_step = COMPARED; at_step < COMPARED + 3; at_step++) {
                net_hosts h;
                net_hosts_make(&h, 3, (const int[]){1, 1, 1});
                if (!h.exist) {
                    net_hosts_remove(&h);
                    print_message("skipped: no right to make network name spaces\n");
                    skip();
                }
                print_message("%s both %d at %d: ", plans[i], both, at_step);
                go_on(&h, plans[i], both, at_step);
                assert_int_equal(net_hosts_remove(&h), 0);
            }
        }
    }
}

/* ---- a link that works again ---- */

static void test_hosts_apart__the_host_comes_back_with_the_link(void **state)
{
    net_hosts *h = *state;
    char which[24], log[8];
    NET_NEED(h);
    start_run(h, FIXED THREE, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    cut_pair(h, true, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    snprintf(which, sizeof which, "\"host\": \"%c\"", left_out(h));
    snprintf(log, sizeof log, "%c.log", left_out(h));
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "may join once it reaches host"));
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    assert_int_equal(net_hosts_n_events(h, "host.joined", which), 1); /* at the start */
    assert_true(net_hosts_shell("'%s/frostline' ctl %s/run status | grep -q "
                                "'do not reach each other'",
                                FL_BINARY_DIR, h->dir));
    cut_pair(h, true, false);
    NET_AWAIT(net_hosts_n_events(h, "host.joined", which) == 2);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "") == 1);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"r\": 3") > 0);
    n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    check_told(h);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
    assert_true(net_hosts_log_has(h, log, "it joins again when they do"));
}

/* ---- the end of the run ---- */

/* Would catch: a host that waits to join again, and does not see that nobody is there. */
static void test_hosts_apart__the_head_dies(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED THREE, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    cut_pair(h, true, true);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "may join once it reaches host"));
    kill(h->head, SIGKILL);
    net_hosts_expect_codes(h, 128 + SIGKILL, 3);
}

/* Would catch: a host that is not told of the end, because it has not asked to join again yet. */
static void test_hosts_apart__the_run_ends_just_then(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED THREE, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    cut_pair(h, true, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
}

/* Host c cannot join again when the run goes back, which then begins once more without it. Would
 * catch: host b that is told of a failure meanwhile, and leaves; a record that has an end then. */
static void test_hosts_apart__a_host_that_does_not_join_again(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h, FIXED CHAIN, ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    net_hosts_cut(h, A, C, true);
    net_hosts_cut(h, C, A, true);
    kill(net_hosts_worker_pid(h, B), SIGKILL);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "goes back without the host that is lost"));
    assert_false(net_hosts_shell("'%s/frostline' list %s | grep -q failed", FL_BINARY_DIR, h->dir));
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") > 0);
    int n_steps = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + COMPARED);
    kill(h->head, SIGTERM);
    int head = net_hosts_await_exit(&h->head);
    int b = net_hosts_await_exit(&h->host[B].agent), c = net_hosts_await_exit(&h->host[C].agent);
    if (head != 5 || b != 5 || c != 3 || net_hosts_log_has(h, "head.log", "host b is lost")) {
        net_hosts_show_logs(h);
        fail_msg("head %d, b %d, c %d", head, b, c);
    }
}

/* ---- nothing is left that can run ---- */

/* Two hosts have too little memory. The message has the pair, and names a file with the reason. */
static void test_hosts_apart__the_pair_is_the_reason_of_the_end(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start_run(h,
              FIXED "--set model.blocks=6 --set model.dim=48 --set devices.memory=1300KiB "
                    "--set pipe.k=3 --set autodp.r=1 --set pipe.m=16",
              ENDLESS);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    cut_pair(h, true, true);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_shell("grep 'the run cannot go on' %s/head.log | grep -q 'do not reach "
                                "each other.*run/events.jsonl has what came before'",
                                h->dir));
    assert_int_equal(net_hosts_n_events(h, "run.failed", "do not reach each other"), 1);
}

#define SPACES(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest few[] = {
        SPACES(test_hosts_apart__a_chain_goes_on_with_one_of_them),
        SPACES(test_hosts_apart__the_host_comes_back_with_the_link),
        SPACES(test_hosts_apart__the_head_dies),
        SPACES(test_hosts_apart__a_pair_is_found_as_fast_as_a_lost_host),
    };
    const struct CMUnitTest all[] = {
        SPACES(test_hosts_apart__a_cut_of_one_direction),
        SPACES(test_hosts_apart__the_run_ends_just_then),
        SPACES(test_hosts_apart__a_host_that_does_not_join_again),
        SPACES(test_hosts_apart__a_cut_during_a_transition),
        SPACES(test_hosts_apart__a_cut_before_the_start),
        SPACES(test_hosts_apart__a_cut_from_a_worker_in_standby),
        SPACES(test_hosts_apart__the_pair_is_the_reason_of_the_end),
        cmocka_unit_test(test_hosts_apart__matrix),
    };
    return getenv("FL_TEST_MATRIX") != NULL ? cmocka_run_group_tests(all, NULL, NULL)
                                            : cmocka_run_group_tests(few, NULL, NULL);
}
