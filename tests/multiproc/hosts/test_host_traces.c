/* Traces and flight recorders of a run on two hosts, whose monotonic clocks are a day apart. Would
 * catch: workers of the other host that are missing in a trace or have few of their operations,
 * times that are not on one line, a report that gets bubbles wrong for them, and a run or a trace
 * that waits for an agent that does not answer. Hosts are network name spaces, and a time name
 * space; without the right to make them, the tests are skipped. */
#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"
#include "support/lines.h"
#include "support/runs/traces.h"
#include "support/shell.h"

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

enum { M = 4, STEPS = 5, AHEAD_S = 86400 };

#define JOB                                                                                        \
    NET_JOB "--set train.epochs=1000 --set pipe.k=2 --set autodp.r=1 --set pipe.m=4 "              \
            "--set elastic.enabled=false --set trace.start=10 --set trace.steps=5 "                \
            "--set fault.on_loss=stop"

static int make_two(void **state)
{
    return net_hosts_set_up(state, 2, (const int[]){1, 1});
}

/* ---- a trace ---- */

static fl_trace_data *trace_of(const net_hosts *h, const char *name)
{
    char path[FOLDER_SIZE + 64];
    snprintf(path, sizeof path, "%s/run/%s", h->dir, name);
    return read_trace(path);
}

/* The same message at its other end. */
static const fl_flight_entry *other_end(const fl_trace_data *trace, int rank, fl_flight_kind kind,
                                        const fl_flight_entry *of)
{
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        if (event->rank == rank && event->e.kind == kind && event->e.step == of->step &&
            event->e.micro_batch == of->micro_batch) {
            return &event->e;
        }
    }
    return NULL;
}

/* No message has come before it was sent, within what the trace says of its clocks. */
static int check_order(const fl_trace_data *trace, int from, fl_flight_kind send,
                       fl_flight_kind receive, double *least_us)
{
    int n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        if (event->rank == from || event->e.kind != receive) {
            continue;
        }
        const fl_flight_entry *sent = other_end(trace, from, send, &event->e);
        assert_non_null(sent);
        *least_us = fmin(*least_us, (double)(event->e.left_ns - sent->entered_ns) * 1e-3);
        n++;
    }
    return n;
}

static void check_clock(const fl_trace_data *trace)
{
    const fl_trace_host *b = &trace->hosts[1];
    double least_us = INFINITY, error_us = (double)b->error_ns * 1e-3;
    assert_int_equal(trace->n_hosts, 2);
    assert_string_equal(b->name, "b");
    assert_string_equal(b->missing, "");
    assert_true(llabs(b->offset_ns - AHEAD_S * INT64_C(1000000000)) < b->error_ns + 1000);
    int n = check_order(trace, 0, FL_FLIGHT_SEND, FL_FLIGHT_RECEIVE, &least_us) +
            check_order(trace, 1, FL_FLIGHT_SEND_GRAD, FL_FLIGHT_RECEIVE_GRAD, &least_us);
    print_message("%d messages took at least %.1f us, the clocks are right to %.1f us\n", n,
                  least_us, error_us);
    assert_int_equal(n, 2 * STEPS * M);
    assert_true(least_us >= -error_us);
}

static void check_trace(const net_hosts *h, const char *name)
{
    fl_trace_data *trace = trace_of(h, name);
    fl_trace_report report;
    check_clock(trace);
    assert_int_equal(trace->about.lost, 0);
    for (int rank = 0; rank < 2; rank++) {
        int n_layers = trace->about.plan[0].first[rank + 1] - trace->about.plan[0].first[rank];
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_FORWARD), STEPS * M * n_layers);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_STEP), STEPS);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_OPTIMIZER), STEPS);
    }
    assert_int_equal(fl_trace_analyse(trace, &report), FL_OK);
    assert_int_equal(report.n_pipelines, STEPS);
    assert_true(report.bubble > 0.0 && report.bubble < 1.0);
    double longer = (double)report.worker[1].wall_ns / (double)report.worker[0].wall_ns;
    assert_true(longer > 0.5 && longer < 2.0); /* a step ends on both at the same sum */
    fl_trace_report_fini(&report);
    drop_trace(trace);
}

/* ---- the flight recorder ---- */

/* Finished operations of the worker, not older than the run, and not later than now: the worker
 * goes on while its recorder is read. */
static void check_worker(const json_t *dump, int rank, const char *host)
{
    json_t *thread, *worker = json_array_get(json_object_get(dump, "workers"), (size_t)rank);
    int n_recent = 0, n_inside = 0;
    assert_string_equal(json_string_value(json_object_get(worker, "host")), host);
    FOR_EACH(thread, json_object_get(worker, "threads"))
    {
        json_t *recent = json_object_get(thread, "recent"), *entry;
        n_inside += length(json_object_get(thread, "inside"));
        FOR_EACH(entry, recent)
        {
            double ago_s = json_number_value(json_object_get(entry, "left_s_ago"));
            assert_true(ago_s >= 0.0 && ago_s < 600.0);
            n_recent++;
        }
    }
    print_message("worker %d: in %d operations, %d finished ones\n", rank, n_inside, n_recent);
    assert_true(n_recent >= 16);
}

static void check_dump(const json_t *dump)
{
    check_worker(dump, 0, "a");
    check_worker(dump, 1, "b");
}

static void check_flight(const char *json)
{
    json_t *reply = json_loads(json, JSON_DISABLE_EOF_CHECK, NULL);
    check_dump(json_object_get(reply, "result"));
    json_decref(reply);
}

/* The worker of the other host is lost, and the run ends: flight.json has what it did. */
static void check_flight_file(net_hosts *h)
{
    char path[FOLDER_SIZE + 32];
    kill(net_hosts_worker_pid(h, 1), SIGKILL);
    net_hosts_expect_codes(h, 3, 3);
    snprintf(path, sizeof path, "%s/run/flight.json", h->dir);
    json_t *dump = json_load_file(path, 0, NULL);
    assert_non_null(dump);
    check_dump(dump);
    json_decref(dump);
}

static void ask(const net_hosts *h, const char *words)
{
    if (!net_hosts_shell("'%s/frostline' ctl %s/run %s", FL_BINARY_DIR, h->dir, words)) {
        fail_msg("ctl %s: %s", words, net_hosts_said());
    }
}

/* ---- the tests ---- */

static void await_trace(const net_hosts *h, const char *text)
{
    NET_AWAIT(net_hosts_n_steps(h) > 0); /* the events are there, too */
    NET_AWAIT(net_hosts_n_events(h, "trace.written", text) == 1);
}

static void test_host_traces__are_on_one_line(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent_ahead(h, 1, AHEAD_S);
    await_trace(h, "\"missing_hosts\": []");
    check_trace(h, "trace-10-14.json");
    /* Once the recorders have come round. Its first step may be over before the controller turns;
     * what was overwritten before it is not missing. */
    NET_AWAIT(net_hosts_n_steps(h) > 400);
    ask(h, "trace steps=5");
    NET_AWAIT(net_hosts_n_events(h, "trace.written", "") == 2);
    assert_int_equal(net_hosts_n_events(h, "trace.written", "\"lost\": 0"), 2);
    ask(h, "flight --json");
    check_flight(net_hosts_said());
    assert_true(net_hosts_shell("'%s/frostline' trace-report %s/run/trace-10-14.json",
                                FL_BINARY_DIR, h->dir));
    assert_non_null(strstr(net_hosts_said(), "host b: worker 1, times are right to 0."));
    check_flight_file(h);
}

/* The process that the workers of host b have as their parent: of the relay, the only child. */
static pid_t agent_process(const net_hosts *h)
{
    assert_true(net_hosts_shell("cut -d' ' -f4 /proc/%d/stat", (int)net_hosts_worker_pid(h, 1)));
    return (pid_t)strtol(net_hosts_said(), NULL, 10);
}

/* The relay lives, so the host does, and its workers train on. */
static void test_host_traces__go_on_without_an_agent_that_does_not_answer(void **state)
{
    net_hosts *h = *state;
    NET_NEED(h);
    net_hosts_start_head(h, JOB);
    net_hosts_start_agent(h, 1);
    await_trace(h, "\"missing_hosts\": []");
    pid_t agent = agent_process(h);
    assert_int_equal(kill(agent, SIGSTOP), 0);
    int n = net_hosts_n_steps(h);
    ask(h, "trace steps=5");
    await_trace(h, "did not answer for 3 s");
    assert_int_equal(kill(agent, SIGCONT), 0);
    assert_true(net_hosts_n_steps(h) > n);
    NET_AWAIT(net_hosts_log_has(h, "head.log", "the trace has no operations of host b"));
    ask(h, "stop");
    net_hosts_expect(h, 130);
    assert_int_equal(net_hosts_n_events(h, "worker.lost", ""), 0);
    assert_true(
        net_hosts_shell("cd %s/run && '%s/frostline' trace-report $(ls trace-*.json | grep -v "
                        "trace-10-14)",
                        h->dir, FL_BINARY_DIR));
    assert_non_null(strstr(net_hosts_said(), "host b: worker 1, missing: its agent did not"));
}

#define TWO(test) cmocka_unit_test_setup_teardown(test, make_two, net_hosts_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TWO(test_host_traces__are_on_one_line),
        TWO(test_host_traces__go_on_without_an_agent_that_does_not_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
