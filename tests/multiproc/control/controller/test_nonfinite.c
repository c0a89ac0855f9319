/* A step whose loss or gradient norm is infinite or not a number is never applied: the run stops,
 * and names step, layer, worker and samples, or it leaves the step out and goes on, the same under
 * every plan. A run that took NaN for a loss ended as a success, with weights that are NaN. */
#include "launcher/run/run.h"
#include "launcher/worker/worker_state.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/runs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 120, BATCH = 10, EPOCHS = 2, STEPS = 24, BLOCKS = 3, BAD_SAMPLE = 37 };
enum { N_REPLAYS = 6 };

static const struct {
    int k, r, m, devices;
} plans[] = {{1, 1, 1, 1}, {2, 1, 4, 2}, {1, 2, 2, 2}, {2, 1, 2, 3}};
enum { N_PLANS = sizeof plans / sizeof *plans };

/* Between the workers of a run and the test. */
typedef struct shared {
    _Atomic int n_forwards; /* of the layer below, since training began */
    char message[4096];     /* of fl_run_in */
    fl_status status;
    fl_run_result result;
} shared;
static shared *across;

/* ---- a data set with one bad sample ---- */

static fl_dataset toy;
static float bad_value; /* that stands in BAD_SAMPLE; 0: the data are good */

static fl_status read_bad(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    FL_TRY(toy.ops->read(self, split, key, input));
    if (split == FL_TRAIN && key->id == BAD_SAMPLE && bad_value != 0.0f) {
        ((float *)input)[5] = bad_value;
    }
    return FL_OK;
}

static fl_dataset bad_dataset(void)
{
    static fl_dataset_ops ops;
    must(fl_toy_dataset(N_SAMPLES, &toy));
    ops = *toy.ops;
    ops.read = read_bad;
    return (fl_dataset){&ops, toy.self};
}

/* ---- a layer of which backward fails for one sample ---- */

static bool has_begun; /* this worker trains: costs and memory have been measured */
static bool layer_is_bad;
static bool layer_is_slow; /* so that a decision comes in time */

static fl_status pass_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    across->n_forwards += has_begun;
    if (layer_is_slow) {
        nap(5000);
    }
    return fl_convert(
        x, &(fl_convert_args){.in = in->data, .y = out->data, .n = in->n_tokens * in->width});
}

static fl_status pass_backward(void *self, fl_exec *x, const fl_tensor *grad, fl_tensor *grad_in)
{
    (void)self;
    const fl_batch *batch = fl_exec_batch(x);
    if (grad_in == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_convert(x, &(fl_convert_args){.in = grad->data,
                                            .y = grad_in->data,
                                            .n = grad->n_tokens * grad->width}));
    for (int64_t i = 0; i < batch->n_samples; i++) {
        if (layer_is_bad && batch->sample_ids[i] == BAD_SAMPLE) {
            fl_f32(grad_in)[grad->offsets[i] * grad->width + 3] = INFINITY;
        }
    }
    return FL_OK;
}

static const fl_layer_ops pass = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                  .kind = "pass",
                                  .shape = fl_toy_same_shape,
                                  .params = fl_toy_no_params,
                                  .forward = pass_forward,
                                  .backward = pass_backward};

/* Layer 3 of the model passes on what it gets. */
static void make_model(fl_model **model)
{
    fl_layer layer;
    fl_loss loss;
    must(fl_model_create("passing", model));
    must(fl_layer_patch_embed(1, 14, 14, 7, 24, &layer));
    must(fl_model_add(*model, 1, layer));
    for (int block = 1; block <= BLOCKS; block++) {
        must(fl_layer_attention(
            &(fl_attention_config){.dim = 24, .heads = 3, .dropout = 0.1f, .depth = 2 * BLOCKS},
            &layer));
        must(fl_model_add(*model, block, layer));
        must(fl_layer_mlp(&(fl_mlp_config){.dim = 24,
                                           .hidden = 48,
                                           .dropout = 0.1f,
                                           .depth = 2 * BLOCKS,
                                           .activation = FL_ACT_GELU_TANH},
                          &layer));
        must(fl_model_add(*model, block, layer));
        if (block == 1) {
            must(fl_model_add(*model, 1, (fl_layer){&pass, NULL}));
        }
    }
    must(fl_layer_classifier(24, 4, &layer));
    must(fl_model_add(*model, FL_BLOCK_HEAD, layer));
    must(fl_loss_cross_entropy(4, &loss));
    must(fl_model_set_loss(*model, loss));
}

/* ---- runs ---- */

void fl__test_point(const char *point, fl_worker_state *w)
{
    (void)w;
    has_begun = has_begun || strcmp(point, "begin") == 0;
}

static const char *dir_of(const char *name, int plan)
{
    static char dir[128];
    snprintf(dir, sizeof dir, "%s/%s-%d", root, name, plan);
    return dir;
}

/* recorded: the run to repeat; NULL: none. */
static void run(const char *dir, int plan, const char *const *fields, const char *recorded)
{
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data = bad_dataset();
    fl_job_defaults(&job);
    set(&job, "pipe.k", plans[plan].k);
    set(&job, "autodp.r", plans[plan].r);
    set(&job, "pipe.m", plans[plan].m);
    set(&job, "devices.count", plans[plan].devices);
    set(&job, "train.batch", BATCH);
    set(&job, "train.epochs", EPOCHS);
    must(fl_job_set(&job, "pipe.profile", "none"));
    for (int i = 0; fields[i] != NULL; i += 2) {
        must(fl_job_set(&job, fields[i], fields[i + 1]));
    }
    make_model(&model);
    across->status = fl_run_again(model, &data, &job, dir, recorded, &across->result);
    snprintf(across->message, sizeof across->message, "%s", fl_errmsg());
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    _exit(0);
}

/* The outcome is in *across. fields: pairs of a path and its value, ended by NULL. */
static void repeat_in_child(const char *dir, int plan, const char *const *fields,
                            const char *recorded)
{
    across->n_forwards = 0;
    memset(across, 0, sizeof *across);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        hush();
        run(dir, plan, fields, recorded);
    }
    check_ended_well(child);
}

static void run_in_child(const char *dir, int plan, const char *const *fields)
{
    repeat_in_child(dir, plan, fields, NULL);
}

static void check_says(const char *part)
{
    if (strstr(across->message, part) == NULL) {
        print_error("\"%s\" is not in: %s\n", part, across->message);
    }
    assert_non_null(strstr(across->message, part));
}

/* The step of the run's only event of this kind. */
static const json_t *only_event(json_t *events)
{
    assert_int_equal(length(events), 1);
    return json_array_get(events, 0);
}

static const char *text_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_string(value));
    return json_string_value(value);
}

/* ---- stopping ---- */

static void test_nonfinite__ends_a_run_that_diverges(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "train.lr", "100",          "train.clip", "none", "train.optimizer", "sgd", "train.warmup",
        "0",        "train.epochs", "20",         NULL};
    int step = -1, layer = -1;
    for (int plan = 0; plan < N_PLANS; plan++) {
        const char *dir = dir_of("diverges", plan);
        run_in_child(dir, plan, fields);
        assert_int_equal(across->status, FL_EFAILED);
        check_says("is nan. The first value that is not finite is in the ");
        check_says("train.on_nonfinite: stop");
        json_t *events = lines_with(dir, "events.jsonl", "\"step.nonfinite\"");
        const json_t *event = only_event(events);
        assert_string_equal(text_of(event, "action"), "stop");
        assert_int_equal(count_events(dir, "run.failed", ""), 1);
        assert_int_equal(count_events(dir, "worker.lost", ""), 0);
        /* The same step and layer under every plan; on the worker that has the layer. */
        assert_true(plan == 0 || number(event, "step") == step);
        assert_true(plan == 0 || number(event, "layer") == layer);
        step = number(event, "step");
        layer = number(event, "layer");
        assert_int_equal(across->result.steps, step + 1);
        assert_int_equal(across->result.skipped_steps, 0); /* it ended the run */
        json_decref(events);
    }
}

static void test_nonfinite__names_the_sample_of_bad_data(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.epochs", "2", NULL};
    bad_value = NAN;
    for (int plan = 0; plan < N_PLANS; plan++) {
        const char *dir = dir_of("data", plan);
        run_in_child(dir, plan, fields);
        assert_int_equal(across->status, FL_EFAILED);
        check_says("in the data, in sample 37");
        json_t *events = lines_with(dir, "events.jsonl", "\"step.nonfinite\"");
        const json_t *event = only_event(events), *ids = json_object_get(event, "samples"), *id;
        bool named = false;
        FOR_EACH(id, ids)
        {
            named = named || json_integer_value(id) == BAD_SAMPLE;
        }
        assert_true(named);
        assert_int_equal(length(ids), BATCH);
        assert_int_equal(number(event, "sample"), BAD_SAMPLE);
        assert_string_equal(text_of(event, "where"), "input");
        json_decref(events);
    }
    bad_value = 0.0f;
}

static void test_nonfinite__names_the_layer_whose_backward_fails(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.epochs", "2", NULL};
    layer_is_bad = true;
    for (int plan = 0; plan < N_PLANS; plan++) {
        const char *dir = dir_of("backward", plan);
        run_in_child(dir, plan, fields);
        assert_int_equal(across->status, FL_EFAILED);
        check_says("the gradient norm is");
        check_says("in the gradient that layer 3 (pass) computes on worker ");
        check_says("for sample 37");
        json_t *events = lines_with(dir, "events.jsonl", "\"step.nonfinite\"");
        assert_string_equal(text_of(only_event(events), "kind"), "pass");
        json_decref(events);
    }
    layer_is_bad = false;
}

/* The step at which the run ended has a recorded end, too. The workers must not wait there for a
 * controller that knows already that the run has failed. */
static void test_nonfinite__ends_a_replay_alike(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.lr",
                                         "100",
                                         "train.clip",
                                         "none",
                                         "train.optimizer",
                                         "sgd",
                                         "train.warmup",
                                         "0",
                                         "train.epochs",
                                         "20",
                                         "fault.deadline",
                                         "6s",
                                         NULL};
    for (int plan = 0; plan < 2; plan++) {
        char first[128], again[128];
        snprintf(first, sizeof first, "%s", dir_of("recorded", plan));
        run_in_child(first, plan, fields);
        assert_int_equal(across->status, FL_EFAILED);
        int64_t steps = across->result.steps;
        for (int i = 0; i < N_REPLAYS; i++) {
            snprintf(again, sizeof again, "%s-%d", first, i);
            repeat_in_child(again, plan, fields, first);
            assert_int_equal(across->status, FL_EFAILED);
            check_says("is nan. The first value that is not finite is in the ");
            assert_int_equal(across->result.steps, steps);
            assert_int_equal(count_events(again, "worker.lost", ""), 0);
        }
    }
}

/* ---- skipping ---- */

static int n_skipped(const char *dir)
{
    json_t *lines = lines_with(dir, "steps.jsonl", "\"skipped\":");
    int n = length(lines);
    json_decref(lines);
    return n;
}

/* Every plan leaves out the same steps, and goes on as one worker does. */
static void check_skips_alike(const char *name, const char *const *fields, bool freezes)
{
    double one[STEPS + 1] = {0}, other[STEPS + 1] = {0};
    for (int plan = 0; plan < N_PLANS; plan++) {
        const char *dir = dir_of(name, plan);
        run_in_child(dir, plan, fields);
        if (across->status != FL_OK) {
            print_error("%s\n", across->message);
        }
        assert_int_equal(across->status, FL_OK);
        assert_int_equal(fl_toy_losses(dir, plan == 0 ? one : other, STEPS + 1), STEPS);
        assert_int_equal(across->result.skipped_steps, EPOCHS); /* the bad sample, once an epoch */
        assert_int_equal(n_skipped(dir), EPOCHS);
        assert_int_equal(count_events(dir, "step.nonfinite", "\"skip\""), EPOCHS);
        assert_true(isfinite(across->result.train_loss) && isfinite(across->result.test_loss));
        check_exactly_once(dir, EPOCHS, N_SAMPLES);
        /* A norm that is not finite would be null. */
        assert_int_equal(count_events(dir, "freeze.decided", "null"), 0);
        assert_true((count_events(dir, "freeze.decided", "\"norms\"") > 0) == freezes);
        for (int i = 0; i < STEPS && plan > 0 && !freezes; i++) {
            assert_true(fabs(other[i] - one[i]) <= 1e-5 * fabs(one[i]));
        }
    }
    assert_true(one[STEPS - 1] < one[0]);
}

static void test_nonfinite__skips_alike_under_every_plan(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.on_nonfinite", "skip", NULL};
    bad_value = INFINITY;
    check_skips_alike("skip", fields, false);
    bad_value = 0.0f;
    layer_is_bad = true;
    check_skips_alike("skip-backward", fields, false);
    layer_is_bad = false;
}

/* One NaN in the sums of an interval would make every comparison of norms false. */
static void test_nonfinite__reaches_no_freeze_policy(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.on_nonfinite",
                                         "skip",
                                         "freeze.policy",
                                         "gradnorm",
                                         "freeze.start",
                                         "0%",
                                         "freeze.every",
                                         "6 steps",
                                         "cache.policy",
                                         "on",
                                         "cache.augment",
                                         "freeze",
                                         NULL};
    layer_is_slow = true;
    bad_value = NAN;
    check_skips_alike("freeze", fields, true);
    bad_value = 0.0f;
    layer_is_slow = false;
}

static void test_nonfinite__ends_a_run_that_only_skips(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.on_nonfinite",
                                         "skip",
                                         "train.lr",
                                         "100",
                                         "train.clip",
                                         "none",
                                         "train.warmup",
                                         "0",
                                         "train.optimizer",
                                         "sgd",
                                         "train.epochs",
                                         "20",
                                         NULL};
    run_in_child(dir_of("only-skips", 1), 1, fields);
    assert_int_equal(across->status, FL_EFAILED);
    check_says("too many steps in a row");
    assert_int_equal(across->result.skipped_steps, 25);
}

/* ---- the price ---- */

/* Every micro-batch of a good step goes through a layer once, that of a failed step twice. */
static void test_nonfinite__looks_only_at_steps_that_failed(void **state)
{
    (void)state;
    static const char *const fields[] = {"train.on_nonfinite", "skip", "train.evaluate", "false",
                                         NULL};
    enum { PLAN = 1, M = 4 };
    run_in_child(dir_of("good", PLAN), PLAN, fields);
    assert_int_equal(across->status, FL_OK);
    assert_int_equal(across->n_forwards, STEPS * M);
    bad_value = NAN;
    run_in_child(dir_of("twice", PLAN), PLAN, fields);
    bad_value = 0.0f;
    assert_int_equal(across->status, FL_OK);
    assert_int_equal(across->n_forwards, (STEPS + EPOCHS) * M);
}

/* ---- the order of findings ---- */

static void test_nonfinite__orders_findings_as_a_step_computes(void **state)
{
    (void)state;
    enum { N = 7 };
    double last = 0.0;
    assert_true(fl_nonfinite_key(FL_NONFINITE_NOWHERE, 0, N) == 0.0);
    for (int i = 0; i < 3 * N + 1 + N; i++) {
        fl_nonfinite in = {.layer = i < 3 * N ? i / 3 : i == 3 * N ? -1 : 4 * N - i}, out;
        in.where = i < 3 * N    ? (fl_nonfinite_where)(FL_NONFINITE_INPUT + i % 3)
                   : i == 3 * N ? FL_NONFINITE_LOSS
                                : FL_NONFINITE_GRADIENT;
        double key = fl_nonfinite_key(in.where, in.layer, N);
        assert_true(key > last);
        last = key;
        fl_nonfinite_of_key(key, N, &out);
        assert_int_equal(out.where, in.where);
        assert_int_equal(out.layer, in.layer);
    }
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
        cmocka_unit_test(test_nonfinite__orders_findings_as_a_step_computes),
        cmocka_unit_test(test_nonfinite__ends_a_run_that_diverges),
        cmocka_unit_test(test_nonfinite__ends_a_replay_alike),
        cmocka_unit_test(test_nonfinite__names_the_sample_of_bad_data),
        cmocka_unit_test(test_nonfinite__names_the_layer_whose_backward_fails),
        cmocka_unit_test(test_nonfinite__skips_alike_under_every_plan),
        cmocka_unit_test(test_nonfinite__reaches_no_freeze_policy),
        cmocka_unit_test(test_nonfinite__ends_a_run_that_only_skips),
        cmocka_unit_test(test_nonfinite__looks_only_at_steps_that_failed),
    };
    return cmocka_run_group_tests(tests, set_up, remove_root);
}
