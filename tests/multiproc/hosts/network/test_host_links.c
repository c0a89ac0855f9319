/* The links between hosts, measured before the plan of a run, and by frostline doctor. Would catch:
 * a plan for links that nobody has measured, a pair of hosts that cannot talk and is found out by a
 * loss in the middle of the run, agents that the measuring keeps from joining, and a slow link that
 * is taken for a fast one. */
#include "support/hosts/net_filter.h"
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"

#include <math.h>
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

enum { STEPS = 12, COMPARED = 12, STILL_MS = 6000 /* two hosts have 5 s to connect */ };

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

/* parted: hosts b and c reach the head, and not each other. */
static bool part_hosts(bool parted)
{
    int id = (int)getpid();
    const char *isolated = parted ? "on" : "off";
    return net_hosts_shell("ip -n fn%dx link set p1 type bridge_slave isolated %s && "
                           "ip -n fn%dx link set p2 type bridge_slave isolated %s",
                           id, isolated, id, isolated);
}

/* Start the run, and end it by this signal while it waits for hosts. */
static void stop_while_hosts_are_awaited(net_hosts *h, const char *more, int number, int code)
{
    char job[NET_HOSTS_TEXT];
    snprintf(job, sizeof job, NET_JOB "--set train.max_steps=4 %s", more);
    net_hosts_start_head(h, job);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "measures the links between hosts"));
    kill(h->head, number);
    assert_int_equal(net_hosts_await_exit(&h->head), code);
    assert_true(net_hosts_shell("rm %s/head.log", h->dir));
}

/* Would catch: keys that stay behind, and a directory in which the same command, or one of a batch
 * system, cannot begin the run. */
static void test_host_links__a_stop_while_hosts_are_awaited_leaves_no_run(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    forget_links(h);
    stop_while_hosts_are_awaited(h, "", SIGTERM, 5);
    assert_false(net_hosts_shell("test -e %s/run/hosts.key", h->dir));
    stop_while_hosts_are_awaited(h, "", SIGINT, 130);
    stop_while_hosts_are_awaited(h, "--continue", SIGKILL, 128 + SIGKILL);
    assert_true(net_hosts_shell("touch %s/run/joining-0 %s/run/joining-0-seen", h->dir, h->dir));
    stop_while_hosts_are_awaited(h, "--continue", SIGTERM, 5);
    assert_true(net_hosts_shell("test -e %s/run-1/job.yaml && ! test -e %s/run/job.yaml", h->dir,
                                h->dir)); /* SIGKILL has left it */
    assert_true(net_hosts_shell("! ls %s/run-1 | grep -e joining- -e hosts.key", h->dir));
}

/* What goes to host c passes at 1 MB/s. */
static bool slow_host(void)
{
    return net_hosts_shell(
        "tc -n fn%dx qdisc add dev p2 root tbf rate 8mbit burst 16kb latency 50ms", (int)getpid());
}

/* Of links between hosts, by ctl status and by profile.yaml. */
static double status_rate(const net_hosts *h)
{
    net_hosts_shell("'%s/frostline' ctl %s/run status --json", FL_BINARY_DIR, h->dir);
    json_t *status = json_loads(net_hosts_said(), 0, NULL), *link;
    json_t *links = json_object_get(json_object_get(status, "result"), "links");
    double rate = 0.0;
    FOR_EACH(link, links)
    {
        if (strcmp(json_string_value(json_object_get(link, "between")), "hosts") == 0) {
            rate = json_number_value(json_object_get(link, "bytes_per_s"));
        }
    }
    json_decref(status);
    return rate;
}

static double kept_rate(const net_hosts *h)
{
    net_hosts_shell("sed -n 's/^ *hosts_bytes_per_us: //p' %s/run/profile.yaml", h->dir);
    return strtod(net_hosts_said(), NULL) * 1e6;
}

static void start_both(net_hosts *h, const char *job)
{
    net_hosts_start_head(h, job);
    net_hosts_start_agent(h, 2);
}

/* Would catch: a run that goes back to the links of the time before it was resumed. */
static void test_host_links__a_run_that_goes_back_has_those_of_its_resume(void **state)
{
    enum { SLOW = 3000000 }; /* a shaper lets a burst pass */
    net_hosts *h = *state;
    char resume[NET_HOSTS_TEXT];
    NET_NEED(h);
    net_hosts_write_file(h, "ac");
    forget_links(h);
    start_both(h, NET_JOB "--set train.epochs=100000 --set elastic.enabled=false --set pipe.k=2 "
                          "--set autodp.r=1 --set pipe.m=2 --set fault.snapshot=none "
                          "--set checkpoint.every='5 steps'");
    NET_AWAIT(net_hosts_n_steps(h) > 5);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
    assert_true(kept_rate(h) > SLOW);
    if (!slow_host()) {
        print_message("skipped: this kernel has no shaper (tc, tbf)\n");
        skip();
    }
    snprintf(resume, sizeof resume, "--resume %s/run", h->dir);
    start_both(h, resume);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") == 1);
    /* Else it goes back to the checkpoint of its resume, and the event of that is cut off. */
    int written = net_hosts_n_events(h, "checkpoint.written", "");
    NET_AWAIT(net_hosts_n_events(h, "checkpoint.written", "") > written);
    double measured = status_rate(h);
    assert_true(measured > 0.0 && measured < SLOW && kept_rate(h) < SLOW);
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    NET_AWAIT(net_hosts_n_events(h, "run.resumed", "") == 2);
    int before = net_hosts_n_steps(h);
    NET_AWAIT(net_hosts_n_steps(h) > before + 5);
    assert_true(fabs(status_rate(h) - measured) < 1.0);
    kill(h->head, SIGTERM);
    net_hosts_expect_codes(h, 5, 5);
}

static void make_ssh(const net_hosts *h)
{
    assert_true(net_hosts_shell("mkdir %s/bin && cat > %s/bin/ssh <<'END'\n#!/bin/sh\n"
                                "case $3 in %s) s=%s ;; %s) s=%s ;; *) exit 255 ;; esac\n"
                                "exec ip netns exec $s sh -c \"$4\"\nEND\nchmod 755 %s/bin/ssh",
                                h->dir, h->dir, h->host[1].address, h->host[1].space,
                                h->host[2].address, h->host[2].space, h->dir));
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
    if (!part_hosts(true)) {
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

/* The process of host c that measures links; 0: there is none so far. */
static pid_t measuring_process(const net_hosts *h)
{
    pid_t agent = net_hosts_child_of(h->host[2].agent);
    return agent == 0 ? 0 : net_hosts_child_of(agent);
}

/* Hosts b and c, which meet first, try to connect for five seconds. */
static void start_measuring(net_hosts *h, pid_t *process)
{
    if (!part_hosts(true)) {
        print_message("skipped: the bridge cannot keep two hosts apart\n");
        skip();
    }
    forget_links(h);
    net_hosts_start_head(h, NET_JOB "--set train.max_steps=4");
    net_hosts_start_agent(h, 1);
    net_hosts_start_agent(h, 2);
    NET_AWAIT((*process = measuring_process(h)) != 0);
}

/* Would catch: a head that waits for the time of all pairs, and blames the network. */
static void test_host_links__a_measuring_process_that_is_killed_ends_the_start(void **state)
{
    net_hosts *h = *state;
    pid_t process = 0;
    NET_NEED(h);
    start_measuring(h, &process);
    kill(process, SIGKILL);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host c (10.213.8.3): the process that measures its links was "
                                  "killed by signal 9"));
    assert_false(net_hosts_log_has(h, "head.log", "firewall"));
}

/* Would catch: an agent that is gone without a word, and that the head awaits for that time. */
static void test_host_links__an_agent_that_is_killed_while_it_measures_ends_the_start(void **state)
{
    net_hosts *h = *state;
    pid_t process = 0;
    NET_NEED(h);
    start_measuring(h, &process);
    pid_t agent = net_hosts_child_of(h->host[2].agent);
    assert_true(agent > 0);
    kill(agent, SIGKILL);
    net_hosts_expect_codes(h, 3, 3);
    assert_true(net_hosts_log_has(h, "head.log",
                                  "host c (10.213.8.3) was lost while links were measured: its "
                                  "agent was killed by signal 9"));
}

/* All processes of all hosts. */
static void signal_all(const net_hosts *h, const char *name)
{
    for (int i = 0; i < h->n; i++) {
        assert_true(net_hosts_shell("kill -%s $(ip netns pids %s)", name, h->host[i].space));
    }
}

/* As virtual machines of one owner. Would catch: a start that ends with code 3, because a wait of
 * five seconds was over before it began. */
static void test_host_links__a_standstill_of_all_hosts_is_excused(void **state)
{
    net_hosts *h = *state;
    pid_t process = 0;
    NET_NEED(h);
    start_measuring(h, &process);
    signal_all(h, "STOP");
    assert_true(part_hosts(false));
    nap(1000 * STILL_MS);
    signal_all(h, "CONT");
    net_hosts_expect(h, 0);
    assert_true(
        net_hosts_log_has(h, "head.log", "s while links were measured: measures them again"));
    assert_int_equal(net_hosts_n_steps(h), 4);
}

static void test_host_links__the_doctor_measures_every_pair(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    make_ssh(h);
    if (!slow_host()) {
        print_message("skipped: this kernel has no shaper (tc, tbf)\n");
        skip();
    }
    net_hosts_shell("PATH=%s/bin:$PATH ip netns exec %s '%s/frostline' doctor --hosts "
                    "%s/hosts.yaml --json > %s/doctor.json; cat %s/doctor.json",
                    h->dir, h->host[0].space, FL_BINARY_DIR, h->dir, h->dir, h->dir);
    json_t *all = json_loads(net_hosts_said(), 0, NULL);
    json_t *links = json_object_get(all, "links"), *pairs = json_object_get(links, "pairs"), *pair;
    assert_int_equal(length(pairs), 3);
    FOR_EACH(pair, pairs)
    {
        const char *b = json_string_value(json_object_get(pair, "b"));
        double there = json_number_value(json_object_get(pair, "bytes_per_s"));
        assert_true(json_is_true(json_object_get(pair, "reached")) && there > 0.0);
        assert_true(strcmp(b, "c") != 0 || there < 3e6); /* a shaper lets a burst pass */
    }
    assert_non_null(strstr(net_hosts_said(), "the file states 50 us and 1.0 GiB/s"));
    json_decref(all);
    assert_false(net_hosts_shell("ip netns exec %s '%s/frostline' run " NET_JOB
                                 "--run-dir %s/run --set 'hosts=[{name: a, address: %s, devices: "
                                 "1}, {name: b, address: 127.0.0.1, devices: 1}]' 2>&1",
                                 h->host[0].space, FL_BINARY_DIR, h->dir, h->host[0].address));
    assert_non_null(strstr(net_hosts_said(), "which leads other hosts to themselves"));
}

/* Returns the exit code: 0, 1: another one. What it prints is in net_hosts_said. */
static int ask_doctor(const net_hosts *h)
{
    return net_hosts_shell("PATH=%s/bin:$PATH ip netns exec %s '%s/frostline' doctor --hosts "
                           "%s/hosts.yaml",
                           h->dir, h->host[0].space, FL_BINARY_DIR, h->dir)
               ? 0
               : 1;
}

/* The process that measures the links of the head connects to the head. Would catch: a doctor that
 * calls the head good where a run measures its links, or bad where a run need not; and one that
 * blames the other host of each pair. */
static void test_host_links__the_doctor_names_a_head_whose_loopback_is_filtered(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    make_ssh(h);
    net_filter_loopback(h, 0, true);
    assert_int_equal(ask_doctor(h), 0);
    assert_non_null(strstr(net_hosts_said(), "warning  links      not measured: host a: "
                                             "loopback is filtered: "));
    assert_true(net_hosts_shell("sed -i '/^links/,$d' %s/hosts.yaml", h->dir));
    assert_int_equal(ask_doctor(h), 1);
    assert_non_null(strstr(net_hosts_said(), "error    links      not measured: host a: loop"));
    assert_null(strstr(net_hosts_said(), "error    pair"));
}

#define HOSTS(test) cmocka_unit_test_setup_teardown(test, make_three, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        HOSTS(test_host_links__are_measured_before_the_plan),
        HOSTS(test_host_links__a_run_that_goes_back_has_those_of_its_resume),
        HOSTS(test_host_links__a_pair_that_cannot_talk_ends_the_start),
        HOSTS(test_host_links__a_measuring_process_that_is_killed_ends_the_start),
        HOSTS(test_host_links__an_agent_that_is_killed_while_it_measures_ends_the_start),
        HOSTS(test_host_links__a_stop_while_hosts_are_awaited_leaves_no_run),
        HOSTS(test_host_links__a_standstill_of_all_hosts_is_excused),
        HOSTS(test_host_links__the_doctor_measures_every_pair),
        HOSTS(test_host_links__the_doctor_names_a_head_whose_loopback_is_filtered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
