/* Ctrl-C while workers open communicators of NCCL, which never open (a library stands in for it):
 * at the start, in a transition, after a loss, and where the run has gone back. Catches a run that
 * waits for the deadlines of the opening, which are longer than this test waits; one that is lost,
 * or goes back, instead of ending as stopped; and a checkpoint that could have been written. */
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 480 };

static const char *const fields[] = {"train.batch",
                                     "12",
                                     "train.epochs",
                                     "100",
                                     "train.evaluate",
                                     "false",
                                     "fault.deadline",
                                     "300s",
                                     "checkpoint.every",
                                     "1000 epochs",
                                     "elastic.enabled",
                                     "true",
                                     NULL};

/* Where the run opens communicators, by this call and after at least so many steps, or by any call
 * while there is the file, a worker sends the run a Ctrl-C: once. In memory that all share. */
typedef struct when {
    fl_flight_kind kind;
    int64_t step;
    char file[256]; /* "": none */
    _Atomic int n_sent;
} when;

static bool is_now(const when *w, fl_flight_kind kind, int64_t step)
{
    bool opens = kind == FL_FLIGHT_COMM_INIT || kind == FL_FLIGHT_COMM_SHRINK;
    return w->file[0] != '\0' ? opens && access(w->file, F_OK) == 0
                              : kind == w->kind && step >= w->step;
}

static void interrupt_opening(fl_flight_kind kind, int rank, int64_t step)
{
    when *w = (when *)(uintptr_t)scenario_here()->context;
    (void)rank;
    if (is_now(w, kind, step) && atomic_fetch_add(&w->n_sent, 1) == 0) {
        kill(controller_here(), SIGINT);
    }
}

static when *shared_when(fl_flight_kind kind, int64_t step)
{
    when *w = shared_memory(sizeof *w);
    w->kind = kind;
    w->step = step;
    return w;
}

static fl_status ask_for_nccl(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)model;
    (void)data;
    return fl_job_set(job, "autodp.transport", "nccl");
}

/* faults: of the stand-in, in each worker. */
static void start(scenario *s, const char *faults)
{
    assert_int_equal(setenv("FROSTLINE_NCCL", FL_BINARY_DIR "/tests/nccl_standin.so", 1), 0);
    assert_int_equal(setenv("FROSTLINE_NCCL_STANDIN", faults, 1), 0);
    s->sets = fields;
    s->device = "async-test";
    s->n_samples = N_SAMPLES;
    s->adjust = ask_for_nccl;
    s->at_operation = interrupt_opening;
    scenario_start(s);
}

static void expect_stopped(scenario *s)
{
    const when *w = s->context;
    expect_end(s, FL_ESTOPPED);
    assert_true(w->n_sent > 0);
    assert_int_equal(count_events(s->dir, "\"run.resumed\"", ""), 0);
    assert_int_equal(count_events(s->dir, "\"run.stopped\"", ""), 1);
}

/* Neither the operation nor the call of it ends. */
static void test_stop__ends_an_opening_at_the_start(void **state)
{
    (void)state;
    const char *const *two =
        JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2");
    scenario stalls = {.name = "stalls", .more = two}, hangs = {.name = "hangs", .more = two};
    scenario *const both[] = {&stalls, &hangs};
    for (int i = 0; i < 2; i++) {
        both[i]->context = shared_when(FL_FLIGHT_COMM_SPLIT, 0);
        start(both[i], i == 0 ? "stall=CommSplit:1" : "hang=CommSplit:1");
    }
    for (int i = 0; i < 2; i++) {
        expect_stopped(both[i]);
        assert_int_equal(count_events(both[i]->dir, "\"opening.ended\"", "in ncclCommSplit\""), 1);
        assert_non_null(strstr(both[i]->outcome->message, "after 0 of "));
        scenario_forget(both[i]);
    }
}

/* Training goes on beside the opening, and so the last checkpoint is written. */
static void test_stop__ends_an_opening_in_a_transition(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 4, .f = 0, .k = 1, .r = 2, .m = 1}};
    const char *const *two =
        JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count", "2");
    scenario stalls = {.name = "later", .more = two, .script = script, .n_script = 1};
    scenario hangs = stalls, *const both[] = {&stalls, &hangs};
    hangs.name = "later-hangs";
    for (int i = 0; i < 2; i++) {
        both[i]->context = shared_when(FL_FLIGHT_COMM_SPLIT, 2);
        start(both[i], i == 0 ? "stall=CommSplit:3" : "hang=CommSplit:3");
    }
    for (int i = 0; i < 2; i++) {
        expect_stopped(both[i]);
        assert_int_equal(count_events(both[i]->dir, "\"checkpoint.written\"", ""), 1);
        scenario_forget(both[i]);
    }
}

/* From here on communicators do not open, also in processes that start later. */
static void break_library(void)
{
    const when *w = scenario_here()->context;
    int fd = open(w->file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) {
        abort();
    }
    close(fd);
}

static void break_library_and_die(fl_worker_state *w)
{
    break_library();
    kill_this_worker(w);
}

static void start_to_break(scenario *s, const char *name)
{
    char faults[384];
    when *w = shared_when(FL_FLIGHT_NONE, 1);
    snprintf(w->file, sizeof w->file, "%s/%s.broken", root, name);
    snprintf(faults, sizeof faults, "while=%s,stall=CommShrink:1,stall=CommInitRankConfig:1",
             w->file);
    s->name = name;
    s->context = w;
    start(s, faults);
}

/* The others open the communicators of the next plan while nothing trains, in one way, and then, as
 * that stands still, in another. */
static void test_stop__ends_an_opening_after_a_loss(void **state)
{
    (void)state;
    scenario s = {.more = JOB_SETS("pipe.k", "1", "autodp.r", "3", "pipe.m", "1", "devices.count",
                                   "3", "fault.on_loss", "continue", "fault.detect", "10s"),
                  .at = {{.point = "step", .who = 1, .step = 3, .act = break_library_and_die}}};
    start_to_break(&s, "loss");
    expect_stopped(&s);
    assert_int_equal(count_events(s.dir, "\"opening.ended\"", ""), 1); /* maybe between two calls */
    scenario_forget(&s);
}

/* The only worker with a layer is lost, and all processes begin anew. */
static void test_stop__ends_an_opening_of_a_run_that_has_gone_back(void **state)
{
    (void)state;
    scenario s = {.more = JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count",
                                   "2", "fault.on_loss", "continue", "fault.detect", "10s",
                                   "fault.restarts", "1"),
                  .at = {{.point = "step", .who = 1, .step = 3, .act = break_library_and_die}}};
    start_to_break(&s, "back");
    expect_end(&s, FL_ESTOPPED);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", ""), 1);
    assert_int_equal(count_events(s.dir, "\"opening.ended\"", "in ncclCommInit"), 1);
    scenario_forget(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stop__ends_an_opening_at_the_start),
        cmocka_unit_test(test_stop__ends_an_opening_in_a_transition),
        cmocka_unit_test(test_stop__ends_an_opening_after_a_loss),
        cmocka_unit_test(test_stop__ends_an_opening_of_a_run_that_has_gone_back),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
