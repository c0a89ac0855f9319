/* How many connections the workers of two hosts have while they train. Would catch: a connection
 * between each two workers, of which a plan needs few; one within a host, where they share memory.
 */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { ON_EACH = 8, STOPPED = 5, HEAD_PORT = 5570, ESTABLISHED = 1 };

typedef struct count {
    int within, across; /* ends within the host of which the other is there too, and the others */
} count;

/* One line of /proc/PID/net/tcp. The head's ports are for what is no message of a net. */
static void count_line(const char *line, count *n)
{
    unsigned from = 0, from_port = 0, to = 0, to_port = 0, state = 0;
    if (sscanf(line, " %*d: %8X:%4X %8X:%4X %2X", &from, &from_port, &to, &to_port, &state) != 5 ||
        state != ESTABLISHED || (to_port >= HEAD_PORT && to_port <= HEAD_PORT + 1)) {
        return;
    }
    n->within += from == to;
    n->across += from != to;
}

static count count_connections(pid_t on_host)
{
    char path[64], line[512];
    count n = {0};
    snprintf(path, sizeof path, "/proc/%d/net/tcp", (int)on_host);
    FILE *table = fopen(path, "re");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) != NULL) {
        count_line(line, &n);
    }
    fclose(table);
    return n;
}

/* Each pair has at most one connection in each direction, for each of two nets. Messages go by way
 * of worker 0, commands come from a leader. Gradients are summed within each host first, and then
 * by one pair for each worker. */
enum { MOST_ACROSS = 2 * (ON_EACH + ON_EACH) + 2 * (ON_EACH + ON_EACH) };

static void start(net_hosts *h, const char *plan)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job,
             NET_JOB "--set model.heads=2 --set train.epochs=100000 --set cache.policy=off "
                     "--set train.batch=32 --set pipe.k=1 --set autodp.r=16 --set pipe.m=1 %s",
             plan);
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 1);
}

static count count_on_second(const net_hosts *h)
{
    return count_connections(net_hosts_child_of(h->host[1].agent));
}

static bool are_few(count n)
{
    return n.within == 0 && n.across <= MOST_ACROSS;
}

static void check_and_stop(net_hosts *h)
{
    count n = count_on_second(h);
    print_message("on the second host: %d ends within it, %d connections to the first\n", n.within,
                  n.across);
    assert_true(are_few(n));
    assert_true(n.across > 0);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
}

static void test_hosts_connections__of_replicas(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start(h, "--set elastic.enabled=false");
    NET_AWAIT(net_hosts_n_steps(h) >= 5);
    check_and_stop(h);
}

/* A thread closes the nets of the plan before, beside training. */
static void test_hosts_connections__after_a_transition(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start(h, "--set elastic.script='[{step: 3, k: 2, r: 8, m: 1}]'");
    NET_AWAIT(net_hosts_n_steps(h) > 0 && net_hosts_n_events(h, "transition.done", "") == 1);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) >= before + 5);
    for (int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS);
         !are_few(count_on_second(h)) && fl_left_ms(until_us) > 0; nap(50000)) {
    }
    check_and_stop(h);
}

/* The other workers of host b have no connection to it. Would catch: votes that wait for it, each
 * by a worker that has not learnt of its end, so that it never comes back. */
static void test_hosts_connections__one_lost_in_standby_comes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start(h, "--set elastic.enabled=false --set autodp.r=8");
    NET_AWAIT(net_hosts_n_steps(h) >= 5);
    kill(net_hosts_worker_pid(h, 2 * ON_EACH - 2), SIGKILL);
    kill(net_hosts_worker_pid(h, 2 * ON_EACH - 1), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "") == 2);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) >= before + 5);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"goes_on\": true"), 2);
}

/* All-gathers of so many go through the leader. Would catch: all-gathers through worker 0 for ever,
 * so that its loss in standby breaks the group of all others. */
static void test_hosts_connections__worker_0_is_lost_in_standby(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start(h, "--set elastic.enabled=false --set autodp.r=4");
    NET_AWAIT(net_hosts_n_steps(h) >= 5);
    kill(net_hosts_worker_pid(h, 0), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"rank\": 0") == 1);
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 1);
    kill(net_hosts_event_pid(h, "worker.joined", 0), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"rank\": 0") == 2);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) >= before + 5);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"rank\": 0"), 2);
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 1);
}

/* Heartbeats stop with it, and no command is sent meanwhile. Would catch: a standby worker that
 * nobody misses before a change of the plan waits for it; one whose connections, which its kernel
 * keeps open, hold the others up. */
static void test_hosts_connections__one_stopped_in_standby_comes_back(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    start(h, "--set elastic.enabled=false --set autodp.r=4");
    NET_AWAIT(net_hosts_n_steps(h) >= 5);
    kill(net_hosts_worker_pid(h, 9), SIGSTOP);
    NET_AWAIT(net_hosts_n_events(h, "worker.joined", "\"rank\": 9") == 1);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) >= before + 5);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, STOPPED, STOPPED);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", "\"how\": \"silent\""), 1);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 1);
    assert_int_equal(net_hosts_n_events(h, "run.recovered", ""), 0);
}

static int set_up(void **state)
{
    static const int n_devices[] = {ON_EACH, ON_EACH};
    return net_hosts_set_up(state, 2, n_devices);
}

/* More than exchange their messages directly. */
static int set_up_ten(void **state)
{
    static const int n_devices[] = {5, 5};
    return net_hosts_set_up(state, 2, n_devices);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_hosts_connections__of_replicas, set_up,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_connections__after_a_transition, set_up,
                                        net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_connections__one_lost_in_standby_comes_back,
                                        set_up, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_connections__worker_0_is_lost_in_standby,
                                        set_up_ten, net_hosts_tear_down),
        cmocka_unit_test_setup_teardown(test_hosts_connections__one_stopped_in_standby_comes_back,
                                        set_up_ten, net_hosts_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
