/* A run that changes plans follows, step by step, the run on one worker with the same frost line.
 * Thirty transitions are drawn at random (F, K, R, M, up and down, in the middle of epochs, with
 * workers that come and go), with dropout and augmentation on. A moment lost on the way, a sample
 * used twice or a batch computed under two plans would each show here; that a lost moment does is
 * shown by losing one. */
#include "device/random.h"
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/draw.h"
#include "support/runs.h"
#include "support/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    N_SAMPLES = 203,
    BATCH = 10,
    STEPS_PER_EPOCH = 21,
    EPOCHS = 30,
    STEPS = STEPS_PER_EPOCH * EPOCHS,
    BLOCKS = 4,
    WORKERS = 4,
    TRANSITIONS = 30,
    INTERVAL = 20,
};

static const double TOLERANCE = 1e-5;

/* What a worker does at test points; set before the fork. */
static char dump_dir[256];
static int64_t break_generation; /* after migrating to it, one moment tensor is lost; 0: never */

/* Weights and moments of every layer as this worker holds them, one file a layer. */
static void dump(const fl_worker_state *w)
{
    const fl_generation *m = w->now;
    if (m->pipeline == NULL || m->place.replica != 0) {
        return;
    }
    const fl_params *p = fl_stage_params(fl_pipeline_stage(m->pipeline));
    for (int layer = p->first; layer < p->last; layer++) {
        char path[300];
        snprintf(path, sizeof path, "%s/layer-%d", dump_dir, layer);
        FILE *file = fopen(path, "wb");
        size_t n = (size_t)fl_params_layer_count(p, layer);
        fwrite(p->weight[layer - p->first], sizeof(float), n, file);
        if (layer >= p->first_trainable) {
            fwrite(p->moments[layer - p->first], sizeof(float), n * (size_t)p->n_moments, file);
        }
        fclose(file);
    }
}

/* Forget the first moments of the worker's topmost trainable layer. */
static void lose_a_moment(fl_worker_state *w)
{
    fl_generation *m = w->next;
    if (m->pipeline != NULL && m->place.stage == m->plan.K - 1) {
        fl_params *p = fl_stage_params(fl_pipeline_stage(m->pipeline));
        memset(p->moments[p->last - 1 - p->first], 0,
               (size_t)fl_params_layer_count(p, p->last - 1) * sizeof(float));
    }
}

void fl__test_point(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "end") == 0) {
        dump(w);
    } else if (strcmp(point, "migrated") == 0 && w->next->plan.generation == break_generation) {
        lose_a_moment(w);
    }
}

/* In a child: the controller of one run. */
static void run(int workers, const fl_script_entry *script)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_job_defaults(&job);
    set(&job, "pipe.k", 1);
    set(&job, "autodp.r", 1);
    set(&job, "pipe.m", 1);
    set(&job, "devices.count", workers);
    set(&job, "train.batch", BATCH);
    set(&job, "train.epochs", EPOCHS);
    must(fl_job_set(&job, "autodp.bucket", "16KiB"));
    must(fl_job_set(&job, "train.lr", "1e-4"));
    must(fl_job_set(&job, "train.evaluate", "false"));
    memcpy(job.elastic.script, script, TRANSITIONS * sizeof *script);
    job.elastic.n_script = TRANSITIONS;
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(BLOCKS, 0.1f, &model));
    must(fl_run_in(model, &data, &job, dump_dir, NULL));
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static void run_apart(const char *dir, int workers, const fl_script_entry *script, double *losses)
{
    snprintf(dump_dir, sizeof dump_dir, "%s", dir);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(workers, script);
        _exit(0);
    }
    check_ended_well(child);
    assert_int_equal(fl_toy_losses(dir, losses, STEPS + 1), STEPS);
}

static int drawn(uint64_t seed, int which, int n)
{
    return (int)(fl_mix64(seed, (uint64_t)which) % (uint64_t)n);
}

/* What is too rare to be drawn: a block thaws whose moments lie on a worker that has had no stage
 * for a while, and gets none. */
static const fl_script_entry fixed[] = {
    {.f = 0, .k = WORKERS, .r = 1, .m = 2},
    {.f = BLOCKS - 2, .k = 1, .r = 1, .m = 2},
    {.f = 0, .k = 1, .r = 1, .m = 1},
};
enum { N_FIXED = sizeof fixed / sizeof *fixed };

static void draw_script(uint64_t seed, fl_script_entry *script, fl_script_entry *alone)
{
    for (int i = 0; i < TRANSITIONS; i++) {
        fl_script_entry *e = &script[i];
        e->step = INTERVAL * (i + 1);
        e->f = drawn(seed, 4 * i, BLOCKS - 1);
        e->k = 1 + drawn(seed, 4 * i + 1, WORKERS);
        e->r = 1 + drawn(seed, 4 * i + 2, WORKERS / e->k);
        e->m = 1 + drawn(seed, 4 * i + 3, BATCH / e->r);
        if (i < N_FIXED) {
            *e = fixed[i];
            e->step = INTERVAL * (i + 1);
        }
        alone[i] = (fl_script_entry){.step = e->step, .f = e->f, .k = 1, .r = 1, .m = 1};
    }
}

static double worst_of(const double *a, const double *b, int from, int to)
{
    double worst = 0.0;
    for (int i = from; i < to; i++) {
        worst = fmax(worst, fabs(a[i] - b[i]) / fabs(b[i]));
    }
    return worst;
}

/* |a - b| / |b| over all floats of both files. */
static double state_difference(const char *a, const char *b, int layer)
{
    char path[2][300];
    FILE *file[2];
    double difference = 0.0, size = 0.0;
    float x, y;
    snprintf(path[0], sizeof path[0], "%s/layer-%d", a, layer);
    snprintf(path[1], sizeof path[1], "%s/layer-%d", b, layer);
    for (int i = 0; i < 2; i++) {
        file[i] = fopen(path[i], "rb");
        assert_non_null(file[i]);
    }
    while (fread(&x, sizeof x, 1, file[0]) == 1) {
        assert_int_equal(fread(&y, sizeof y, 1, file[1]), 1);
        difference += ((double)x - y) * ((double)x - y);
        size += (double)y * y;
    }
    assert_int_equal(fread(&y, sizeof y, 1, file[1]), 0);
    fclose(file[0]);
    fclose(file[1]);
    return size > 0.0 ? sqrt(difference / size) : sqrt(difference);
}

static void test_transitions__follow_one_worker(void **state)
{
    (void)state;
    uint64_t seed = drawn_seed();
    fl_script_entry script[TRANSITIONS], alone[TRANSITIONS];
    double *many = calloc(STEPS + 1, sizeof *many), *one = calloc(STEPS + 1, sizeof *one);
    double *broken = calloc(STEPS + 1, sizeof *broken);
    char a[64], b[64], c[64];
    assert_int_equal(make_root(NULL), 0);
    snprintf(a, sizeof a, "%s/many", root);
    snprintf(b, sizeof b, "%s/one", root);
    snprintf(c, sizeof c, "%s/broken", root);
    draw_script(seed, script, alone);

    run_apart(a, WORKERS, script, many);
    check_exactly_once(a, EPOCHS, N_SAMPLES);
    run_apart(b, 1, alone, one);
    check_exactly_once(b, EPOCHS, N_SAMPLES);
    assert_true(one[STEPS - 1] < one[0]); /* it learns */
    for (int i = 0; i < TRANSITIONS; i++) {
        double worst = worst_of(many, one, INTERVAL * (i + 1),
                                i + 1 < TRANSITIONS ? INTERVAL * (i + 2) : STEPS);
        if (worst > TOLERANCE) {
            print_message("after transition %d to F=%d K=%d R=%d M=%d: %.2e\n", i, script[i].f,
                          script[i].k, script[i].r, script[i].m, worst);
        }
        assert_true(worst <= TOLERANCE);
    }
    print_message("losses differ by at most %.2e over %d steps\n", worst_of(many, one, 0, STEPS),
                  STEPS);
    double worst_state = 0.0;
    for (int layer = 0; layer < 2 * BLOCKS + 2; layer++) {
        worst_state = fmax(worst_state, state_difference(a, b, layer));
    }
    print_message("weights and moments differ by at most %.2e\n", worst_state);
    assert_true(worst_state <= 1e-4);

    break_generation = TRANSITIONS / 2;
    run_apart(c, WORKERS, script, broken);
    break_generation = 0;
    assert_true(worst_of(broken, one, 0, STEPS) > 10 * TOLERANCE);

    assert_int_equal(remove_root(NULL), 0);
    free(many);
    free(one);
    free(broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transitions__follow_one_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
