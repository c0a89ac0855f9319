/* Traces of real runs: the times of each worker add up, every step of a pipeline counts for the
 * bubble, and a worker that is slowed on purpose is the one that is named, in the trace's report
 * and in the run's events. How close the measured bubble is to the schedule's is a matter of time:
 * bench/trace_bubble.sh. */
#include "control/observe/slow.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"
#include "support/runs/traces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { START = 5, STEPS = 20 };

/* A run with every layer's pass made to take as long as on an emulated device. */
typedef struct traced {
    const char *name, *k, *r, *m, *devices, *batch, *steps, *schedule;
    int64_t layer_us;
    int slow;           /* this worker takes three times as long; -1: none */
    const char *device; /* NULL: cpu */
} traced;

/* A device whose computing is a wait: its workers share processors, and yet take their time. One
 * wait stands for several layers. */
static void take_time(fl_flight_kind kind, int rank, int64_t step)
{
    (void)step;
    enum { LAYERS_A_WAIT = 8 };
    static int n_passed;
    const traced *t = scenario_here()->context;
    bool computes = kind == FL_FLIGHT_FORWARD || kind == FL_FLIGHT_BACKWARD;
    if (t->layer_us > 0 && computes && ++n_passed % LAYERS_A_WAIT == 0) {
        nap(LAYERS_A_WAIT * t->layer_us * (rank == t->slow ? 3 : 1));
    }
}

/* Run it to its end and read its trace. */
static fl_trace_data *trace_of(const traced *t, scenario *s)
{
    char path[256];
    *s = (scenario){.name = t->name,
                    .sets = JOB_SETS("pipe.k", t->k, "autodp.r", t->r, "pipe.m", t->m,
                                     "devices.count", t->devices, "pipe.schedule", t->schedule,
                                     "train.batch", t->batch, "train.max_steps", t->steps,
                                     "train.epochs", "20", "trace.start", "5", "trace.steps", "20",
                                     "train.evaluate", "false", "fault.detect", "20s"),
                    .n_samples = 1920,
                    .device = t->device,
                    .at_operation = take_time,
                    .context = t};
    scenario_run(s);
    snprintf(path, sizeof path, "%s/trace-%d-%d.json", s->dir, START, START + STEPS - 1);
    return read_trace(path);
}

/* Would catch: a part of a step that is not recorded, an operation that is lost or counted twice, a
 * trace without its first or last step. */
static void test_traces__times_add_up(void **state)
{
    (void)state;
    fl_trace_report r;
    enum { M = 4 };
    scenario s;
    traced t = {"sums", "2", "1", "4", "2", "96", "40", "1f1b", 300, -1, NULL};
    fl_trace_data *trace = trace_of(&t, &s);
    assert_int_equal(trace->about.lost, 0);
    assert_int_equal(count_events(s.dir, "\"trace.written\"", "trace-5-24.json"), 1);
    const fl_plan *plan = &trace->about.plan[0];
    for (int rank = 0; rank < 2; rank++) {
        int n_layers = plan->first[rank + 1] - plan->first[rank];
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_STEP), STEPS);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_SUM), STEPS);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_OPTIMIZER), STEPS);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_FORWARD), STEPS * M * n_layers);
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_BACKWARD), STEPS * M * n_layers);
    }
    assert_int_equal(count_operations(trace, 0, FL_FLIGHT_SEND), STEPS * M);
    assert_int_equal(count_operations(trace, 1, FL_FLIGHT_RECEIVE), STEPS * M);
    assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
    assert_int_equal(r.n_pipelines, STEPS);
    assert_true(r.bubble > 0.0 && r.bubble < 1.0);
    assert_true(r.schedule_bubble > 0.0 && r.schedule_bubble < 1.0);
    for (int rank = 0; rank < 2; rank++) {
        const fl_trace_worker *w = &r.worker[rank];
        double other = (double)w->in_ns[FL_FLIGHT_IS_OTHER] / (double)w->wall_ns;
        int64_t all_ns = 0;
        for (int c = 0; c < FL_FLIGHT_N_CATEGORIES; c++) {
            all_ns += w->in_ns[c];
        }
        /* Below 1 % where nobody takes the processor away between two operations of a few us; a
         * part of a step that nobody records would be far more. */
        print_message("worker %d: %.2f %% in no operation\n", rank, 100 * other);
        assert_true(other >= 0.0 && other < 0.25);
        assert_int_equal(all_ns, w->wall_ns);
    }
    fl_trace_report_fini(&r);
    drop_trace(trace);
}

static int count_on_device(const fl_trace_data *trace, int rank, fl_flight_kind kind)
{
    int n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        n += event->rank == rank && event->role == FL_FLIGHT_DEVICE && event->e.kind == kind;
    }
    return n;
}

/* The end of a worker's step; 0: it is not in the trace. */
static int64_t step_left_ns(const fl_trace_data *trace, int rank, int64_t step)
{
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        if (event->rank == rank && event->e.kind == FL_FLIGHT_STEP && event->e.step == step) {
            return event->e.left_ns;
        }
    }
    return 0;
}

/* On a device that computes later than it is called. Would catch: work of a step that is missing,
 * or lies behind the end of the step that waited for it. */
static void test_traces__tell_what_a_device_computed(void **state)
{
    (void)state;
    enum { M = 4 };
    scenario s;
    fl_trace_report r;
    traced t = {"device", "2", "1", "4", "2", "32", "40", "1f1b", 0, -1, "async-test"};
    fl_trace_data *trace = trace_of(&t, &s);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(count_on_device(trace, rank, FL_FLIGHT_FORWARD), STEPS * M);
        assert_int_equal(count_on_device(trace, rank, FL_FLIGHT_BACKWARD), STEPS * M);
        assert_int_equal(count_on_device(trace, rank, FL_FLIGHT_OPTIMIZER), STEPS);
    }
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        bool inside = event->role == FL_FLIGHT_DEVICE && event->e.kind != FL_FLIGHT_OPTIMIZER;
        if (inside) {
            assert_true(event->e.left_ns <= step_left_ns(trace, event->rank, event->e.step));
            assert_true(event->e.left_ns > event->e.entered_ns);
        }
    }
    assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
    assert_int_equal(r.n_pipelines, STEPS);
    assert_true(r.bubble > 0.0 && r.bubble < 1.0);
    assert_true(r.worker[0].has_device && r.worker[0].device_ns > 0);
    assert_true(r.worker[0].expected_us > 0.0);
    fl_trace_report_fini(&r);
    drop_trace(trace);
}

/* Would catch: naming a worker that only waited as the slow one. */
static void test_traces__a_slowed_worker_is_named(void **state)
{
    (void)state;
    fl_trace_report r;
    scenario s;
    traced t = {"slow", "1", "2", "2", "2", "32", "120", "1f1b", 250, 1, NULL};
    fl_trace_data *trace = trace_of(&t, &s);
    assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
    print_message("slowness %.2f and %.2f\n", r.worker[0].slowness, r.worker[1].slowness);
    assert_true(r.worker[1].slowness >= FL_SLOW_RATIO);
    assert_true(r.worker[0].slowness < 1.0);
    assert_int_equal(count_events(s.dir, "\"worker.slow\"", "\"rank\": 1"), 1);
    assert_int_equal(count_events(s.dir, "\"worker.slow\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"worker.recovered\"", ""), 0);
    fl_trace_report_fini(&r);
    drop_trace(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces__times_add_up),
        cmocka_unit_test(test_traces__tell_what_a_device_computed),
        cmocka_unit_test(test_traces__a_slowed_worker_is_named),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
