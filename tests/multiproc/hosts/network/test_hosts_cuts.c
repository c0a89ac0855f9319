/* Cuts of a host's network that end before fault.detect is over, at each kind of moment of its way
 * into a run. They last for long enough that a connection which doubles its pauses would be silent
 * until the host is lost. Would catch: a host that is lost although its network was back in time, a
 * start that ends for a cut while links are measured, and a run that goes back because its workers
 * ended before their last reports had arrived.
 *
 * With FL_TEST_MATRIX in the environment, all moments are cut (ctest -L long); else three. */
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

enum { ENDLESS = 1000000, STOPPED = 5, SOME = 12, A = 0, B = 1 };
enum {
    CUT_MS = 4000,
    SHORT_MS = 3300, /* a pair is measured, or has failed, within 5 s */
    LONGER_MS = 700  /* than that, it proves nothing: so much may a cut last longer than wanted */
};

#define TWO                                                                                        \
    "--set elastic.enabled=false --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 "                  \
    "--set fault.detect=7s "
#define SCRIPT "--set 'elastic.script=[{step: 30, k: 2, r: 1, m: 2}]' --set pipe.k=1 "

typedef void change(const net_hosts *h, bool begins);

static void cut_both(const net_hosts *h, bool begins)
{
    net_hosts_cut(h, A, B, begins);
    net_hosts_cut(h, B, A, begins);
}

static void cut_to_head(const net_hosts *h, bool begins)
{
    net_hosts_cut(h, B, A, begins);
}

static void cut_from_head(const net_hosts *h, bool begins)
{
    net_hosts_cut(h, A, B, begins);
}

static void pull_cable(const net_hosts *h, bool begins)
{
    if (!net_hosts_shell("ip -n %s link set fl0 %s", h->host[B].space, begins ? "down" : "up")) {
        fail_msg("%s", net_hosts_said());
    }
}

/* A machine that is busy ends the cut when the host may be lost already. */
static void end_cut(net_hosts *h, change *what, int64_t back_us)
{
    NET_AWAIT(fl_left_ms(back_us) == 0);
    what(h, false);
    int64_t late_ms = (fl_now_us() - back_us) / 1000;
    if (late_ms > LONGER_MS) {
        net_hosts_remove(h);
        print_message("skipped: the cut ended %lld ms late\n", (long long)late_ms);
        skip();
    }
}

static void cut_for(net_hosts *h, change *what, int64_t ms)
{
    int64_t back_us = fl_deadline_us(ms);
    what(h, true);
    end_cut(h, what, back_us);
}

static void start_head(net_hosts *h, const char *more)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job, NET_JOB TWO "--set train.max_steps=%d --set train.epochs=%d %s",
             ENDLESS, ENDLESS, more);
    net_hosts_start_head(h, job);
    net_hosts_await_key(h);
}

/* It was told to stop, and has lost n_lost hosts, which the test has ended; nothing was repeated.
 */
static void check_stop(net_hosts *h, int n_lost)
{
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    if (net_hosts_n_events(h, "host.lost", "") != n_lost ||
        net_hosts_n_events(h, "worker.lost", "") != n_lost ||
        net_hosts_n_events(h, "run.resumed", "") != 0) {
        net_hosts_show_logs(h);
        fail_msg("a host or a worker was lost, or the run went back");
    }
    assert_int_equal(net_hosts_remove(h), 0);
}

/* It trains, and stops when it is told to. */
static void check_well(net_hosts *h, int n_lost)
{
    int n_steps = net_hosts_n_steps(h), n = net_hosts_n_events(h, "checkpoint.written", "");
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + SOME);
    NET_AWAIT(net_hosts_shell("'%s/frostline' ctl %s/run checkpoint", FL_BINARY_DIR, h->dir));
    NET_AWAIT(net_hosts_n_events(h, "checkpoint.written", "") > n); /* the host reports again */
    kill(h->head, SIGTERM);
    check_stop(h, n_lost);
}

/* ---- the moments ---- */

/* Before its agent's first connection. */
static void cut_before(net_hosts *h, change *what)
{
    start_head(h, "");
    int64_t back_us = fl_deadline_us(CUT_MS);
    what(h, true);
    net_hosts_start_agent(h, B);
    end_cut(h, what, back_us);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    check_well(h, 0);
}

/* Once its agent has joined: its worker starts, and connects. */
static void cut_at_start(net_hosts *h, change *what)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_log_has(h, "b.log", "joined the run"));
    cut_for(h, what, CUT_MS);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    check_well(h, 0);
}

/* The processes that measure have connected to each other, at neither port of the head. */
static bool is_measured(const net_hosts *h)
{
    return net_hosts_shell("ip netns exec %s ss -Htn state established | grep -v ':557[01] ' | "
                           "grep -q .",
                           h->host[B].space);
}

static void cut_measurement(net_hosts *h, change *what)
{
    if (!net_hosts_shell("sed -i '/^links:/,$d' %s/hosts.yaml", h->dir)) {
        fail_msg("%s", net_hosts_said());
    }
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(is_measured(h) || net_hosts_n_steps(h) > 0);
    cut_for(h, what, SHORT_MS);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    check_well(h, 0);
}

/* It comes again while the run trains: it has joined, its worker is started, or has work. */
static void cut_return(net_hosts *h, change *what, const char *event)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) > 0);
    kill(h->host[B].agent, SIGKILL);
    (void)net_hosts_await_exit(&h->host[B].agent);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") == 1);
    int n_steps = net_hosts_n_steps(h), n = net_hosts_n_events(h, event, "");
    NET_AWAIT(net_hosts_n_steps(h) > n_steps + SOME);
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_events(h, event, "") > n);
    cut_for(h, what, CUT_MS);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"r\": 2") > 0);
    check_well(h, 1);
}

static void cut_welcome(net_hosts *h, change *what)
{
    cut_return(h, what, "host.joined");
}

static void cut_worker(net_hosts *h, change *what)
{
    cut_return(h, what, "worker.ready");
}

static void cut_standby(net_hosts *h, change *what)
{
    cut_return(h, what, "worker.joined");
}

static void cut_transition(net_hosts *h, change *what)
{
    start_head(h, SCRIPT);
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) >= 30 - 1);
    cut_for(h, what, CUT_MS);
    NET_AWAIT(net_hosts_n_events(h, "transition.done", "\"k\": 2") > 0);
    check_well(h, 0);
}

static void cut_training(net_hosts *h, change *what)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    cut_for(h, what, CUT_MS);
    check_well(h, 0);
}

/* The run is told to stop during the cut. */
static void cut_stop(net_hosts *h, change *what)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    int64_t stop_us = fl_deadline_us(CUT_MS / 2), back_us = fl_deadline_us(CUT_MS);
    what(h, true);
    NET_AWAIT(fl_left_ms(stop_us) == 0);
    kill(h->head, SIGTERM);
    end_cut(h, what, back_us);
    check_stop(h, 0);
}

/* The same right after it, while the connections are still in the pause before they try again. */
static void cut_before_stop(net_hosts *h, change *what)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    cut_for(h, what, CUT_MS);
    kill(h->head, SIGTERM);
    check_stop(h, 0);
}

/* Once the host's worker has ended: the host must still hear that the run is over. */
static void cut_after_stop(net_hosts *h, change *what)
{
    start_head(h, "");
    net_hosts_start_agent(h, B);
    NET_AWAIT(net_hosts_n_steps(h) > SOME);
    pid_t worker = net_hosts_worker_pid(h, 1);
    kill(h->head, SIGTERM);
    NET_AWAIT(kill(worker, 0) != 0);
    cut_for(h, what, CUT_MS);
    check_stop(h, 0);
}

/* ---- all of them ---- */

typedef struct moment {
    void (*cut)(net_hosts *h, change *what);
    change *what;
} moment;

static void cut_once(void **state)
{
    const moment *m = *state;
    net_hosts h;
    net_hosts_make(&h, 2, (const int[]){1, 1});
    if (!h.exist) {
        net_hosts_remove(&h);
        print_message("skipped: no right to make network name spaces\n");
        skip();
    }
    m->cut(&h, m->what);
}

/* A test of the moment, both ways cut or what it names. */
#define CUT(moment_name, way)                                                                      \
    {                                                                                              \
        .name = "test_hosts_cuts__" #moment_name "__" #way, .test_func = cut_once,                 \
        .initial_state = &(moment){moment_name, way},                                              \
    }

int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest few[] = {
        CUT(cut_at_start, cut_both),
        CUT(cut_measurement, cut_both),
        CUT(cut_stop, cut_both),
    };
    const struct CMUnitTest all[] = {
        CUT(cut_before, cut_both),      CUT(cut_before, pull_cable),
        CUT(cut_at_start, cut_to_head), CUT(cut_at_start, cut_from_head),
        CUT(cut_at_start, pull_cable),  CUT(cut_measurement, cut_to_head),
        CUT(cut_welcome, cut_both),     CUT(cut_welcome, cut_from_head),
        CUT(cut_worker, cut_both),      CUT(cut_standby, cut_both),
        CUT(cut_transition, cut_both),  CUT(cut_transition, cut_to_head),
        CUT(cut_training, cut_both),    CUT(cut_training, pull_cable),
        CUT(cut_stop, cut_to_head),     CUT(cut_stop, cut_from_head),
        CUT(cut_stop, pull_cable),      CUT(cut_before_stop, cut_both),
        CUT(cut_after_stop, cut_both),  CUT(cut_after_stop, cut_from_head),
    };
    return getenv("FL_TEST_MATRIX") != NULL ? cmocka_run_group_tests(all, NULL, NULL)
                                            : cmocka_run_group_tests(few, NULL, NULL);
}
