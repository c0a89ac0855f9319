/* Properties of the built-in layers besides their gradients: evaluation, micro-batches, memory, and
 * the inputs that the loss refuses. */
#include "support/device/nn_rig.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { N_SAMPLES = 4, DIM = 12, HEADS = 3, HIDDEN = 20, CLASSES = 5, ARENA_BYTES = 1 << 20 };

static const int64_t lengths[N_SAMPLES] = {3, 1, 7, 2};
static const fl_shape raw = {.tokens = 1, .width = DIM, .dtype = FL_F32};

static fl_device *device;

static void add(fl_model *model, int block, fl_status made, fl_layer layer)
{
    assert_int_equal(made, FL_OK);
    assert_int_equal(fl_model_add(model, block, layer), FL_OK);
}

/* One block and a head, over ragged rows; `first`: a block that knows what the controller reads. */
static fl_model *make_model_of(bool first, float dropout)
{
    fl_model *model = NULL;
    fl_layer layer = {0};
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    fl_status made = fl_layer_attention(
        &(fl_attention_config){
            .dim = DIM, .heads = HEADS, .depth = 1, .dropout = dropout, .first = first},
        &layer);
    add(model, 1, made, layer);
    made = fl_layer_mlp(&(fl_mlp_config){.dim = DIM,
                                         .hidden = HIDDEN,
                                         .dropout = dropout,
                                         .depth = 1,
                                         .activation = FL_ACT_GELU_TANH},
                        &layer);
    add(model, 1, made, layer);
    made = fl_layer_classifier(DIM, CLASSES, &layer);
    add(model, FL_BLOCK_HEAD, made, layer);
    return model;
}

static fl_model *make_model(float dropout)
{
    return make_model_of(false, dropout);
}

/* Samples first .. first + n - 1, each with the same values and id wherever it is. */
static void begin(rig *r, fl_model *model, int first, int n)
{
    if (rig_init(r, device, model, &raw, lengths + first, n, ARENA_BYTES) != FL_OK ||
        r->offsets[0] == NULL) {
        fail_msg("%s", fl_errmsg());
        return;
    }
    for (int s = 0; s < n; s++) {
        r->ids[s] = 50 + first + s;
        int64_t at = r->offsets[0][s], rows = lengths[first + s];
        fl_param_spec spec = {.rows = rows, .cols = DIM, .init = FL_INIT_NORMAL, .scale = 1.0f};
        fl_param_init(&spec, 9, 0, first + s, fl_f32(&r->act[0]) + at * DIM);
        spec.rows = 1;
        spec.cols = CLASSES;
        fl_param_init(&spec, 9, 1, first + s, fl_f32(&r->grad[r->n_layers]) + s * CLASSES);
    }
}

static void assert_near(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= 1e-5f * (1.0f + fabsf(b[i])))) {
            fail_msg("element %lld: %g and %g", (long long)i, (double)a[i], (double)b[i]);
        }
    }
}

/* Catches a mask or a statistic that depends on a sample's place in the micro-batch. */
static void test_layers__micro_batches_do_not_change_the_result(void **state)
{
    (void)state;
    fl_model *model = make_model(0.3f);
    rig whole, part[2];
    begin(&whole, model, 0, 4);
    begin(&part[0], model, 0, 1);
    begin(&part[1], model, 1, 3);
    assert_int_equal(rig_forward(&whole), FL_OK);
    assert_int_equal(rig_backward(&whole, true), FL_OK);
    int64_t rows = 0, samples = 0;
    for (int k = 0; k < 2; k++) {
        assert_int_equal(rig_forward(&part[k]), FL_OK);
        assert_int_equal(rig_backward(&part[k], true), FL_OK);
        assert_near(fl_f32(&part[k].act[3]), fl_f32(&whole.act[3]) + samples * CLASSES,
                    rig_elements(&part[k].act[3]));
        assert_near(fl_f32(&part[k].grad[0]), fl_f32(&whole.grad[0]) + rows * DIM,
                    rig_elements(&part[k].grad[0]));
        samples += part[k].batch.n_samples;
        rows += part[k].act[0].n_tokens;
    }
    for (int i = 0; i < whole.n_layers; i++) {
        for (int j = 0; j < whole.params[i].n; j++) {
            int64_t n = whole.weight[i][j].rows * whole.weight[i][j].cols;
            for (int64_t e = 0; e < n; e++) {
                part[0].wgrad[i][j][e] += part[1].wgrad[i][j][e];
            }
            assert_near(part[0].wgrad[i][j], whole.wgrad[i][j], n);
        }
    }
    rig_fini(&whole);
    rig_fini(&part[0]);
    rig_fini(&part[1]);
    fl_model_destroy(&model);
}

/* What the controller never reads changes nothing: not the outputs, not one gradient. Catches a
 * token left out that counts, and a mask that moves with the row. */
static void test_layers__first_token_alone_is_the_same(void **state)
{
    (void)state;
    fl_model *all = make_model_of(false, 0.3f), *alone = make_model_of(true, 0.3f);
    rig a, b;
    begin(&a, all, 0, 4);
    begin(&b, alone, 0, 4);
    assert_int_equal(rig_forward(&a), FL_OK);
    assert_int_equal(rig_backward(&a, true), FL_OK);
    assert_int_equal(rig_forward(&b), FL_OK);
    assert_int_equal(rig_backward(&b, true), FL_OK);
    assert_int_equal(b.act[1].n_tokens, N_SAMPLES);
    assert_near(fl_f32(&b.act[3]), fl_f32(&a.act[3]), rig_elements(&a.act[3]));
    assert_near(fl_f32(&b.grad[0]), fl_f32(&a.grad[0]), rig_elements(&a.grad[0]));
    for (int i = 0; i < a.n_layers; i++) {
        for (int j = 0; j < a.params[i].n; j++) {
            assert_near(b.wgrad[i][j], a.wgrad[i][j], a.weight[i][j].rows * a.weight[i][j].cols);
        }
    }
    rig_fini(&a);
    rig_fini(&b);
    fl_model_destroy(&all);
    fl_model_destroy(&alone);
}

/* Catches dropout at work in evaluation, or none in training. */
static void test_layers__evaluation_drops_nothing(void **state)
{
    (void)state;
    fl_model *with = make_model(0.5f), *without = make_model(0.0f);
    rig a, b;
    begin(&a, with, 0, 4);
    begin(&b, without, 0, 4);
    int64_t n = rig_elements(&b.act[3]);
    assert_int_equal(rig_forward(&b), FL_OK);
    assert_int_equal(rig_forward(&a), FL_OK);
    double difference = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += fabs((double)fl_f32(&a.act[3])[i] - (double)fl_f32(&b.act[3])[i]);
    }
    assert_true(difference > 0.1);
    a.x.training = false;
    assert_int_equal(rig_forward(&a), FL_OK);
    assert_near(fl_f32(&a.act[3]), fl_f32(&b.act[3]), n);
    assert_int_equal(a.keep.used_bytes, 0);
    rig_fini(&a);
    rig_fini(&b);
    fl_model_destroy(&with);
    fl_model_destroy(&without);
}

/* An epoch or a seed of its own gives masks of its own. */
static void test_layers__masks_change_with_epoch_and_seed(void **state)
{
    (void)state;
    fl_model *model = make_model(0.5f);
    rig r;
    float first[4 * CLASSES];
    begin(&r, model, 0, 4);
    assert_int_equal(rig_forward(&r), FL_OK);
    memcpy(first, fl_f32(&r.act[3]), sizeof first);
    r.batch.epoch++;
    assert_int_equal(rig_forward(&r), FL_OK);
    assert_memory_not_equal(first, fl_f32(&r.act[3]), sizeof first);
    r.batch.epoch--;
    r.batch.seed++;
    assert_int_equal(rig_forward(&r), FL_OK);
    assert_memory_not_equal(first, fl_f32(&r.act[3]), sizeof first);
    r.batch.seed--;
    assert_int_equal(rig_forward(&r), FL_OK);
    assert_memory_equal(first, fl_f32(&r.act[3]), sizeof first);
    rig_fini(&r);
    fl_model_destroy(&model);
}

static size_t aligned(int64_t n_floats)
{
    return ((size_t)n_floats * sizeof(float) + 63) / 64 * 64;
}

/* Catches a layer that comes to keep more than its file says. A dry run sees the same bytes. */
static void test_layers__keep_what_they_say(void **state)
{
    (void)state;
    fl_model *model = make_model(0.0f);
    rig r;
    begin(&r, model, 0, 4);
    int64_t T = r.act[0].n_tokens, n = N_SAMPLES;
    const size_t kept[3] = {
        2 * aligned(T) + aligned(3 * T * DIM) + aligned(T * DIM) + aligned(T * HEADS),
        2 * aligned(T) + aligned(T * HIDDEN),
        2 * aligned(n) + 2 * aligned(n * DIM),
    };
    fl_device *null = NULL;
    assert_int_equal(fl_device_null_create(&null), FL_OK);
    fl_device *devices[2] = {device, null};
    for (int k = 0; k < 2; k++) {
        r.x.device = devices[k];
        fl_arena_release(&r.keep, 0);
        for (int i = 0; i < 3; i++) {
            size_t before = r.keep.used_bytes;
            assert_int_equal(fl_exec_forward(&r.x, model, i, &r.params[i], &r.frame[i], &r.act[i],
                                             &r.act[i + 1]),
                             FL_OK);
            assert_int_equal(r.keep.used_bytes - before, kept[i]);
        }
        assert_int_equal(rig_backward(&r, true), FL_OK);
    }
    r.x.device = device;
    rig_fini(&r);
    fl_device_destroy(&null);
    fl_model_destroy(&model);
}

/* A layer in the middle that may not keep anything more gives the numbers. */
static void test_layers__full_arena_names_the_layer(void **state)
{
    (void)state;
    fl_model *model = make_model(0.0f);
    rig r;
    begin(&r, model, 0, 4);
    r.keep.capacity_bytes = 3072; /* the attention sublayer fits, the MLP does not */
    assert_int_equal(rig_forward(&r), FL_EBUDGET);
    assert_non_null(strstr(fl_errmsg(), "layer 1 (mlp): kept: "));
    assert_int_equal(r.scratch.used_bytes, 0);
    rig_fini(&r);
    fl_model_destroy(&model);
}

static void test_layers__loss_refuses_what_is_no_class(void **state)
{
    (void)state;
    static const int32_t offsets[3] = {0, 1, 3};
    static const int64_t ids[2] = {71, 72};
    static float logits[3 * CLASSES];
    int32_t target[3] = {0, 4, 5};
    fl_loss loss = {0};
    assert_int_equal(fl_loss_cross_entropy(CLASSES, &loss), FL_OK);
    fl_batch batch = {.n_samples = 2, .sample_ids = ids, .n_global = 2};
    fl_exec x = {.device = device, .batch = &batch, .training = true};
    fl_tensor out = {logits, offsets, offsets, 2, 3, CLASSES, FL_F32};
    fl_tensor targets = {target, offsets, offsets, 2, 3, 1, FL_I32};
    fl_loss_sums sums = {0};
    assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, 1.0f, NULL, &sums),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(), "sample 72: target 5, allowed is 0 to 4");
    target[2] = -1;
    assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, 1.0f, NULL, &sums),
                     FL_EINVAL);
    assert_true(sums.loss == 0.0 && sums.n_targets == 0.0);
    target[2] = 0;
    assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, 1.0f, NULL, &sums), FL_OK);
    assert_true(sums.n_targets == 3.0);
    assert_true(fabs(sums.loss - 3.0 * log(CLASSES)) < 1e-6); /* logits of 0: all alike */
    targets.n_tokens = 2;
    assert_int_equal(loss.ops->forward(loss.self, &x, &out, &targets, 1.0f, NULL, &sums),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "takes 3 int32 targets here, the data set gives 2 int32 targets");
    loss.ops->destroy(loss.self);
}

static int make_device(void **state)
{
    (void)state;
    return fl_device_cpu_create(1, NULL, (size_t)1 << 28, &device) == FL_OK ? 0 : -1;
}

static int drop_device(void **state)
{
    (void)state;
    fl_device_destroy(&device);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers__micro_batches_do_not_change_the_result),
        cmocka_unit_test(test_layers__first_token_alone_is_the_same),
        cmocka_unit_test(test_layers__evaluation_drops_nothing),
        cmocka_unit_test(test_layers__masks_change_with_epoch_and_seed),
        cmocka_unit_test(test_layers__keep_what_they_say),
        cmocka_unit_test(test_layers__full_arena_names_the_layer),
        cmocka_unit_test(test_layers__loss_refuses_what_is_no_class),
    };
    return cmocka_run_group_tests(tests, make_device, drop_device);
}
