/* Blocks that froze and thaw again train on with the moments that they had, wherever they thaw: on
 * the worker that kept them, on others, on several at once. The moments are taken down as they
 * freeze and compared bit by bit after they thawed; losing the attic would show in no comparison of
 * two runs that both lose it. */
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "pipe/plan/plan.h"
#include "support/runs.h"
#include "support/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { SAMPLES = 120, BLOCKS = 4, WORKERS = 3, LAYERS_MAX = 16, FLOATS_MAX = 1 << 14, FROZEN = 3 };

/* Between the workers of a run. */
typedef struct shared {
    int64_t n[LAYERS_MAX]; /* floats taken down; 0: the layer did not freeze */
    float moments[LAYERS_MAX][FLOATS_MAX];
    _Atomic int n_same, n_different; /* layers that thawed */
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
            memcpy(across->moments[layer], p->moments[layer - p->first], (size_t)n * sizeof(float));
            across->n[layer] = n;
        }
    }
}

static void compare(const fl_worker_state *w)
{
    const fl_params *p = fl_generation_params(w->now);
    for (int layer = p == NULL ? 0 : p->first_trainable; p != NULL && layer < p->last; layer++) {
        int64_t n = across->n[layer];
        if (n > 0) {
            bool same = n == floats_of(p, layer) &&
                        memcmp(across->moments[layer], p->moments[layer - p->first],
                               (size_t)n * sizeof(float)) == 0;
            atomic_fetch_add(same ? &across->n_same : &across->n_different, 1);
        }
    }
}

void fl__test_point(const char *point, fl_worker_state *w)
{
    if (across != NULL && strcmp(point, "vote") == 0 && w->next->plan.generation == 2) {
        take_down(w);
    } else if (across != NULL && strcmp(point, "switch") == 0 && w->now->plan.generation == 4) {
        compare(w);
    }
}

static void run(const char *dir, const fl_script_entry *script, int n)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    must(fl_job_set(&job, "pipe.k", "2"));
    must(fl_job_set(&job, "autodp.r", "1"));
    must(fl_job_set(&job, "pipe.m", "2"));
    must(fl_job_set(&job, "devices.count", "3"));
    must(fl_job_set(&job, "train.batch", "10"));
    must(fl_job_set(&job, "train.epochs", "3"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    job.elastic.n_script = n;
    for (int i = 0; i < n; i++) {
        job.elastic.script[i] = script[i];
    }
    must(fl_toy_dataset(SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dir, NULL));
    _exit(0);
}

/* Freezes under `froze`, goes on under another plan, thaws under `thawed`. */
static void check(int number, fl_script_entry other, fl_script_entry thawed)
{
    const fl_script_entry script[] = {
        {.step = 8, .f = FROZEN, .k = 2, .r = 1, .m = 2}, other, thawed};
    char dir[64];
    snprintf(dir, sizeof dir, "%s/%d", root, number);
    memset(across, 0, sizeof *across);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(dir, script, 3);
    }
    int n_frozen = 0;
    check_ended_well(child);
    for (int layer = 0; layer < LAYERS_MAX; layer++) {
        bool moved = false;
        for (int64_t i = 0; i < across->n[layer]; i++) {
            moved = moved || across->moments[layer][i] != 0.0f;
        }
        assert_true(across->n[layer] == 0 || moved); /* zeros would be easy to restore */
        n_frozen += across->n[layer] > 0;
    }
    assert_true(n_frozen >= 2 * FROZEN);
    assert_int_equal(across->n_different, 0);
    assert_int_equal(across->n_same, n_frozen * (int)thawed.r);
}

static void test_thaw__brings_the_moments_back(void **state)
{
    (void)state;
    const fl_script_entry same = {.step = 14, .f = FROZEN, .k = 2, .r = 1, .m = 4};
    const fl_script_entry alone = {.step = 14, .f = FROZEN, .k = 1, .r = 1, .m = 2};
    check(0, same, (fl_script_entry){.step = 20, .f = 0, .k = 2, .r = 1, .m = 2});
    check(1, alone, (fl_script_entry){.step = 20, .f = 0, .k = 1, .r = 3, .m = 2});
    check(2, alone, (fl_script_entry){.step = 20, .f = 0, .k = 3, .r = 1, .m = 2});
}

static int set_up(void **state)
{
    (void)state;
    across = mmap(NULL, sizeof *across, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return across == MAP_FAILED || make_root(NULL) != 0 ? -1 : 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thaw__brings_the_moments_back),
    };
    return cmocka_run_group_tests(tests, set_up, remove_root);
}
