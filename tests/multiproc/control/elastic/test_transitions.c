/* A run that changes plans follows, step by step, the run on one worker with the same frost line.
 * Thirty transitions are drawn at random (F, K, R, M, up and down, in the middle of epochs, with
 * workers that come and go), with dropout and augmentation on. A moment lost on the way, a sample
 * used twice or a batch computed under two plans would each show here; that a lost moment does is
 * shown by losing one. */
#include "device/random/random.h"
#include "support/draw.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static const uint32_t BROKEN = TRANSITIONS / 2; /* the generation that loses a moment, in one run */

static void write_floats(const fl_params *p, const float *from, int64_t n, FILE *file)
{
    float *copy = malloc((size_t)n * sizeof *copy);
    if (copy != NULL) {
        read_device(p, from, n, copy);
        fwrite(copy, sizeof *copy, (size_t)n, file);
    }
    free(copy);
}

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
        snprintf(path, sizeof path, "%s/layer-%d", scenario_here()->dir, layer);
        FILE *file = fopen(path, "wb");
        int64_t n = fl_params_layer_count(p, layer);
        write_floats(p, p->weight[layer - p->first], n, file);
        if (layer >= p->first_trainable) {
            write_floats(p, p->moments[layer - p->first], n * p->n_moments, file);
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
        clear_device(p, p->moments[p->last - 1 - p->first], fl_params_layer_count(p, p->last - 1));
    }
}

static void dump_at_the_end(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "end") == 0) {
        dump(w);
    }
}

static void lose_a_moment_and_dump(const char *point, fl_worker_state *w)
{
    if (strcmp(point, "migrated") == 0 && w->next->plan.generation == BROKEN) {
        lose_a_moment(w);
    }
    dump_at_the_end(point, w);
}

/* A run of these transitions, to its end. */
static scenario run_of(const char *name, const char *workers, const fl_script_entry *script,
                       void (*at_point)(const char *point, fl_worker_state *w))
{
    scenario s = {.name = name,
                  .sets =
                      JOB_SETS("devices.count", workers, "pipe.k", "1", "autodp.r", "1", "pipe.m",
                               "1", "train.batch", "10", "train.epochs", "30", "autodp.bucket",
                               "16KiB", "train.lr", "1e-4", "train.evaluate", "false"),
                  .script = script,
                  .n_script = TRANSITIONS,
                  .n_samples = N_SAMPLES,
                  .blocks = BLOCKS,
                  .dropout = 0.1f,
                  .at_point = at_point};
    scenario_run(&s);
    return s;
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

/* What a script asks for is carried out whatever it costs, and each event has the step before and
 * the one that is predicted. */
static void check_prices(const scenario *s)
{
    json_t *all = lines_with(s->dir, "events.jsonl", "\"transition.done\"");
    const json_t *e;
    assert_int_equal(length(all), TRANSITIONS);
    FOR_EACH(e, all)
    {
        assert_true(json_number_value(json_object_get(e, "step_ms")) > 0.0);
        assert_true(json_number_value(json_object_get(e, "predicted_step_ms")) > 0.0);
    }
    json_decref(all);
}

static void test_transitions__follow_one_worker(void **state)
{
    (void)state;
    uint64_t seed = drawn_seed();
    fl_script_entry script[TRANSITIONS], alone[TRANSITIONS];
    draw_script(seed, script, alone);
    scenario a = run_of("many", "4", script, dump_at_the_end);
    scenario b = run_of("one", "1", alone, dump_at_the_end);
    double *many = losses_of(&a, STEPS), *one = losses_of(&b, STEPS);
    check_exactly_once(a.dir, EPOCHS, N_SAMPLES);
    check_prices(&a);
    check_exactly_once(b.dir, EPOCHS, N_SAMPLES);
    assert_true(one[STEPS - 1] < one[0]); /* it learns */
    for (int i = 0; i < TRANSITIONS; i++) {
        double worst = worst_difference(many, one, INTERVAL * (i + 1),
                                        i + 1 < TRANSITIONS ? INTERVAL * (i + 2) : STEPS);
        if (worst > TOLERANCE) {
            print_message("after transition %d to F=%d K=%d R=%d M=%d: %.2e\n", i, script[i].f,
                          script[i].k, script[i].r, script[i].m, worst);
        }
        assert_true(worst <= TOLERANCE);
    }
    print_message("losses differ by at most %.2e over %d steps\n",
                  worst_difference(many, one, 0, STEPS), STEPS);
    double worst_state = 0.0;
    for (int layer = 0; layer < 2 * BLOCKS + 2; layer++) {
        worst_state = fmax(worst_state, state_difference(a.dir, b.dir, layer));
    }
    print_message("weights and moments differ by at most %.2e\n", worst_state);
    assert_true(worst_state <= 1e-4);

    scenario c = run_of("broken", "4", script, lose_a_moment_and_dump);
    double *broken = losses_of(&c, STEPS);
    assert_true(worst_difference(broken, one, 0, STEPS) > 10 * TOLERANCE);
    free(many);
    free(one);
    free(broken);
}

/* Would catch: a measurement that is dropped when the run ends before 20 steps of the new plan are
 * measured. Of the 9 steps after the change at step 12, the first two warm up. */
static void test_transitions__shortly_before_the_end_are_measured(void **state)
{
    (void)state;
    scenario s = {.name = "short",
                  .sets =
                      JOB_SETS("devices.count", "2", "pipe.k", "1", "autodp.r", "1", "pipe.m", "1",
                               "train.batch", "10", "train.epochs", "1", "train.evaluate", "false"),
                  .script = &(fl_script_entry){.step = 12, .f = 0, .k = 2, .r = 1, .m = 2},
                  .n_script = 1,
                  .n_samples = N_SAMPLES,
                  .blocks = BLOCKS};
    scenario_run(&s);
    json_t *all = lines_with(s.dir, "events.jsonl", "\"transition.measured\"");
    assert_int_equal(length(all), 1);
    const json_t *e = json_array_get(all, 0);
    assert_int_equal(number(e, "step"), 12);
    assert_int_equal(number(e, "steps"), STEPS_PER_EPOCH - 12 - 2);
    assert_true(json_number_value(json_object_get(e, "measured_step_ms")) > 0.0);
    json_decref(all);
}

/* The first generation takes to close until the thread that opens the next one waits for that. */
static void close_slowly(const char *point, fl_worker_state *w)
{
    static atomic_int n_waits, n_closed;
    (void)w;
    if (strcmp(point, "wait") == 0) {
        atomic_fetch_add(&n_waits, 1);
    }
    if (strcmp(point, "close") == 0 && atomic_fetch_add(&n_closed, 1) == 0) {
        while (atomic_load(&n_waits) < 2) {
            nap(100);
        }
    }
}

/* Would catch: training that waits until the last generation is closed, before the next one is
 * opened. Closing took a second now and then, and all workers stood still meanwhile. */
static void test_transitions__training_does_not_wait_for_a_generation_to_close(void **state)
{
    (void)state;
    const fl_script_entry script[] = {{.step = 8, .f = -1, .k = 1, .r = 1, .m = 1},
                                      {.step = 16, .f = -1, .k = 1, .r = 2, .m = 1}};
    scenario s = {.name = "close",
                  .sets =
                      JOB_SETS("devices.count", "2", "pipe.k", "1", "autodp.r", "2", "pipe.m", "1",
                               "train.batch", "10", "train.epochs", "2", "train.evaluate", "false"),
                  .script = script,
                  .n_script = 2,
                  .n_samples = N_SAMPLES,
                  .at_point = close_slowly};
    scenario_run(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transitions__follow_one_worker),
        cmocka_unit_test(test_transitions__training_does_not_wait_for_a_generation_to_close),
        cmocka_unit_test(test_transitions__shortly_before_the_end_are_measured),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
