/* The whole ViT against what PyTorch computed for the same weights and images: logits, loss, every
 * parameter's gradient, and the weights after three steps of AdamW with clipping. The file comes
 * from tests/reference/make_vit_reference.py, which says how to make it again. */
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

enum { BATCH = 5, N_STEPS = 3, ARENA_BYTES = 1 << 20 };

static const double TOLERANCE = 1e-5;
static const fl_vit_config config = {.channels = 1,
                                     .height = 14,
                                     .width = 14,
                                     .patch = 7,
                                     .dim = 18,
                                     .heads = 3,
                                     .blocks = 2,
                                     .n_classes = 5};

typedef struct trial {
    rig r;
    fl_job job;
    fl_tensor targets;
    int32_t target[BATCH];
    int32_t target_offsets[BATCH + 1];
    float *moments[RIG_MAX_LAYERS][RIG_MAX_PARAMS];
} trial;

/* Each parameter as the callback wants it: its record "<prefix>/<layer>.<name>". */
typedef void each_param(trial *t, int layer, int j, int64_t n, const char *record);
static void for_each_param(trial *t, const char *prefix, each_param *call)
{
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        const fl_param_list *list = fl_model_params(t->r.model, layer);
        for (int j = 0; j < list->n; j++) {
            char record[RECORD_NAME + 16];
            snprintf(record, sizeof record, "%s/%d.%s", prefix, layer, list->spec[j].name);
            call(t, layer, j, list->spec[j].rows * list->spec[j].cols, record);
        }
    }
}

static void set_weight(trial *t, int layer, int j, int64_t n, const char *record)
{
    memcpy(t->r.weight[layer][j].data, stored(record, n), (size_t)n * sizeof(float));
    t->moments[layer][j] = test_calloc((size_t)n * 2, sizeof(float));
}

static void free_moments(trial *t, int layer, int j, int64_t n, const char *record)
{
    (void)n;
    (void)record;
    test_free(t->moments[layer][j]);
}

static void compare_grad(trial *t, int layer, int j, int64_t n, const char *record)
{
    assert_close(record, t->r.wgrad[layer][j], stored(record, n), n, TOLERANCE);
}

static void compare_weight(trial *t, int layer, int j, int64_t n, const char *record)
{
    assert_close(record, t->r.weight[layer][j].data, stored(record, n), n, TOLERANCE);
}

static void begin(trial *t, fl_device *device, fl_model *model)
{
    const fl_shape raw = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};
    const int64_t length[BATCH] = {1, 1, 1, 1, 1};
    *t = (trial){.job.train = {.optimizer = FL_ADAMW,
                               .lr = 1e-2,
                               .weight_decay = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .epsilon = 1e-3,
                               .clip = 0.5}};
    assert_int_equal(rig_init(&t->r, device, model, &raw, length, BATCH, ARENA_BYTES), FL_OK);
    memcpy(t->r.act[0].data, stored("images", BATCH * raw.width),
           (size_t)(BATCH * raw.width) * sizeof(float));
    for (int s = 0; s < BATCH; s++) {
        t->target[s] = (int32_t)stored("targets", BATCH)[s];
        t->target_offsets[s + 1] = s + 1;
    }
    t->targets =
        (fl_tensor){t->target, t->target_offsets, t->target_offsets, BATCH, BATCH, 1, FL_I32};
    for_each_param(t, "w0", set_weight);
    rig_changed(&t->r);
}

/* Forward, loss and backward of the batch; gives the mean loss. */
static double gradients(trial *t)
{
    fl_loss_sums sums = {0};
    int last = t->r.n_layers;
    assert_int_equal(rig_clear_grads(&t->r), FL_OK);
    assert_int_equal(rig_forward(&t->r), FL_OK);
    assert_int_equal(fl_exec_loss(&t->r.x, t->r.model, &t->r.act[last], &t->targets, 1.0f / BATCH,
                                  &t->r.grad[last], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(&t->r, false), FL_OK);
    return sums.loss / sums.n_targets;
}

static double grad_norm(trial *t)
{
    double sum = 0;
    for (int layer = 0; layer < t->r.n_layers; layer++) {
        for (int j = 0; j < t->r.params[layer].n; j++) {
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

static void test_vit_reference__agrees_with_pytorch(void **state)
{
    (void)state;
    static trial t;
    fl_device *device = NULL;
    fl_model *model = NULL;
    reference_load("tests/reference/vit_reference.bin");
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &device), FL_OK);
    assert_int_equal(fl_model_vit(&config, &model), FL_OK);
    begin(&t, device, model);
    for (int step = 0; step < N_STEPS; step++) {
        double loss = gradients(&t), norm = grad_norm(&t);
        assert_relative("loss", loss, (double)stored("loss", N_STEPS)[step]);
        assert_relative("gradient norm", norm, (double)stored("norm", N_STEPS)[step]);
        assert_true(norm > t.job.train.clip); /* so that clipping is seen at work */
        if (step == 0) {
            assert_close("logits", fl_f32(&t.r.act[t.r.n_layers]), stored("logits", BATCH * 5),
                         BATCH * 5, TOLERANCE);
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
        cmocka_unit_test(test_vit_reference__agrees_with_pytorch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
