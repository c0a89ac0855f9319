/* Runs over 2 to 4 hosts whose network fails: cut, cut in one direction, slow, and restored; hosts
 * that die at once, and one that stands still. Would catch: losses that depend on where workers
 * are, a run that loses a worker although its network came back in time, one that hangs although a
 * layer has another owner, and processes that outlive their run.
 *
 * With FL_TEST_MATRIX in the environment, all cases run (ctest -L long), up to 4 hosts with 2
 * workers each; else one of each kind. Without the right to make name spaces, each test is skipped.
 */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Hosts, and the workers of each. */
typedef struct grid {
    int n, n_devices;
} grid;

/* Those of the case that runs; n 0: none. */
static net_hosts live;

enum { COMPARED = 12, ENDLESS = 1000000, STOPPED = 5, STEPS_OF_PLAN = 3, MOST_STAGES = 6 };

static bool is_matrix(void)
{
    return getenv("FL_TEST_MATRIX") != NULL;
}

/* ---- what the network does ---- */

static void in_space(const net_hosts *h, int host, const char *command)
{
    if (!net_hosts_shell("ip netns exec %s %s", h->host[host].space, command)) {
        fail_msg("host %c: %s: %s", 'a' + host, command, net_hosts_said());
    }
}

static void set_link(const net_hosts *h, int host, bool up)
{
    in_space(h, host, up ? "ip link set fl0 up" : "ip link set fl0 down");
}

/* Nothing that `from` sends reaches `to`, while what `to` sends arrives. */
static void set_way(const net_hosts *h, int from, int to, bool open)
{
    char command[128];
    snprintf(command, sizeof command, "ip route %s blackhole %s/32", open ? "del" : "add",
             h->host[to].address);
    in_space(h, from, command);
}

/* The traffic of a host is shaped to a tenth of what the run would use. */
static void set_slow(const net_hosts *h, int host, bool slow)
{
    in_space(h, host,
             slow ? "tc qdisc add dev fl0 root tbf rate 8mbit burst 16kb latency 200ms"
                  : "tc qdisc del dev fl0 root");
}

static void kill_host(const net_hosts *h, int host)
{
    if (!net_hosts_shell("kill -9 $(ip netns pids %s)", h->host[host].space)) {
        fail_msg("killing host %c", 'a' + host);
    }
}

/* Processes that are left on a host. */
static bool is_empty(const net_hosts *h, int host)
{
    return net_hosts_shell("[ -z \"$(ip netns pids %s)\" ]", h->host[host].space);
}

/* ---- runs ---- */

/* Replicas on all devices, and no decision about plans meanwhile. */
static void start_run(net_hosts *h, int n_hosts, int n_devices, int steps, const char *more)
{
    int devices[NET_HOSTS_MAX] = {n_devices, n_devices, n_devices, n_devices};
    char job[NET_HOSTS_TEXT];
    net_hosts_make(h, n_hosts, devices);
    if (!h->exist) {
        return;
    }
    snprintf(job, sizeof job,
             NET_JOB "--set train.max_steps=%d --set elastic.enabled=false --set pipe.k=1 "
                     "--set autodp.r=%d --set pipe.m=1 --set train.epochs=%d %s",
             steps, n_hosts * n_devices, steps, more);
    net_hosts_start_head(h, job);
    for (int i = 1; i < n_hosts; i++) {
        net_hosts_start_agent(h, i);
    }
}

/* A run that lasts until it is stopped: whatever happens to it comes in the middle of its training,
 * however fast its steps are. */
static void start_long(net_hosts *h, grid hosts, const char *more)
{
    start_run(h, hosts.n, hosts.n_devices, ENDLESS, more);
    if (h->exist) {
        NET_AWAIT(net_hosts_n_steps(h) > COMPARED);
    }
}

static void check_against_one(const net_hosts *h, int steps)
{
    char more[64];
    int compared = COMPARED < steps ? COMPARED : steps;
    snprintf(more, sizeof more, "--set train.max_steps=%d", compared);
    net_hosts_run_alone(h, more);
    net_hosts_check(h, steps, compared);
}

/* It still trains. */
static void stop_run(const net_hosts *h)
{
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + COMPARED);
    kill(h->head, SIGTERM);
}

/* The run ends as one that was stopped, and nothing of it is left; agents end in whichever way. */
static void stop_and_expect_end(net_hosts *h)
{
    stop_run(h);
    int code = net_hosts_await_exit(&h->head);
    if (code != STOPPED) {
        net_hosts_shell("tail -n 30 %s/*.log", h->dir);
        fail_msg("head %d: %s", code, net_hosts_said());
    }
    for (int i = 1; i < h->n; i++) {
        if (h->host[i].agent > 0) {
            (void)net_hosts_await_exit(&h->host[i].agent);
        }
    }
    for (int i = 0; i < h->n; i++) {
        NET_AWAIT(is_empty(h, i));
    }
}

/* After a case, and after one that has failed. */
static int remove_hosts(void **state)
{
    (void)state;
    int failed = live.n > 0 ? net_hosts_remove(&live) : 0;
    live = (net_hosts){.n = 0};
    return failed;
}

static void finish(net_hosts *h)
{
    check_against_one(h, net_hosts_n_steps(h));
    assert_int_equal(remove_hosts(NULL), 0);
}

#define SKIP_UNLESS_THERE(h)                                                                       \
    if (!(h)->exist) {                                                                             \
        print_message("skipped: no right to make network name spaces\n");                          \
        skip();                                                                                    \
    }

/* ---- plans over hosts ---- */

/* elastic.script over all K x R of n workers, and back; returns the number of steps. */
static int write_script(char *out, size_t size, int n)
{
    int step = 0, at = snprintf(out, size, "--set 'elastic.script=[");
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 1; i <= MOST_STAGES; i++) {
            int k = turn == 0 ? i : MOST_STAGES + 1 - i;
            if (n % k != 0 || (turn == 0 && k == 1)) {
                continue;
            }
            step += STEPS_OF_PLAN;
            at += snprintf(out + at, size - (size_t)at, "%s{step: %d, k: %d, r: %d, m: %d}",
                           step == STEPS_OF_PLAN ? "" : ", ", step, k, n / k, turn + 1);
        }
    }
    snprintf(out + at, size - (size_t)at, "]'");
    return step + STEPS_OF_PLAN;
}

static void change_plans(int n_hosts, int n_devices)
{
    net_hosts *h = &live;
    char script[1024];
    int steps = write_script(script, sizeof script, n_hosts * n_devices);
    start_run(h, n_hosts, n_devices, steps, script);
    SKIP_UNLESS_THERE(h);
    net_hosts_expect(h, 0);
    print_message("%d hosts x %d: %d transitions, ", n_hosts, n_devices,
                  net_hosts_n_events(h, "transition.done", ""));
    assert_int_equal(net_hosts_n_events(h, "transition.done", ""), steps / STEPS_OF_PLAN - 1);
    check_against_one(h, steps);
    assert_int_equal(remove_hosts(NULL), 0);
}

static void test_hosts_net__every_plan_computes_the_same(void **state)
{
    (void)state;
    change_plans(3, 1);
    for (int n = 2; is_matrix() && n <= NET_HOSTS_MAX; n++) {
        change_plans(n, 2);
        if (n != 3) {
            change_plans(n, 1);
        }
    }
}

/* ---- a network that comes back in time ---- */

typedef void change(const net_hosts *h, bool begins);

static void cut_b(const net_hosts *h, bool begins)
{
    set_link(h, 1, !begins);
}

static void cut_head(const net_hosts *h, bool begins)
{
    set_link(h, 0, !begins);
}

static void silence_b(const net_hosts *h, bool begins)
{
    set_way(h, 1, 0, !begins);
}

static void silence_head(const net_hosts *h, bool begins)
{
    set_way(h, 0, 1, !begins);
}

static void slow_b(const net_hosts *h, bool begins)
{
    set_slow(h, 1, begins);
}

static void pass_over(change *what, grid hosts, int64_t lasts_ms)
{
    net_hosts *h = &live;
    start_long(h, hosts, "--set fault.detect=15s");
    SKIP_UNLESS_THERE(h);
    what(h, true);
    int64_t back_us = fl_deadline_us(lasts_ms);
    NET_AWAIT(fl_left_ms(back_us) == 0);
    what(h, false);
    stop_run(h);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 0);
    finish(h);
}

static void test_hosts_net__a_short_failure_loses_nothing(void **state)
{
    (void)state;
    static const struct {
        change *what;
        grid hosts;
    } cases[] = {
        {cut_b, {2, 1}},        {slow_b, {2, 1}},    {silence_b, {2, 1}},
        {silence_head, {2, 1}}, {cut_head, {2, 1}},  {cut_b, {4, 2}},
        {slow_b, {4, 2}},       {silence_b, {3, 2}}, {cut_head, {4, 2}},
    };
    for (size_t i = 0; i < (is_matrix() ? sizeof cases / sizeof *cases : 2); i++) {
        print_message("case %zu, %d hosts x %d: ", i, cases[i].hosts.n, cases[i].hosts.n_devices);
        pass_over(cases[i].what, cases[i].hosts, is_matrix() ? 3000 : 700);
    }
}

/* ---- one that does not ---- */

static void kill_b(const net_hosts *h, bool begins)
{
    if (begins) {
        kill_host(h, 1);
    }
}

static void stop_agent_b(const net_hosts *h, bool begins)
{
    kill(h->host[1].agent, begins ? SIGSTOP : SIGCONT);
}

/* Each worker of host b is lost, once, and no other one. */
static void check_lost(const net_hosts *h, grid hosts)
{
    char rank[32];
    for (int i = 0; i < hosts.n_devices; i++) {
        snprintf(rank, sizeof rank, "\"rank\": %d", hosts.n_devices + i);
        assert_int_equal(net_hosts_n_events(h, "worker.lost", rank), 1);
    }
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), hosts.n_devices);
    assert_int_equal(net_hosts_n_events(h, "host.lost", "\"host\": \"b\""), 1);
    assert_int_equal(net_hosts_n_events(h, "host.lost", ""), 1);
}

/* Host b goes, and comes back when it counts as lost: the run goes on without it. */
static void go_on_without(change *what, bool comes_back, grid hosts)
{
    net_hosts *h = &live;
    start_long(h, hosts, "--set fault.detect=2s");
    SKIP_UNLESS_THERE(h);
    what(h, true);
    NET_AWAIT(net_hosts_n_events(h, "host.lost", "") > 0);
    if (comes_back) {
        what(h, false);
    }
    stop_and_expect_end(h);
    check_lost(h, hosts);
    finish(h);
}

static void test_hosts_net__the_run_goes_on_without_a_host(void **state)
{
    (void)state;
    static const struct {
        change *what;
        bool comes_back;
        grid hosts;
    } cases[] = {
        {kill_b, false, {2, 2}},      {silence_b, true, {2, 1}},  {silence_head, true, {2, 1}},
        {cut_b, true, {2, 1}},        {cut_b, false, {3, 1}},     {kill_b, false, {3, 1}},
        {stop_agent_b, true, {2, 1}}, {silence_b, false, {3, 1}}, {silence_head, false, {3, 1}},
        {stop_agent_b, true, {3, 1}}, {kill_b, false, {4, 2}},    {cut_b, false, {4, 2}},
        {cut_b, true, {4, 2}},        {silence_b, true, {4, 2}},  {silence_head, false, {3, 2}},
        {stop_agent_b, true, {4, 2}},
    };
    for (size_t i = 0; i < (is_matrix() ? sizeof cases / sizeof *cases : 2); i++) {
        print_message("case %zu, %d hosts x %d: ", i, cases[i].hosts.n, cases[i].hosts.n_devices);
        go_on_without(cases[i].what, cases[i].comes_back, cases[i].hosts);
    }
}

/* The head cannot reach any other host: it goes on alone, and the agents end. */
static void cut_the_head_off(grid hosts)
{
    net_hosts *h = &live;
    start_long(h, hosts, "--set fault.detect=2s");
    SKIP_UNLESS_THERE(h);
    set_link(h, 0, false);
    NET_AWAIT(net_hosts_n_events(h, "worker.lost", "") == (hosts.n - 1) * hosts.n_devices);
    stop_run(h);
    assert_int_equal(net_hosts_await_exit(&h->head), STOPPED);
    for (int i = 1; i < h->n; i++) {
        assert_int_equal(net_hosts_await_exit(&h->host[i].agent), 3);
        NET_AWAIT(is_empty(h, i));
    }
    finish(h);
}

static void test_hosts_net__the_head_goes_on_alone_when_it_is_cut_off(void **state)
{
    (void)state;
    cut_the_head_off((grid){3, 1});
    cut_the_head_off((grid){4, 2});
}

/* Both hosts reach the head, but not each other: one of them has to go. */
static void test_hosts_net__two_hosts_that_lose_each_other(void **state)
{
    (void)state;
    for (int both = 0; both < 2; both++) {
        net_hosts *h = &live;
        start_long(h, (grid){3, 1}, "--set fault.detect=2s");
        SKIP_UNLESS_THERE(h);
        set_way(h, 1, 2, false);
        if (both) {
            set_way(h, 2, 1, false);
        }
        NET_AWAIT(net_hosts_n_events(h, "worker.lost", "") > 0);
        stop_and_expect_end(h);
        print_message("%d workers lost: ", net_hosts_n_events(h, "worker.lost", ""));
        finish(h);
    }
}

#define CASES(test) cmocka_unit_test_teardown(test, remove_hosts)

#define ONE_OF_EACH                                                                                \
    CASES(test_hosts_net__every_plan_computes_the_same),                                           \
        CASES(test_hosts_net__a_short_failure_loses_nothing),                                      \
        CASES(test_hosts_net__the_run_goes_on_without_a_host)

/* With an argument: only the cases of this pattern, as '*cut_off*'. */
int main(int argc, char **argv)
{
    if (argc > 1) {
        cmocka_set_test_filter(argv[1]);
    }
    const struct CMUnitTest few[] = {ONE_OF_EACH};
    const struct CMUnitTest all[] = {
        ONE_OF_EACH,
        CASES(test_hosts_net__the_head_goes_on_alone_when_it_is_cut_off),
        CASES(test_hosts_net__two_hosts_that_lose_each_other),
    };
    return is_matrix() ? cmocka_run_group_tests(all, NULL, NULL)
                       : cmocka_run_group_tests(few, NULL, NULL);
}
