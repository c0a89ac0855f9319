/* At each point of a transition, a worker dies, stops or refuses (one that trains, or one that
 * waits for its first stage), the user stops the run, or the controller dies.
 *
 * Required: a refusal leaves the old generation bitwise unchanged, and the next transition finds
 * nothing left behind; the run reports the death of a worker that is not needed, or not yet, and
 * makes the change without it; any other death ends the run with the worker's name, long before any
 * deadline between workers (which is longer than this test's own); no process outlives its
 * controller; and every reported step has the loss that one worker computes, whatever the plan. */
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
    EPOCHS = 4,
    STEPS = EPOCHS * 21,
    WORKERS = 4,
    FIRST = 8, /* the step at which generation 2 begins */
    AT_ONCE = 4,
    REFUSALS = 4, /* attempts, of which the last one succeeds */
};

static const double TOLERANCE = 1e-5;

static double *one; /* [STEPS] losses of one worker */

/* Between the test and the workers of a run. */
typedef struct shared {
    _Atomic int n_refusals;
    _Atomic int64_t left_behind; /* bytes of the device that a refusal did not give back */
    _Atomic int64_t n_migrations;
    _Atomic int64_t late; /* allocations between the vote and the switch */
} shared;

/* A run of four workers that begins with two stages and changes its plan. */
typedef struct story {
    char name[48];
    int who; /* the worker to which it happens */
    const char *point, *how;
    fl_script_entry script[REFUSALS];
    shared *shared;
    scenario run;
} story;

/* ---- in the workers ---- */

static const story *current_story(void)
{
    return scenario_here()->context;
}

/* The n-th attempt (from 0) at a transition in this run. */
static int attempt_of(const fl_worker_state *w)
{
    const fl_generation *m = w->next != NULL ? w->next : w->now;
    return (int)m->plan.generation - 2;
}

static bool is_last_attempt(const fl_worker_state *w)
{
    return attempt_of(w) == scenario_here()->n_script - 1;
}

/* What the last refusal did not give back. */
static void compare_memory(const fl_worker_state *w)
{
    static size_t used;
    static uint32_t generation;
    if (used != 0 && generation == w->now->plan.generation && w->device->used_bytes != used) {
        atomic_store(&current_story()->shared->left_behind,
                     (int64_t)w->device->used_bytes - (int64_t)used);
    }
    used = w->device->used_bytes;
    generation = w->now->plan.generation;
    atomic_fetch_add(&current_story()->shared->n_refusals, !is_last_attempt(w));
}

/* The device's budget leaves a part of what the next plan alone needs: memory beside the running
 * one is not asked for. Refusals get ever later in the opening, until one comes too late to matter.
 */
static void refuse_for_memory(fl_worker_state *w)
{
    static size_t budget;
    budget = budget == 0 ? w->device->budget_bytes : budget;
    compare_memory(w);
    w->device->budget_bytes = is_last_attempt(w) ? budget : (size_t)attempt_of(w) * 4 * 1024;
}

/* Its connections fail when state moves, too late for a refusal. */
static void lose_connections(fl_worker_state *w)
{
    fl_message_abort(w->messages, FL_EINTERNAL);
}

/* After the vote nothing may fail that could have been had before. */
static void watch_allocations(const char *point, fl_worker_state *w)
{
    static uint64_t before;
    (void)w;
    if (strcmp(point, "migrate") == 0) {
        before = fl_alloc_count();
    } else if (strcmp(point, "migrated") == 0) {
        atomic_fetch_add(&current_story()->shared->late, (int64_t)(fl_alloc_count() - before));
        atomic_fetch_add(&current_story()->shared->n_migrations, 1);
    }
}

/* ---- a run ---- */

static const char *const *const common =
    JOB_SETS("autodp.r", "1", "pipe.m", "2", "train.batch", "10", "train.epochs", "4", "train.lr",
             "1e-4", "train.evaluate", "false", "fault.detect", "10s", "fault.deadline", "600s",
             "fault.restarts", "0");

static fl_script_entry to(int64_t step, int k)
{
    return (fl_script_entry){.step = step, .f = -1, .k = k, .r = 1, .m = 2};
}

/* Begin a run in which this happens to worker `who` at this point; t->script holds n entries. */
static void begin(story *t, const char *point, int who, void (*act)(fl_worker_state *w), int n)
{
    t->point = point;
    t->who = who;
    t->shared = shared_memory(sizeof *t->shared);
    t->run = (scenario){.name = t->name,
                        .sets = common,
                        .more = JOB_SETS("pipe.k", "2", "devices.count", "4"),
                        .script = t->script,
                        .n_script = n,
                        .n_samples = N_SAMPLES,
                        .dropout = 0.1f,
                        .at = {{.point = point, .who = who, .act = act}},
                        .at_point = watch_allocations,
                        .context = t};
    scenario_start(&t->run);
}

/* The run of two stages becomes one of three: workers 0 and 1 train, worker 2 joins, worker 3 has
 * no stage before and none after. */
static void begin_joining(story *t, const char *point, int who, void (*act)(fl_worker_state *w),
                          const char *what)
{
    *t = (story){.how = what, .script = {to(FIRST, 3)}};
    snprintf(t->name, sizeof t->name, "%.8s-%s-%d", what, point, who);
    begin(t, point, who, act, 1);
}

static void release(story *t)
{
    scenario_forget(&t->run);
    munmap(t->shared, sizeof *t->shared);
}

/* ---- what it left ---- */

/* Every step that was reported follows the one before and has the loss that one worker finds; and
 * exactly those from `first` on were made under a later generation. Returns how many there were. */
static int check_steps(const scenario *s, int first)
{
    json_t *lines = lines_with(s->dir, "steps.jsonl", "");
    const json_t *line;
    int n = 0;
    FOR_EACH(line, lines)
    {
        double loss = json_number_value(json_object_get(line, "loss"));
        assert_int_equal(number(line, "step"), n);
        if (!(fabs(loss - one[n]) <= TOLERANCE * fabs(one[n]))) {
            fail_msg("%s: step %d has loss %.9g, one worker %.9g", s->name, n, loss, one[n]);
        }
        assert_int_equal(number(line, "generation") > 1, n >= first);
        n++;
    }
    json_decref(lines);
    return n;
}

/* ---- the cases ---- */

static const char *const points[] = {"prepare", "vote", "migrate", "migrated", "switch"};
enum { N_POINTS = sizeof points / sizeof *points };

static int64_t check_lost(story *t)
{
    char name[32];
    int64_t took_us = expect_lost(&t->run, t->who, t->how);
    snprintf(name, sizeof name, "worker %d (", t->who);
    assert_int_equal(count_events(t->run.dir, "\"worker.lost\"", name), 1);
    assert_int_equal(count_events(t->run.dir, "\"run.failed\"", name), 1);
    assert_in_range(check_steps(&t->run, FIRST), 0, STEPS);
    return took_us;
}

static bool comes_before_the_vote(const story *t)
{
    return strcmp(t->point, "prepare") == 0 || strcmp(t->point, "vote") == 0;
}

/* Worker 3 has no stage under either plan; worker 2 is needed once all have voted. */
static bool can_be_spared(const story *t)
{
    return t->who == 3 || (t->who == 2 && comes_before_the_vote(t));
}

/* The run comes to its end. If the fault came before the vote, the change is made at its step
 * without the worker. */
static void check_spared(story *t)
{
    const char *dir = t->run.dir;
    bool over = !comes_before_the_vote(t);
    char name[32];
    snprintf(name, sizeof name, "worker %d (standby)", t->who);
    expect_end(&t->run, FL_OK);
    assert_true(atomic_load(&t->run.outcome->n_deeds) > 0);
    assert_int_equal(count_events(dir, "\"worker.lost\"", ""), 1);
    assert_int_equal(count_events(dir, "\"worker.lost\"", "\"goes_on\": true"), 1);
    assert_int_equal(count_events(dir, "\"worker.lost\"", name), 1);
    assert_int_equal(count_events(dir, "\"worker.lost\"", t->how), 1);
    assert_int_equal(count_events(dir, "\"transition.cancelled\"", "\"again\": false"), 0);
    assert_int_equal(count_events(dir, "\"transition.cancelled\"", "\"again\": true") > 0, !over);
    assert_int_equal(count_events(dir, "\"transition.done\"", ""), 1);
    assert_int_equal(check_steps(&t->run, FIRST), STEPS);
}

/* Would catch: a wait that only a deadline ends, a death that is blamed on a survivor, a survivor
 * that continues with only a part of the state, a run that ends because of a worker that it does
 * not need, a process that outlives its controller. */
static void check_every_worker_at_every_point(void (*act)(fl_worker_state *w), const char *how)
{
    static story all[N_POINTS * WORKERS];
    enum { N = N_POINTS * WORKERS };
    int n_spared = 0;
    int64_t longest_us = 0;
    for (int first = 0; first < N; first += AT_ONCE) {
        for (int i = first; i < N && i < first + AT_ONCE; i++) {
            begin_joining(&all[i], points[i / WORKERS], i % WORKERS, act, how);
        }
        for (int i = first; i < N && i < first + AT_ONCE; i++) {
            if (can_be_spared(&all[i])) {
                check_spared(&all[i]);
                n_spared++;
            } else {
                int64_t took_us = check_lost(&all[i]);
                longest_us = took_us > longest_us ? took_us : longest_us;
            }
            release(&all[i]);
        }
    }
    print_message("%d runs, %d of them went on; the longest of the others took %.2f s to end\n",
                  (int)N, n_spared, (double)longest_us * 1e-6);
}

static void test_faults__a_killed_worker_ends_the_run_that_needs_it(void **state)
{
    (void)state;
    check_every_worker_at_every_point(kill_this_worker, "was killed by signal 9");
}

static void test_faults__a_stopped_worker_ends_the_run_that_needs_it(void **state)
{
    (void)state;
    check_every_worker_at_every_point(stop_this_worker, "did not answer");
}

/* Would catch: a worker that continues the old generation when others have already switched. */
static void test_faults__a_failed_migration_ends_the_run(void **state)
{
    (void)state;
    for (int who = 0; who < 3; who++) { /* to and from worker 3 nothing moves */
        story t;
        /* "moving state to generation 2: ..."; or later, if its own part of it was done at once:
         * then the new generation has begun. */
        begin_joining(&t, "migrate", who, lose_connections, "aborted: internal defect");
        (void)check_lost(&t);
        assert_in_range(check_steps(&t.run, FIRST), FIRST, STEPS - 1);
        release(&t);
    }
}

/* Would catch: a stop request that reaches a worker which is no longer the leader, or no longer
 * stands by; a stop that leaves a transition unfinished. */
static void test_faults__the_user_may_stop_at_any_point(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * N_POINTS; i++) {
        story t = {.script = {to(FIRST, 3), to(FIRST + 3, 2)}};
        snprintf(t.name, sizeof t.name, "interrupt-%d", i);
        begin(&t, points[i / 2], i % 2 == 0 ? 0 : 2, interrupt_the_run, 2);
        expect_end(&t.run, FL_ESTOPPED);
        assert_in_range(check_steps(&t.run, FIRST), 1, STEPS - 1);
        release(&t);
    }
}

/* Would catch: workers that wait for a command after their controller has died. */
static void test_faults__nobody_outlives_the_controller(void **state)
{
    (void)state;
    for (int i = 0; i < N_POINTS; i++) {
        story t;
        begin_joining(&t, points[i], 2, kill_the_controller, "controller");
        expect_beheaded(&t.run);
        release(&t);
    }
}

/* Transitions of which worker `who` refuses all but the last. */
static void check_refusals(int who)
{
    char text[64];
    story t = {.who = who};
    for (int i = 0; i < REFUSALS; i++) {
        t.script[i] = to(FIRST + 2 * i, 3);
        t.script[i].f = i < REFUSALS - 1 ? 2 : 0; /* so that they would have moments to keep */
    }
    snprintf(t.name, sizeof t.name, "no memory-%d", who);
    begin(&t, "prepare", who, refuse_for_memory, REFUSALS);
    expect_end(&t.run, FL_OK);
    assert_int_equal(atomic_load(&t.shared->late), 0);
    assert_true(atomic_load(&t.shared->n_migrations) > 0);
    snprintf(text, sizeof text, "worker %d", who);
    assert_int_equal(check_steps(&t.run, FIRST + 2 * (REFUSALS - 1)), STEPS);
    assert_int_equal(atomic_load(&t.shared->n_refusals), REFUSALS - 1);
    /* Another worker that lost its peer may be heard first, and is then the one that is named. */
    assert_int_equal(count_events(t.run.dir, "\"transition.cancelled\"", ""), REFUSALS - 1);
    assert_true(count_events(t.run.dir, "\"transition.cancelled\"", text) > 0);
    assert_int_equal(count_events(t.run.dir, "\"transition.done\"", ""), 1);
    assert_int_equal(atomic_load(&t.shared->left_behind), 0);
    release(&t);
}

/* Would catch: a refusal that the others learn of only after a deadline, a worker that does not
 * close what it had opened, a generation number that is used twice, and a step at which all workers
 * wait for a command that they already received. Allocations that fail: test_refused_allocations.
 */
static void test_faults__a_refusal_leaves_the_old_generation(void **state)
{
    (void)state;
    for (int who = 1; who <= 2; who++) {
        check_refusals(who);
    }
}

/* ---- */

static int set_up(void **state)
{
    if (make_root(state) != 0) {
        return -1;
    }
    one = losses_of_one(common, N_SAMPLES, STEPS);
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
        cmocka_unit_test(test_faults__a_killed_worker_ends_the_run_that_needs_it),
        cmocka_unit_test(test_faults__a_stopped_worker_ends_the_run_that_needs_it),
        cmocka_unit_test(test_faults__a_failed_migration_ends_the_run),
        cmocka_unit_test(test_faults__the_user_may_stop_at_any_point),
        cmocka_unit_test(test_faults__nobody_outlives_the_controller),
        cmocka_unit_test(test_faults__a_refusal_leaves_the_old_generation),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
