/* Blocks that froze and thaw again continue with the moments that they had, wherever they thaw: on
 * the worker that kept the moments, on other workers, or on several. The test records the moments
 * when a block freezes and compares them bit by bit after it has thawed: two runs that both lose
 * the moments would not differ from each other. Where the worker that kept them was lost, they thaw
 * with moments of zero, and the optimizer counts their steps from there. */
#include "pipe/cost/plan.h"
#include "support/lines.h"
#include "support/runs/scenario.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 120, BLOCKS = 4, WORKERS = 3, LAYERS_MAX = 16, FLOATS_MAX = 1 << 14, FROZEN = 3 };

/* Between the workers of a run. */
typedef struct shared {
    int64_t n[LAYERS_MAX]; /* floats taken down; 0: the layer did not freeze */
    float moments[LAYERS_MAX][FLOATS_MAX];
    _Atomic int n_same, n_different; /* layers that thawed */
    bool is_apart;                   /* parked moments have host memory of their own */
    _Atomic int64_t parked_bytes;    /* of all workers, while they are frozen */
    _Atomic int64_t left_bytes;      /* ... and after they thawed */
} shared;

static shared *across;

static int64_t floats_of(const fl_params *p, int layer)
{
    return fl_params_layer_count(p, layer) * p->n_moments;
}

/* Before what is to freeze has left the running generation. */
static void take_down(const fl_worker_state *w)
{
    const fl_params *p = fl_generation_params(w->now);
    int frozen = fl_frozen_layers(w->c->model, w->next->plan.F);
    for (int layer = p == NULL ? frozen : p->first_trainable; layer < frozen; layer++) {
        int64_t n = layer < p->last ? floats_of(p, layer) : 0;
        if (n > 0 && n <= FLOATS_MAX && w->now->place.replica == 0) {
            read_device(p, p->moments[layer - p->first], n, across->moments[layer]);
            across->n[layer] = n;
        }
    }
}

static void compare(const fl_worker_state *w)
{
    static float now[FLOATS_MAX];
    const fl_params *p = fl_generation_params(w->now);
    for (int layer = p == NULL ? 0 : p->first_trainable; p != NULL && layer < p->last; layer++) {
        int64_t n = across->n[layer];
        if (n > 0) {
            read_device(p, p->moments[layer - p->first], n, now);
            bool same = n == floats_of(p, layer) &&
                        memcmp(across->moments[layer], now, (size_t)n * sizeof *now) == 0;
            atomic_fetch_add(same ? &across->n_same : &across->n_different, 1);
        }
    }
}

/* The same device, with memory that the host is not to read. */
static void set_apart(fl_worker_state *w)
{
    static fl_device_ops apart;
    apart = *w->device->ops;
    apart.host_memory = false;
    w->device->ops = &apart;
}

static void compare_moments(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "begin") == 0 && across->is_apart) {
        set_apart(w);
    } else if (strcmp(point, "vote") == 0 && w->next->plan.generation == 2) {
        take_down(w);
    } else if (strcmp(point, "switch") == 0 && w->now->plan.generation == 3) {
        atomic_fetch_add(&across->parked_bytes, fl_parked_bytes(&w->parked));
    } else if (strcmp(point, "switch") == 0 && w->now->plan.generation == 4) {
        atomic_fetch_add(&across->left_bytes, fl_parked_bytes(&w->parked));
        compare(w);
    }
}

/* Freezes FROZEN blocks, trains on under another plan, thaws under a third one. */
static void check_moments(const char *name, bool is_apart, fl_script_entry other,
                          fl_script_entry thawed)
{
    const fl_script_entry script[] = {
        {.step = 8, .f = FROZEN, .k = 2, .r = 1, .m = 2}, other, thawed};
    scenario run = {.name = name,
                    .sets = JOB_SETS("pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "devices.count",
                                     "3", "train.batch", "10", "train.epochs", "3",
                                     "train.evaluate", "false"),
                    .script = script,
                    .n_script = 3,
                    .n_samples = SAMPLES,
                    .blocks = BLOCKS,
                    .dropout = 0.1f,
                    .at_point = compare_moments};
    memset(across, 0, sizeof *across);
    across->is_apart = is_apart;
    scenario_run(&run);
    int n_frozen = 0;
    int64_t n_floats = 0;
    for (int layer = 0; layer < LAYERS_MAX; layer++) {
        bool moved = false;
        for (int64_t i = 0; i < across->n[layer]; i++) {
            moved = moved || across->moments[layer][i] != 0.0f;
        }
        assert_true(across->n[layer] == 0 || moved); /* zeros would be easy to restore */
        n_frozen += across->n[layer] > 0;
        n_floats += across->n[layer];
    }
    /* The workers know the host memory that parked moments take, each layer's once. */
    assert_true(across->parked_bytes == n_floats * (int64_t)sizeof(float));
    assert_true(across->left_bytes == 0);
    assert_true(n_frozen >= 2 * FROZEN);
    assert_int_equal(across->n_different, 0);
    assert_int_equal(across->n_same, n_frozen * (int)thawed.r);
}

static void test_thaw__brings_the_moments_back(void **state)
{
    (void)state;
    const fl_script_entry same = {.step = 14, .f = FROZEN, .k = 2, .r = 1, .m = 4};
    const fl_script_entry alone = {.step = 14, .f = FROZEN, .k = 1, .r = 1, .m = 2};
    check_moments("on the same workers", false, same,
                  (fl_script_entry){.step = 20, .f = 0, .k = 2, .r = 1, .m = 2});
    check_moments("on three at once", false, alone,
                  (fl_script_entry){.step = 20, .f = 0, .k = 1, .r = 3, .m = 2});
    check_moments("in three stages", false, alone,
                  (fl_script_entry){.step = 20, .f = 0, .k = 3, .r = 1, .m = 2});
    /* Where they are copied to host memory and back. */
    check_moments("the same, apart", true, same,
                  (fl_script_entry){.step = 20, .f = 0, .k = 2, .r = 1, .m = 2});
    check_moments("three, apart", true, alone,
                  (fl_script_entry){.step = 20, .f = 0, .k = 1, .r = 3, .m = 2});
}

/* ---- without the worker that kept them ---- */

enum { FREEZE_AT = 5, KILL_AT = 12, THAW_AT = 22, EPOCHS = 3 };

static void kill_the_first(fl_worker_state *w)
{
    if (atomic_load(&scenario_here()->outcome->n_deeds) == 1) {
        kill_this_worker(w);
    }
}

/* At the switch that thaws them: moments of zero, which count from this step. */
static void look_at_fresh(const char *point, fl_worker_state *w)
{
    static float now[FLOATS_MAX];
    const fl_params *p = fl_generation_params(w->now);
    bool thawed = strcmp(point, "switch") == 0 && w->now->plan.F == 0 && p != NULL;
    for (int layer = 0; thawed && layer < p->last; layer++) {
        int64_t n = floats_of(p, layer);
        bool is_zero = n <= FLOATS_MAX;
        for (int64_t i = 0; is_zero && i < n; i++) {
            if (i == 0) {
                read_device(p, p->moments[layer - p->first], n, now);
            }
            is_zero = now[i] == 0.0f;
        }
        bool frozen = layer < fl_frozen_layers(w->c->model, FROZEN);
        int64_t since = frozen ? THAW_AT : 0;
        bool good = n == 0 || (is_zero == frozen && p->since[layer] == since);
        atomic_fetch_add(good ? &across->n_same : &across->n_different, n > 0);
    }
}

/* Three replicas; the first one keeps the moments. Two are left, and thaw what froze. */
static void test_thaw__begins_anew_where_the_moments_are_lost(void **state)
{
    (void)state;
    char script[80];
    snprintf(script, sizeof script, "[{step: %d, f: %d}, {step: %d, f: 0}]", FREEZE_AT, FROZEN,
             THAW_AT);
    scenario s = {.name = "lost",
                  .sets = JOB_SETS("pipe.k", "1", "autodp.r", "3", "pipe.m", "1", "devices.count",
                                   "3", "train.batch", "10", "train.epochs", "3", "train.evaluate",
                                   "false", "fault.restarts", "0", "fault.on_loss", "continue",
                                   "elastic.script", script),
                  .n_samples = SAMPLES,
                  .blocks = BLOCKS,
                  .dropout = 0.1f,
                  .at = {{.point = "step", .who = 0, .step = KILL_AT, .act = kill_the_first}},
                  .at_point = look_at_fresh};
    memset(across, 0, sizeof *across);
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(across->n_different, 0);
    assert_true(across->n_same >= 2 * BLOCKS); /* all layers of at least one replica */
    assert_int_equal(count_events(s.dir, "\"run.recovered\"", "\"lost_moments\": [\""), 1);
    assert_int_equal(count_events(s.dir, "\"transition.done\"", "\"fresh_moments\": [\""), 1);
    assert_int_equal(count_events(s.dir, "\"run.finished\"", ""), 1);
    check_exactly_once(s.dir, EPOCHS, SAMPLES);
    scenario_forget(&s);
}

static int set_up(void **state)
{
    across = shared_memory(sizeof *across);
    return make_root(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thaw__brings_the_moments_back),
        cmocka_unit_test(test_thaw__begins_anew_where_the_moments_are_lost),
    };
    return cmocka_run_group_tests(tests, set_up, remove_root);
}
