/* The steps that a trace holds: those that its file's name, its event and its content name are the
 * same. A run may end before them, continue behind them or among them, or go back. */
#include "support/lines.h"
#include "support/runs/restart.h"
#include "support/runs/traces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>
#include <sys/stat.h>

enum { START = 5, STEPS = 10, END = START + STEPS };

static const char *const *const two_stages =
    JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2", "train.batch",
             "10", "train.epochs", "20", "train.evaluate", "false", "trace.start", "5",
             "trace.steps", "10", "checkpoint.every", "10 steps");

static scenario of(const char *name, const char *const *more)
{
    return (scenario){.name = name, .sets = two_stages, .more = more, .n_samples = 203};
}

static void path_of(const scenario *s, int64_t first, int64_t last, char path[256])
{
    snprintf(path, 256, "%s/trace-%d-%d.json", s->dir, (int)first, (int)last);
}

static bool has_trace(const scenario *s, int64_t first, int64_t last)
{
    char path[256];
    path_of(s, first, last, path);
    return access(path, F_OK) == 0;
}

/* Both workers' operations of these steps are in the file of this name, and no other step is. */
static void expect_trace(const scenario *s, int64_t first, int64_t last)
{
    char path[256];
    path_of(s, first, last, path);
    fl_trace_data *trace = read_trace(path);
    assert_int_equal(trace->about.first_step, first);
    assert_int_equal(trace->about.n_steps, last - first + 1);
    for (int rank = 0; rank < 2; rank++) {
        assert_int_equal(count_operations(trace, rank, FL_FLIGHT_STEP), last - first + 1);
    }
    for (size_t i = 0; i < trace->n; i++) {
        assert_in_range(trace->events[i].e.step, first, last);
    }
    drop_trace(trace);
}

static int n_steps_of(const scenario *s)
{
    json_t *steps = lines_with(s->dir, "steps.jsonl", "");
    int n = length(steps);
    json_decref(steps);
    return n;
}

static void stop_soon(scenario *s)
{
    s->at[0] =
        (scenario_deed){.point = "step", .who = EVERYBODY, .step = 10, .act = interrupt_after_step};
    scenario_start(s);
    expect_end(s, FL_ESTOPPED);
    scenario_forget(s);
}

/* Would catch: a name and an event with steps that the run has not done. */
static void test_trace_steps__a_stopped_run_names_those_that_it_did(void **state)
{
    (void)state;
    char steps[32];
    scenario s = of("stopped", JOB_SETS("trace.steps", "900"));
    stop_soon(&s);
    int n = n_steps_of(&s);
    assert_in_range(n, 10, 12);
    expect_trace(&s, START, n - 1);
    snprintf(steps, sizeof steps, "\"steps\": %d,", n - START);
    assert_int_equal(count_events(s.dir, "\"trace.written\"", steps), 1);
}

/* Would catch: an empty file for steps that never came. */
static void test_trace_steps__without_any_there_is_no_file(void **state)
{
    (void)state;
    scenario s = of("none", JOB_SETS("trace.start", "100"));
    stop_soon(&s);
    assert_int_equal(count_events(s.dir, "\"trace.failed\"", "the run ended before step 100\""), 1);
    assert_int_equal(count_events(s.dir, "\"trace.written\"", ""), 0);
    assert_false(has_trace(&s, 100, 109));
}

/* A run that continued behind the traced steps wrote their file again, without operations. */
static void test_trace_steps__behind_them_the_file_stays(void **state)
{
    (void)state;
    char path[256];
    struct stat before, after;
    scenario s = of("behind", JOB_SETS("train.max_steps", "40"));
    scenario_run(&s);
    int n_written = count_events(s.dir, "\"trace.written\"", "");
    path_of(&s, START, END - 1, path);
    assert_int_equal(stat(path, &before), 0);
    s.resumes = true;
    s.more = JOB_SETS("train.max_steps", "60");
    scenario_run(&s);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(after.st_size, before.st_size);
    assert_int_equal(after.st_mtim.tv_sec, before.st_mtim.tv_sec);
    assert_int_equal(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    expect_trace(&s, START, END - 1);
    assert_true(count_events(s.dir, "\"trace.written\"", "") <= n_written);
    assert_int_equal(count_events(s.dir, "\"trace.failed\"", ""), 0);
}

static void test_trace_steps__among_them_the_rest_is_traced(void **state)
{
    (void)state;
    scenario s = of("among", JOB_SETS("train.max_steps", "10"));
    scenario_run(&s);
    expect_trace(&s, START, 9);
    s.resumes = true;
    s.more = JOB_SETS("train.max_steps", "40");
    scenario_run(&s);
    expect_trace(&s, START, 9);
    expect_trace(&s, 10, END - 1);
    assert_false(has_trace(&s, START, END - 1));
}

/* Would catch: a trace that is lost with the worker, or that claims the steps before the return. */
static void test_trace_steps__a_return_traces_what_is_repeated(void **state)
{
    (void)state;
    enum { FIRST = RESTART_FATAL_STEP - 2, LAST = FIRST + 4 };
    scenario s;
    restart_start(&s, "return",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps",
                           "trace.start", "11", "trace.steps", "5"),
                  restart_kill_once_snapped);
    expect_end(&s, FL_OK);
    json_t *resumed = lines_with(s.dir, "events.jsonl", "\"run.resumed\"");
    int to = number(json_array_get(resumed, 0), "step");
    json_decref(resumed);
    expect_trace(&s, FIRST, RESTART_FATAL_STEP - 1);
    expect_trace(&s, to > FIRST ? to : FIRST, LAST);
    assert_int_equal(count_events(s.dir, "\"trace.failed\"", ""), 0);
    scenario_forget(&s);
}

/* Would catch: a trace that is given up because the run lost a worker before its first step. */
static void test_trace_steps__a_return_before_them_changes_nothing(void **state)
{
    (void)state;
    scenario s;
    restart_start(&s, "early",
                  JOB_SETS(RESTART_STAGES, "checkpoint.every", "none", "fault.snapshot", "4 steps",
                           "trace.start", "20", "trace.steps", "5"),
                  restart_kill_once_snapped);
    expect_end(&s, FL_OK);
    expect_trace(&s, 20, 24);
    assert_int_equal(count_events(s.dir, "\"trace.failed\"", ""), 0);
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_steps__a_stopped_run_names_those_that_it_did),
        cmocka_unit_test(test_trace_steps__without_any_there_is_no_file),
        cmocka_unit_test(test_trace_steps__behind_them_the_file_stays),
        cmocka_unit_test(test_trace_steps__among_them_the_rest_is_traced),
        cmocka_unit_test(test_trace_steps__a_return_traces_what_is_repeated),
        cmocka_unit_test(test_trace_steps__a_return_before_them_changes_nothing),
    };
    return cmocka_run_group_tests(tests, restart_set_up, restart_tear_down);
}
