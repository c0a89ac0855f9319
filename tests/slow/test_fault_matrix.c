/* The fault matrix: in each phase of a run a worker is killed, stopped, cut off or hangs, and the
 * others go on. Would catch: a wait that nothing ends, a step that is applied on some workers only,
 * state that is mixed from two plans, a sample that is lost or used twice, a loss in the middle of
 * a transition that leaves two plans, a slow worker that is taken for a lost one.
 *
 * Every run must end well, with the losses that one worker computes. */
#include "device/system/clock.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    WORKERS = 4,
    N_SAMPLES = 80,
    STEPS = 32,
    FIRST = 12,     /* of the second plan */
    FAULT_STEP = 5, /* in a step, the fault comes in this one */
    AT_ONCE = 4,
    HIGHEST_FD = 256,
};

static const double TOLERANCE = 1e-5;
static double *one; /* [STEPS] losses of one worker */

/* ---- faults, in a worker ---- */

static void cut_sockets(void)
{
    for (int fd = 0; fd < HIGHEST_FD; fd++) {
        struct stat info;
        if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) {
            shutdown(fd, SHUT_RDWR);
        }
    }
}

static void sleep_for_ever(void)
{
    for (;;) {
        pause();
    }
}

typedef enum fault { KILL, STOP, CUT, HANG, FAULTS } fault;
static const char *const fault_names[FAULTS] = {"kill", "stop", "cut", "hang"};

static void commit_fault(fault what)
{
    switch (what) {
    case KILL:
        raise(SIGKILL);
        break;
    case STOP:
        raise(SIGSTOP);
        break;
    case CUT:
        cut_sockets();
        break;
    case HANG:
        sleep_for_ever();
        break;
    case FAULTS:
        break;
    }
}

/* ---- phases ---- */

/* At a test point, or as an operation begins. */
typedef struct phase {
    const char *name, *point; /* point NULL: at an operation */
    fl_flight_kind kind;
} phase;

static const phase phases[] = {
    {"step", "step", FL_FLIGHT_NONE},
    {"forward", NULL, FL_FLIGHT_FORWARD},
    {"backward", NULL, FL_FLIGHT_BACKWARD},
    {"send", NULL, FL_FLIGHT_SEND_GRAD},
    {"receive", NULL, FL_FLIGHT_RECEIVE_GRAD},
    {"reduce", NULL, FL_FLIGHT_REDUCE_WAIT},
    {"sum", NULL, FL_FLIGHT_SUM},
    {"optimizer", NULL, FL_FLIGHT_OPTIMIZER},
    {"evaluation", "evaluate", FL_FLIGHT_NONE},
    {"checkpoint", NULL, FL_FLIGHT_CHECKPOINT},
    {"prepare", "prepare", FL_FLIGHT_NONE},
    {"vote", "vote", FL_FLIGHT_NONE},
    {"migrate", "migrate", FL_FLIGHT_NONE},
    {"exchanged", "exchanged", FL_FLIGHT_NONE},
    {"migrated", "migrated", FL_FLIGHT_NONE},
    {"switch", "switch", FL_FLIGHT_NONE},
};
enum { PHASES = sizeof phases / sizeof *phases };

typedef struct story {
    char name[48];
    const phase *phase;
    fault fault;
    int who;
    fl_script_entry script;
    scenario run;
} story;

/* Once in a run: a worker that is cut off goes on with what it was doing. */
static void meet_fate(int rank)
{
    const scenario *s = scenario_here();
    const story *t = s->context;
    if (rank == t->who && atomic_exchange(&s->outcome->n_deeds, 1) == 0) {
        atomic_store(&s->outcome->deed_us, fl_now_us());
        commit_fault(t->fault);
    }
}

static void at_point(const char *point, fl_worker_state *w)
{
    const story *t = scenario_here()->context;
    bool late = strcmp(point, "step") != 0 || w->step == FAULT_STEP;
    if (t->phase->point != NULL && strcmp(point, t->phase->point) == 0 && late) {
        meet_fate(w->rank);
    }
}

static void at_operation(fl_flight_kind kind, int rank, int64_t step)
{
    const story *t = scenario_here()->context;
    if (t->phase->point == NULL && t->phase->kind == kind && step >= FAULT_STEP) {
        meet_fate(rank);
    }
}

/* ---- runs ---- */

static const char *const *const training = JOB_SETS("train.batch", "10", "train.epochs", "4",
                                                    "train.lr", "1e-4", "autodp.bucket", "16KiB");

/* Two stages of two replicas, then three replicas of one stage: worker 3 has no stage then. */
static void begin(story *t, int at, fault what, int who)
{
    *t = (story){.phase = &phases[at], .fault = what, .who = who};
    t->script = (fl_script_entry){.step = FIRST, .f = -1, .k = 1, .r = 3, .m = 1};
    snprintf(t->name, sizeof t->name, "%s-%s-%d", fault_names[what], phases[at].name, who);
    t->run =
        (scenario){.name = t->name,
                   .sets = training,
                   .more = JOB_SETS("pipe.k", "2", "autodp.r", "2", "pipe.m", "2", "devices.count",
                                    "4", "fault.detect", "1s", "fault.deadline", "2s",
                                    "fault.on_loss", "continue", "checkpoint.every", "4 steps"),
                   .script = &t->script,
                   .n_script = 1,
                   .n_samples = N_SAMPLES,
                   .dropout = 0.1f,
                   .at_point = at_point,
                   .at_operation = at_operation,
                   .context = t};
    scenario_start(&t->run);
}

static void check_steps(const scenario *s)
{
    double *losses = losses_of(s, STEPS);
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(losses[i] - one[i]) <= TOLERANCE * fabs(one[i]))) {
            fail_msg("%s: step %d has loss %.9g, one worker %.9g", s->name, i, losses[i], one[i]);
        }
    }
    free(losses);
}

/* The time from the loss until the others went on, in ms, as the run reports it. */
static double end(story *t)
{
    double ms = 0.0;
    expect_end(&t->run, FL_OK);
    if (atomic_load(&t->run.outcome->n_deeds) == 0) {
        fail_msg("%s: nothing was done to the run", t->name);
    }
    check_steps(&t->run);
    json_t *all = lines_with(t->run.dir, "events.jsonl", "\"run.recovered\"");
    assert_in_range(json_array_size(all), 1, 2);
    const json_t *e;
    FOR_EACH(e, all)
    {
        ms = fmax(ms, json_number_value(json_object_get(e, "collect_ms")) +
                          json_number_value(json_object_get(e, "move_ms")));
    }
    json_decref(all);
    scenario_forget(&t->run);
    return ms;
}

static void check_every_phase(fault what)
{
    static story all[PHASES];
    double longest_ms = 0.0;
    for (int first = 0; first < PHASES; first += AT_ONCE) {
        for (int i = first; i < PHASES && i < first + AT_ONCE; i++) {
            begin(&all[i], i, what, i % 2 == 0 ? 0 : 1); /* of each stage one */
        }
        for (int i = first; i < PHASES && i < first + AT_ONCE; i++) {
            longest_ms = fmax(longest_ms, end(&all[i]));
        }
    }
    print_message("%d runs; the others went on after at most %.0f ms\n", (int)PHASES, longest_ms);
}

static void test_fault_matrix__survives_kills(void **state)
{
    (void)state;
    check_every_phase(KILL);
}

static void test_fault_matrix__survives_stops(void **state)
{
    (void)state;
    check_every_phase(STOP);
}

static void test_fault_matrix__survives_cuts(void **state)
{
    (void)state;
    check_every_phase(CUT);
}

static void test_fault_matrix__survives_hangs(void **state)
{
    (void)state;
    check_every_phase(HANG);
}

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(training, N_SAMPLES, STEPS);
    return one[STEPS - 1] < one[0] ? 0 : -1;
}

static int tear_down(void **state)
{
    free(one);
    return remove_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fault_matrix__survives_kills),
        cmocka_unit_test(test_fault_matrix__survives_stops),
        cmocka_unit_test(test_fault_matrix__survives_cuts),
        cmocka_unit_test(test_fault_matrix__survives_hangs),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
