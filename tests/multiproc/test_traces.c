/* Traces of real runs: the times of each worker add up, the bubble is the clock's, and a worker
 * that is slowed on purpose is the one that is named, in the trace's report and in the run's
 * events. */
#include "control/observe/slow.h"
#include "control/observe/trace.h"
#include "launcher/run/run.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs.h"
#include "support/toy.h"

#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PATIENCE_MS = 120000, START = 5, STEPS = 20 };

typedef struct scenario {
    const char *name;
    int K, R, M, batch, steps;
    const char *schedule;
    int64_t layer_us; /* that each layer's pass is made to take, as an emulated device's */
    int slow;         /* this worker takes twice as long; -1: none */
} scenario;

static const scenario *now; /* in a head and its workers */

/* A device whose computing is a wait: its stages share processors, and yet take their time. */
void fl__flight_point(fl_flight_kind kind, int rank, int64_t step)
{
    (void)step;
    bool layer = kind == FL_FLIGHT_FORWARD || kind == FL_FLIGHT_BACKWARD;
    if (now != NULL && layer && now->layer_us > 0) {
        int64_t us = now->layer_us * (rank == now->slow ? 2 : 1);
        nap(us);
    }
}

static _Noreturn void be_head(const scenario *s, const char *dir)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    now = s;
    hush();
    fl_job_defaults(&job);
    set(&job, "pipe.k", s->K);
    set(&job, "autodp.r", s->R);
    set(&job, "pipe.m", s->M);
    set(&job, "devices.count", s->K * s->R);
    set(&job, "train.batch", s->batch);
    set(&job, "train.max_steps", s->steps);
    set(&job, "train.epochs", 20);
    set(&job, "trace.start", START);
    set(&job, "trace.steps", STEPS);
    must(fl_job_set(&job, "pipe.schedule", s->schedule));
    must(fl_job_set(&job, "train.evaluate", "false"));
    must(fl_job_set(&job, "fault.detect", "20s"));
    must(fl_toy_dataset(1920, &data));
    must(fl_toy_model(4, 0.0f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    _exit(0);
}

/* Run it to its end and read its trace. */
static fl_trace_data *run(const scenario *s, char *dir, size_t size_bytes)
{
    int ends[2], status = 0;
    char path[256];
    snprintf(dir, size_bytes, "%s/%s", root, s->name);
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t head = fork();
    assert_true(head >= 0);
    if (head == 0) {
        close(ends[0]);
        be_head(s, dir);
    }
    close(ends[1]);
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    if (poll(&end, 1, PATIENCE_MS) != 1) {
        kill(head, SIGKILL);
        fail_msg("the run hangs");
    }
    assert_int_equal(waitpid(head, &status, 0), head);
    close(ends[0]);
    assert_int_equal(status, 0);
    fl_trace_data *trace = calloc(1, sizeof *trace);
    assert_non_null(trace);
    snprintf(path, sizeof path, "%s/trace-%d-%d.json", dir, START, START + STEPS - 1);
    if (fl_trace_read(path, trace) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return trace;
}

static void drop(fl_trace_data *trace)
{
    fl_trace_fini(trace);
    free(trace);
}

/* Operations of one kind of one worker. */
static int count(const fl_trace_data *trace, int rank, fl_flight_kind kind)
{
    int n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        n += trace->events[i].rank == rank && trace->events[i].e.kind == kind;
    }
    return n;
}

/* Would catch: a part of a step that nobody records, an operation that is lost or counted twice, a
 * trace that misses its first or last step. */
static void test_traces__times_add_up(void **state)
{
    (void)state;
    char dir[128];
    fl_trace_report r;
    scenario s = {"sums", 2, 1, 4, 96, 40, "1f1b", 300, -1};
    fl_trace_data *trace = run(&s, dir, sizeof dir);
    assert_int_equal(trace->about.lost, 0);
    assert_int_equal(count_events(dir, "\"trace.written\"", "trace-5-24.json"), 1);
    const fl_plan *plan = &trace->about.plan[0];
    for (int rank = 0; rank < 2; rank++) {
        int n_layers = plan->first[rank + 1] - plan->first[rank];
        assert_int_equal(count(trace, rank, FL_FLIGHT_STEP), STEPS);
        assert_int_equal(count(trace, rank, FL_FLIGHT_SUM), STEPS);
        assert_int_equal(count(trace, rank, FL_FLIGHT_OPTIMIZER), STEPS);
        assert_int_equal(count(trace, rank, FL_FLIGHT_FORWARD), STEPS * s.M * n_layers);
        assert_int_equal(count(trace, rank, FL_FLIGHT_BACKWARD), STEPS * s.M * n_layers);
    }
    assert_int_equal(count(trace, 0, FL_FLIGHT_SEND), STEPS * s.M);
    assert_int_equal(count(trace, 1, FL_FLIGHT_RECEIVE), STEPS * s.M);
    assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
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
    drop(trace);
}

/* Would catch: a bubble that is measured over the wrong part of a step. */
static void test_traces__the_bubble_is_the_clocks(void **state)
{
    (void)state;
    static const char *const schedules[] = {"gpipe", "1f1b"};
    for (int i = 0; i < 2; i++) {
        char dir[128];
        fl_trace_report r;
        scenario s = {schedules[i], 4, 1, 8, 32, 26, schedules[i], 5000, -1};
        fl_trace_data *trace = run(&s, dir, sizeof dir);
        assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
        print_message("%s: measured %.1f %%, by the schedule %.1f %%\n", s.schedule, 100 * r.bubble,
                      100 * r.schedule_bubble);
        assert_int_equal(r.n_pipelines, STEPS);
        assert_true(r.schedule_bubble > 0.2);
        assert_true(fabs(r.bubble - r.schedule_bubble) < 0.05);
        fl_trace_report_fini(&r);
        drop(trace);
    }
}

/* Would catch: a straggler that is named by who waited. */
static void test_traces__a_slowed_worker_is_named(void **state)
{
    (void)state;
    char dir[128];
    fl_trace_report r;
    scenario s = {"slow", 1, 2, 2, 32, 120, "1f1b", 2000, 1};
    fl_trace_data *trace = run(&s, dir, sizeof dir);
    assert_int_equal(fl_trace_analyse(trace, &r), FL_OK);
    print_message("slowness %.2f and %.2f\n", r.worker[0].slowness, r.worker[1].slowness);
    assert_true(r.worker[1].slowness >= FL_SLOW_RATIO);
    assert_true(r.worker[0].slowness < 1.0);
    assert_int_equal(count_events(dir, "\"worker.slow\"", "\"rank\": 1"), 1);
    assert_int_equal(count_events(dir, "\"worker.slow\"", ""), 1);
    assert_int_equal(count_events(dir, "\"worker.recovered\"", ""), 0);
    fl_trace_report_fini(&r);
    drop(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traces__times_add_up),
        cmocka_unit_test(test_traces__the_bubble_is_the_clocks),
        cmocka_unit_test(test_traces__a_slowed_worker_is_named),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
