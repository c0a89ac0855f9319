/* A worker is killed, and an allocation of another one fails while the run goes over to the plan
 * without the lost one: the first allocation that this makes, then the second, and so on until none
 * is left.
 *
 * Required of each: the run goes on, with or without the worker whose allocation fails, or it ends
 * with the reason where nothing else is left; and every step that it reports has the loss that one
 * worker finds. FL_TEST_MATRIX=1: every allocation, instead of a few. */
#include "device/system/alloc.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum {
    N_SAMPLES = 203,
    STEPS = 21,
    VICTIM = 3, /* the last stage of the second replica */
    LOST_AT = 8,
    AT_ONCE = 4,
    SHORT_STRIDE = 61,
};

static const double TOLERANCE = 1e-5;

static const char *const *const common =
    JOB_SETS("train.batch", "10", "train.epochs", "1", "train.lr", "1e-4", "train.evaluate",
             "false", "pipe.m", "2", "fault.on_loss", "continue", "fault.detect", "10s",
             "fault.deadline", "600s", "fault.restarts", "0");

static double *one; /* [STEPS] losses of one worker */

/* A run in which allocation `n` of worker `who` fails. */
typedef struct attempt {
    int who, n;
    char name[32];
    atomic_bool *was_made; /* the recovery made this allocation */
    scenario run;
} attempt;

/* ---- in the worker ---- */

static uint64_t armed_at;

static void fail_allocation(fl_worker_state *w)
{
    const attempt *a = scenario_here()->context;
    (void)w;
    if (armed_at == 0) {
        armed_at = fl_alloc_count() + (uint64_t)a->n;
        fl_alloc_fail_at((uint64_t)a->n);
    }
}

/* Before state moves, the worker has made all allocations of the recovery. */
static void stop_failing(fl_worker_state *w)
{
    const attempt *a = scenario_here()->context;
    (void)w;
    if (fl_alloc_count() < armed_at) {
        fl_alloc_fail_at(0);
        atomic_store(a->was_made, false);
    }
}

static void act_at_point(const char *point, fl_worker_state *w)
{
    const attempt *a = scenario_here()->context;
    if (w->rank == a->who && strcmp(point, "prepare") == 0) {
        fail_allocation(w);
    } else if (w->rank == a->who && strcmp(point, "migrate") == 0) {
        stop_failing(w);
    }
}

/* ---- a run ---- */

static void begin(attempt *a, int who, int n)
{
    *a = (attempt){.who = who, .n = n, .was_made = shared_memory(sizeof *a->was_made)};
    atomic_store(a->was_made, true);
    snprintf(a->name, sizeof a->name, "lost-%d-%d", who, n);
    a->run = (scenario){
        .name = a->name,
        .sets = common,
        .more = JOB_SETS("pipe.k", "2", "autodp.r", "2", "devices.count", "4"),
        .n_samples = N_SAMPLES,
        .dropout = 0.1f,
        .at = {{.point = "step", .who = VICTIM, .step = LOST_AT, .act = kill_this_worker}},
        .at_point = act_at_point,
        .context = a};
    scenario_start(&a->run);
}

static int check_steps(const attempt *a)
{
    json_t *lines = lines_with(a->run.dir, "steps.jsonl", "");
    const json_t *line;
    int n = 0;
    FOR_EACH(line, lines)
    {
        double loss = json_number_value(json_object_get(line, "loss"));
        assert_int_equal(number(line, "step"), n);
        if (!(fabs(loss - one[n]) <= TOLERANCE * fabs(one[n]))) {
            fail_msg("%s: step %d has loss %.9g, one worker %.9g", a->name, n, loss, one[n]);
        }
        n++;
    }
    json_decref(lines);
    return n;
}

/* Whether the recovery made the allocation. */
static bool finish(attempt *a)
{
    scenario_wait(&a->run);
    int n = check_steps(a);
    print_message("%s: %d steps, %s %.150s%s\n", a->name, n, fl_status_text(a->run.outcome->status),
                  a->run.outcome->message, atomic_load(a->was_made) ? "" : " (not made)");
    if (a->run.outcome->status == FL_OK) {
        assert_int_equal(n, STEPS);
    } else {
        expect_end(&a->run, FL_EFAILED);
        assert_non_null(strstr(a->run.outcome->message, "worker"));
    }
    bool made = atomic_load(a->was_made);
    munmap(a->was_made, sizeof *a->was_made);
    scenario_forget(&a->run);
    return made;
}

static void sweep(int who)
{
    int stride = getenv("FL_TEST_MATRIX") != NULL ? 1 : SHORT_STRIDE;
    bool made = true;
    for (int n = 1; made; n += AT_ONCE * stride) {
        attempt all[AT_ONCE];
        for (int i = 0; i < AT_ONCE; i++) {
            begin(&all[i], who, n + i * stride);
        }
        for (int i = 0; i < AT_ONCE; i++) {
            made = finish(&all[i]) && made;
        }
    }
}

/* Would catch: a survivor that goes on with a part of the state, one that waits for a worker that
 * has ended, and a run that ends where it can go on. */
static void test_refused_recovery__goes_on_or_says_why(void **state)
{
    (void)state;
    for (int who = 0; who < VICTIM; who++) {
        sweep(who);
    }
}

/* ---- */

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(common, N_SAMPLES, STEPS);
    return 0;
}

static int tear_down(void **state)
{
    free(one);
    return remove_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused_recovery__goes_on_or_says_why),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
