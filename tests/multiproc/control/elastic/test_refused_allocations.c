/* Allocations of a worker in a transition fail, one at a time: the first one that preparing the
 * next generation makes, then the second, and so on until none is left.
 *
 * Required of each: the worker refuses, and the old generation continues; or the worker can do
 * without this memory, and the next generation begins (without shared memory, messages go through
 * sockets). In both cases every step has the loss of one worker that freezes at the same step, a
 * refusal gives back all memory of the device, and the next change of the plan is made.
 *
 * FL_TEST_MATRIX=1: every allocation of every worker, instead of every third one of one worker.
 * FL_TEST_HOSTS=1: generations after the first one are opened as between hosts, over TLS. */
#include "autodp/tls/tls.h"
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
    WORKERS = 4,
    STEPS = 7 * 21,
    FIRST = 8, /* the step of the first attempt */
    GAP = 2,   /* steps from one attempt to the next */
    ATTEMPTS = 64,
    LAST = FIRST + GAP * ATTEMPTS, /* the step of the change that nothing disturbs */
    SHORT_STRIDE = 3,
    SHORT_WHO = 1, /* the worker whose allocations fail */
};

static const double TOLERANCE = 1e-5;

/* Between the test and the workers of a run. */
typedef struct shared {
    _Atomic int first_done;      /* attempts from this one on had no allocation left to fail */
    _Atomic int64_t left_behind; /* bytes of the device that refusals did not give back */
    _Atomic int64_t late;        /* allocations between the vote and the switch */
} shared;

/* A change of the plan in which allocations of one worker fail. */
typedef struct change {
    const char *name;
    int k, r, next_k, next_r;
} change;

/* The attempts of one run. */
typedef struct attempts {
    const change *change;
    int who;
    int first, stride; /* the first attempt fails allocation `first`, the next one first + stride */
    char name[64];
    shared *shared;
} attempts;

/* ---- in the worker ---- */

static uint64_t armed_at; /* the number of the allocation that is to fail; 0: none */
static int armed_attempt;

static const attempts *current(void)
{
    return scenario_here()->context;
}

static void compare_memory(const fl_worker_state *w)
{
    static size_t used;
    static uint32_t generation;
    if (used != 0 && generation == w->now->plan.generation && w->device->used_bytes != used) {
        atomic_store(&current()->shared->left_behind,
                     (int64_t)w->device->used_bytes - (int64_t)used);
    }
    used = w->device->used_bytes;
    generation = w->now->plan.generation;
}

/* An attempt that is repeated is not disturbed again. */
static void fail_allocation(fl_worker_state *w)
{
    static int64_t last_step;
    const attempts *a = current();
    compare_memory(w);
    if (w->plan_due == last_step || w->plan_due >= LAST || w->now->plan.generation > 1) {
        fl_alloc_fail_at(0);
        return;
    }
    last_step = w->plan_due;
    armed_attempt = (int)(w->plan_due - FIRST) / GAP;
    int n = a->first + armed_attempt * a->stride;
    armed_at = fl_alloc_count() + (uint64_t)n;
    fl_alloc_fail_at((uint64_t)n);
}

/* Generations after the first one are opened as between hosts of two workers each. */
static void be_on_hosts(fl_worker_state *w)
{
    static fl_host host;
    static fl_worker_context context;
    context = *w->c;
    snprintf(host.address, sizeof host.address, "127.0.0.%d", 1 + w->rank / 2);
    context.host = &host;
    w->c = &context;
    must(fl_tls_transport("the key of the tests", &w->tls));
    w->transport = &w->tls;
}

/* At the vote, the worker has made all allocations of the attempt. */
static void watch_allocations(const char *point, fl_worker_state *w)
{
    static uint64_t before;
    shared *s = current()->shared;
    if (strcmp(point, "begin") == 0 && getenv("FL_TEST_HOSTS") != NULL) {
        be_on_hosts(w);
    } else if (strcmp(point, "migrate") == 0) {
        before = fl_alloc_count();
        if (armed_at > before && w->rank == current()->who) {
            fl_alloc_fail_at(0);
            atomic_store(&s->first_done, armed_attempt);
        }
        armed_at = 0;
    } else if (strcmp(point, "migrated") == 0) {
        atomic_fetch_add(&s->late, (int64_t)(fl_alloc_count() - before));
    }
}

/* ---- a run ---- */

static const char *const *const common = JOB_SETS(
    "train.batch", "10", "train.epochs", "7", "train.lr", "1e-4", "train.evaluate", "false",
    "pipe.m", "2", "fault.detect", "10s", "fault.deadline", "600s", "fault.restarts", "0");

/* Losses of one worker that freezes two blocks at step `step` and thaws them at LAST. */
static const double *losses_frozen_at(int step)
{
    static double *known[STEPS + 1];
    if (known[step] == NULL) {
        char name[32];
        snprintf(name, sizeof name, "one-%d", step);
        fl_script_entry script[] = {{.step = step, .f = 2, .k = 1, .r = 1, .m = 2},
                                    {.step = LAST, .f = 0, .k = 1, .r = 1, .m = 2}};
        scenario s = {.name = name,
                      .sets = common,
                      .more = JOB_SETS("pipe.k", "1", "autodp.r", "1", "devices.count", "1"),
                      .script = step < LAST ? script : NULL,
                      .n_script = step < LAST ? 2 : 0,
                      .n_samples = N_SAMPLES,
                      .dropout = 0.1f};
        scenario_run(&s);
        known[step] = losses_of(&s, STEPS);
    }
    return known[step];
}

/* The step at which the generation after the first one began. */
static int check_steps(const attempts *a, const char *dir)
{
    json_t *lines = lines_with(dir, "steps.jsonl", "");
    const json_t *line;
    int n = 0, began = STEPS;
    FOR_EACH(line, lines)
    {
        if (number(line, "generation") > 1 && n < began) {
            began = n;
        }
        n++;
    }
    int step = 0;
    const double *one = losses_frozen_at(began);
    FOR_EACH(line, lines)
    {
        double loss = json_number_value(json_object_get(line, "loss"));
        if (!(fabs(loss - one[step]) <= TOLERANCE * fabs(one[step]))) {
            fail_msg("%s: step %d has loss %.9g, one worker %.9g; generation %d, the second one "
                     "began at %d",
                     a->name, step, loss, one[step], (int)number(line, "generation"), began);
        }
        step++;
    }
    json_decref(lines);
    assert_int_equal(n, STEPS);
    return began;
}

/* The attempts freeze blocks, so that they would have moments to keep. */
static void fill_script(const change *c, fl_script_entry script[ATTEMPTS + 1])
{
    for (int i = 0; i <= ATTEMPTS; i++) {
        script[i] = (fl_script_entry){.step = FIRST + GAP * i,
                                      .f = i < ATTEMPTS ? 2 : 0,
                                      .k = c->next_k,
                                      .r = c->next_r,
                                      .m = 2};
    }
}

/* What a run left whose second generation began at the step of attempt `done`. */
static void check_run(const attempts *a, const char *dir, int done)
{
    int last = a->first + (done - (done == ATTEMPTS)) * a->stride;
    bool over = atomic_load(&a->shared->first_done) == done;
    print_message("%s: allocation %d %s\n", a->name, last,
                  over               ? "was not made"
                  : done == ATTEMPTS ? "was refused, as those before"
                                     : "was not needed");
    assert_in_range(done, 0, ATTEMPTS);
    assert_int_equal(atomic_load(&a->shared->late), 0);
    assert_int_equal(atomic_load(&a->shared->left_behind), 0);
    assert_int_equal(count_events(dir, "\"transition.cancelled\"", "\"again\": false"), done);
}

/* A run whose attempts begin with allocation a->first. Returns the number of the first allocation
 * that was not tried, 0: there is none. */
static int try_allocations(attempts *a)
{
    char k[8], r[8];
    fl_script_entry script[ATTEMPTS + 1];
    fill_script(a->change, script);
    snprintf(k, sizeof k, "%d", a->change->k);
    snprintf(r, sizeof r, "%d", a->change->r);
    snprintf(a->name, sizeof a->name, "%s-%d-%d", a->change->name, a->who, a->first);
    a->shared = shared_memory(sizeof *a->shared);
    atomic_store(&a->shared->first_done, ATTEMPTS + 1);
    scenario s = {.name = a->name,
                  .sets = common,
                  .more = JOB_SETS("pipe.k", k, "autodp.r", r, "devices.count", "4"),
                  .script = script,
                  .n_script = ATTEMPTS + 1,
                  .n_samples = N_SAMPLES,
                  .dropout = 0.1f,
                  .at = {{.point = "prepare", .who = a->who, .act = fail_allocation}},
                  .at_point = watch_allocations,
                  .context = a};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    int done = (check_steps(a, s.dir) - FIRST) / GAP;
    check_run(a, s.dir, done);
    bool over = atomic_load(&a->shared->first_done) == done;
    scenario_forget(&s);
    munmap(a->shared, sizeof *a->shared);
    return over ? 0 : a->first + (done + (done < ATTEMPTS)) * a->stride;
}

static void sweep_worker(const change *c, int who, int stride)
{
    for (int n = 1; n > 0;) {
        attempts a = {.change = c, .who = who, .first = n, .stride = stride};
        n = try_allocations(&a);
    }
}

static void sweep(const change *c)
{
    if (getenv("FL_TEST_MATRIX") == NULL) {
        sweep_worker(c, SHORT_WHO, SHORT_STRIDE);
        return;
    }
    for (int who = 0; who < WORKERS; who++) {
        sweep_worker(c, who, 1);
    }
}

/* ---- */

/* Would catch: a worker that continues the old generation with a part of the new one's state, one
 * that begins the new generation without all of it, a wait for a worker that has refused, and
 * memory that a refusal keeps. */
static void test_refused__stages_become_more(void **state)
{
    (void)state;
    sweep(&(change){"stages", 2, 1, 3, 1});
}

static void test_refused__stages_become_replicas(void **state)
{
    (void)state;
    sweep(&(change){"replicas", 4, 1, 2, 2});
}

static void test_refused__replicas_become_stages(void **state)
{
    (void)state;
    sweep(&(change){"fewer", 2, 2, 3, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused__stages_become_more),
        cmocka_unit_test(test_refused__stages_become_replicas),
        cmocka_unit_test(test_refused__replicas_become_stages),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
