/* The whole GPT-2 against what transformers computed for the same weights and ids: logits, loss,
 * every parameter's gradient, and the weights after three steps of AdamW with clipping, over ragged
 * samples. The file comes from tests/reference/make_gpt2_reference.py, which says how to make it
 * again. Would catch: a mask that looks ahead, a GELU of another form, a tied weight whose gradient
 * lacks a use, a row of padding that gets probability. */
#include "nn/optimizer.h"
#include "support/device/nn_rig.h"
#include "support/device/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

enum {
    VOCABULARY = 50,
    ROWS = 64, /* the vocabulary filled up */
    DIM = 15,
    BATCH = 4,
    TOKENS = 24,
    N_STEPS = 3,
    ARENA_BYTES = 1 << 20,
    HEAD_WEIGHT = 2
};

static const double TOLERANCE = 1e-5;
static const int64_t length[BATCH] = {12, 1, 7, 4};
static const fl_gpt2_config config = {
    .vocabulary = VOCABULARY, .positions = 12, .dim = DIM, .heads = 3, .blocks = 2};

typedef struct trial {
    rig r;
    fl_job job;
    fl_tensor targets;
    int32_t target[TOKENS];
    float *moments[RIG_MAX_LAYERS][RIG_MAX_PARAMS];
} trial;

/* Each parameter as the callback wants it: its record "<prefix>/<layer>.<name>". The head's weight
 * has none: it is the token embedding. n: the elements that the record has. */
typedef void each_param(trial *t, int layer, int j, int64_t n, const char *record);
static void for_each_param(trial *t, const char *prefix, each_param *call)
{
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        const fl_param_list *list = fl_model_params(t->r.model, layer);
        for (int j = 0; j < list->n; j++) {
            const fl_param_spec *spec = &list->spec[j];
            int64_t rows = spec->rows == ROWS && spec->cols == DIM ? VOCABULARY : spec->rows;
            bool head = layer == t->r.n_layers - 1 && j == HEAD_WEIGHT;
            char record[RECORD_NAME + 16];
            snprintf(record, sizeof record, "%s/%d.%s", prefix, head ? 0 : layer,
                     head ? "token" : spec->name);
            call(t, layer, j, rows * spec->cols, record);
        }
    }
}

static void set_weight(trial *t, int layer, int j, int64_t n, const char *record)
{
    const fl_weight *w = &t->r.weight[layer][j];
    memcpy(w->data, stored(record, n), (size_t)n * sizeof(float));
    t->moments[layer][j] = test_calloc((size_t)(w->rows * w->cols) * 2, sizeof(float));
}

static void free_moments(trial *t, int layer, int j, int64_t n, const char *record)
{
    (void)n;
    (void)record;
    test_free(t->moments[layer][j]);
}

/* Rows that are no ids have no gradient at all. */
static void compare_grad(trial *t, int layer, int j, int64_t n, const char *record)
{
    const fl_weight *w = &t->r.weight[layer][j];
    const float *grad = t->r.wgrad[layer][j];
    assert_close(record, grad, stored(record, n), n, TOLERANCE);
    for (int64_t i = n; i < w->rows * w->cols; i++) {
        assert_true(grad[i] == 0.0f);
    }
}

static void compare_weight(trial *t, int layer, int j, int64_t n, const char *record)
{
    assert_close(record, t->r.weight[layer][j].data, stored(record, n), n, TOLERANCE);
}

static void begin(trial *t, fl_device *device, fl_model *model)
{
    const fl_shape raw = {.tokens = 1, .width = 1, .dtype = FL_I32, .n_ids = VOCABULARY};
    *t = (trial){.job.train = {.optimizer = FL_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-3,
                               .clip = 0.5}};
    assert_int_equal(rig_init(&t->r, device, model, &raw, length, BATCH, ARENA_BYTES), FL_OK);
    assert_int_equal(t->r.act[0].n_tokens, TOKENS);
    for (int i = 0; i < TOKENS; i++) {
        fl_i32(&t->r.act[0])[i] = (int32_t)stored("ids", TOKENS)[i];
        t->target[i] = (int32_t)stored("targets", TOKENS)[i];
    }
    t->targets = t->r.act[0];
    t->targets.data = t->target;
    for_each_param(t, "w0", set_weight);
    rig_changed(&t->r);
}

/* Both uses of the tied weight get the sum of their gradients. */
static void add_tied(trial *t)
{
    float *a = t->r.wgrad[0][0], *b = t->r.wgrad[t->r.n_layers - 1][HEAD_WEIGHT];
    for (int64_t i = 0; i < ROWS * DIM; i++) {
        a[i] += b[i];
        b[i] = a[i];
    }
}

/* Forward, loss and backward of the batch; gives the mean loss. */
static double gradients(trial *t)
{
    fl_loss_sums sums = {0};
    int last = t->r.n_layers;
    assert_int_equal(rig_clear_grads(&t->r), FL_OK);
    assert_int_equal(rig_forward(&t->r), FL_OK);
    t->r.x.params = &t->r.params[last - 1];
    assert_int_equal(fl_exec_loss(&t->r.x, t->r.model, &t->r.act[last], &t->targets, 1.0f / TOKENS,
                                  &t->r.grad[last], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(&t->r, false), FL_OK);
    add_tied(t);
    assert_true(sums.n_targets == TOKENS);
    return sums.loss / sums.n_targets;
}

static bool is_second_use(const trial *t, int layer, int j)
{
    return layer == t->r.n_layers - 1 && j == HEAD_WEIGHT;
}

static double grad_norm(trial *t)
{
    double sum = 0;
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        for (int j = 0; j < t->r.params[layer].n && !is_second_use(t, layer, j); j++) {
            double part = 0;
            const fl_weight *w = &t->r.weight[layer][j];
            const fl_square_sum square = {t->r.wgrad[layer][j], w->rows * w->cols, &part};
            assert_int_equal(t->r.device->ops->sum_squares_many(t->r.device, NULL, &square, 1),
                             FL_OK);
            sum += part;
        }
    }
    return sqrt(sum);
}

static void optimize(trial *t, int64_t step, double norm)
{
    double scale = fl_clip_scale(norm, t->job.train.clip);
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        for (int j = 0; j < t->r.params[layer].n; j++) {
            const fl_weight *w = &t->r.weight[layer][j];
            int64_t n = w->rows * w->cols;
            bool decay = fl_model_params(t->r.model, layer)->spec[j].decay;
            const fl_update update = {
                .w = w->data,
                .g = t->r.wgrad[layer][j],
                .moment = {t->moments[layer][j], t->moments[layer][j] + n},
                .n = n,
                .weight_decay = decay ? (float)t->job.train.weight_decay : 0.0f,
                .rate = 1.0f,
            };
            assert_int_equal(fl_optimizer_step(t->r.device, NULL, &t->job, step, t->job.train.lr,
                                               scale, &update, 1),
                             FL_OK);
        }
    }
    rig_changed(&t->r);
}

static void assert_relative(const char *what, double got, double wanted)
{
    if (!(fabs(got - wanted) <= TOLERANCE * fabs(wanted))) {
        fail_msg("%s: %.9g, the reference has %.9g", what, got, wanted);
    }
}

/* The logits that the loss computed: out times the head's weight. */
static void compare_logits(trial *t)
{
    const float *out = fl_f32(&t->r.act[t->r.n_layers]);
    const float *w = t->r.weight[t->r.n_layers - 1][HEAD_WEIGHT].data;
    static float logits[TOKENS * VOCABULARY];
    for (int64_t i = 0; i < TOKENS * VOCABULARY; i++) {
        double sum = 0;
        for (int64_t k = 0; k < DIM; k++) {
            sum += (double)out[i / VOCABULARY * DIM + k] * (double)w[i % VOCABULARY * DIM + k];
        }
        logits[i] = (float)sum;
    }
    assert_close("logits", logits, stored("logits", TOKENS * VOCABULARY), TOKENS * VOCABULARY,
                 TOLERANCE);
}

static void test_gpt2_reference__agrees_with_transformers(void **state)
{
    (void)state;
    static trial t;
    fl_device *device = NULL;
    fl_model *model = NULL;
    reference_load("tests/reference/gpt2_reference.bin");
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &device), FL_OK);
    assert_int_equal(fl_model_gpt2(&config, &model), FL_OK);
    begin(&t, device, model);
    for (int step = 0; step < N_STEPS; step++) {
        double loss = gradients(&t), norm = grad_norm(&t);
        assert_relative("loss", loss, (double)stored("loss", N_STEPS)[step]);
        assert_relative("gradient norm", norm, (double)stored("norm", N_STEPS)[step]);
        assert_true(norm > t.job.train.clip); /* so that clipping is seen at work */
        if (step == 0) {
            compare_logits(&t);
            for_each_param(&t, "g", compare_grad);
        }
        optimize(&t, step, norm);
    }
    for_each_param(&t, "w3", compare_weight);
    for_each_param(&t, "", free_moments);
    rig_fini(&t.r);
    fl_model_destroy(&model);
    fl_device_destroy(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_reference__agrees_with_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
