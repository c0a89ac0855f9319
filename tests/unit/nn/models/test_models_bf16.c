/* The ready models with bf16 activations, against the same models in fp32: loss and gradients stay
 * near, and a sample's output is the same bits alone and among others. Catches a layer that takes
 * one type for the other, keeps too little, or computes in bf16 what must be fp32. */
#include "support/device/nn_rig.h"

#include "device/cpu/bf16.h"
#include "device/random/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { SAMPLES = 5, ARENA_BYTES = 4 << 20, IDS = 50, SIDE = 8, MAX_TARGETS = 64 };

/* A model, and what its samples are. */
typedef struct subject {
    const char *name;
    fl_status (*create)(fl_dtype dtype, fl_model **out);
    fl_shape raw;
    int64_t length[SAMPLES];
    int n_targets; /* of a sample; 0: one for each token */
    int32_t below; /* targets are 0 .. below - 1 */
} subject;

static fl_status create_vit(fl_dtype dtype, fl_model **out)
{
    const fl_vit_config config = {.channels = 1,
                                  .height = SIDE,
                                  .width = SIDE,
                                  .patch = 4,
                                  .dim = 48,
                                  .heads = 3,
                                  .blocks = 3,
                                  .n_classes = 5,
                                  .dropout = 0.1f,
                                  .embedding_dropout = 0.1f,
                                  .dtype = dtype};
    return fl_model_vit(&config, out);
}

static fl_status create_bert(fl_dtype dtype, fl_bert_head head, fl_model **out)
{
    const fl_bert_config config = {.head = head,
                                   .vocabulary = IDS,
                                   .positions = 32,
                                   .types = 2,
                                   .dim = 40,
                                   .hidden = 70,
                                   .heads = 4,
                                   .blocks = 2,
                                   .n_classes = 3,
                                   .activation = FL_ACT_GELU_ERF,
                                   .deviation = 0.2f,
                                   .dropout = 0.1f,
                                   .attention_dropout = 0.1f,
                                   .head_dropout = 0.1f,
                                   .dtype = dtype};
    return fl_model_bert(&config, out);
}

static fl_status create_classifier(fl_dtype dtype, fl_model **out)
{
    return create_bert(dtype, FL_BERT_CLASSIFIES, out);
}

static fl_status create_answers(fl_dtype dtype, fl_model **out)
{
    return create_bert(dtype, FL_BERT_ANSWERS, out);
}

static fl_status create_gpt2(fl_dtype dtype, fl_model **out)
{
    const fl_gpt2_config config = {.vocabulary = IDS,
                                   .positions = 32,
                                   .dim = 44,
                                   .heads = 2,
                                   .blocks = 2,
                                   .embedding_dropout = 0.1f,
                                   .dtype = dtype};
    return fl_model_gpt2(&config, out);
}

#define IDS_SHAPE                                                                                  \
    {                                                                                              \
        .tokens = 1, .width = 1, .dtype = FL_I32, .n_ids = IDS                                     \
    }

static const subject subjects[] = {
    {"vit",
     create_vit,
     {.tokens = 1, .width = SIDE * SIDE, .dtype = FL_F32},
     {1, 1, 1, 1, 1},
     1,
     5},
    {"bert", create_classifier, IDS_SHAPE, {7, 1, 13, 2, 9}, 1, 3},
    {"bert that answers", create_answers, IDS_SHAPE, {7, 3, 13, 2, 9}, 2, 2},
    {"gpt2", create_gpt2, IDS_SHAPE, {7, 1, 13, 2, 9}, 0, IDS},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

typedef struct trial {
    rig r;
    fl_model *model;
    int32_t target[MAX_TARGETS], offsets[SAMPLES + 1];
    fl_tensor targets;
    double loss;
} trial;

static void draw_input(const subject *s, fl_tensor *in)
{
    for (int64_t i = 0; i < rig_elements(in); i++) {
        const uint32_t counter[4] = {(uint32_t)i, 0, 0, 0}, key[2] = {3, 7};
        uint32_t word[4];
        fl_philox(counter, key, word);
        if (s->raw.dtype == FL_I32) {
            fl_i32(in)[i] = (int32_t)(word[0] % IDS);
        } else {
            fl_f32(in)[i] = 2.0f * fl_unit(word[0]) - 1.0f;
        }
    }
}

static void set_up(trial *t, fl_device *device, const subject *s, fl_dtype dtype, int64_t n)
{
    assert_int_equal(s->create(dtype, &t->model), FL_OK);
    assert_int_equal(rig_init(&t->r, device, t->model, &s->raw, s->length, n, ARENA_BYTES), FL_OK);
    draw_input(s, &t->r.act[0]);
    t->offsets[0] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t each = s->n_targets > 0 ? s->n_targets : s->length[i];
        t->offsets[i + 1] = t->offsets[i] + (int32_t)each;
    }
    for (int i = 0; i < t->offsets[n]; i++) {
        t->target[i] = i % s->below;
    }
    t->targets = (fl_tensor){t->target, t->offsets, t->offsets, n, t->offsets[n], 1, FL_I32};
}

static void step(trial *t)
{
    int last = t->r.n_layers;
    fl_loss_sums sums = {0};
    t->r.x.params = &t->r.params[last - 1];
    assert_int_equal(rig_clear_grads(&t->r), FL_OK);
    assert_int_equal(rig_forward(&t->r), FL_OK);
    assert_int_equal(fl_exec_loss(&t->r.x, t->model, &t->r.act[last], &t->targets,
                                  1.0f / (float)t->targets.n_tokens, &t->r.grad[last], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(&t->r, false), FL_OK);
    t->loss = sums.loss / sums.n_targets;
}

static void tear_down(trial *t)
{
    rig_fini(&t->r);
    fl_model_destroy(&t->model);
}

/* The size of the difference of two gradients, relative to the second's. */
static double distance(const float *a, const float *b, int64_t n)
{
    double apart = 0.0, size = 0.0;
    for (int64_t i = 0; i < n; i++) {
        apart += pow((double)a[i] - (double)b[i], 2.0);
        size += pow((double)b[i], 2.0);
    }
    return size == 0.0 ? sqrt(apart) : sqrt(apart / size);
}

/* Gradients of all parameters as one vector are within 2 % of those of fp32, and each that is not
 * tiny beside the others within 8 %. */
static void compare(const subject *s, const trial *narrow, const trial *wide)
{
    double apart = 0.0, size = 0.0;
    if (!(fabs(narrow->loss - wide->loss) <= 1e-2 * fabs(wide->loss))) {
        fail_msg("%s: the loss is %g, in fp32 %g", s->name, narrow->loss, wide->loss);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < wide->r.n_layers; i++) {
            for (int j = 0; j < wide->r.params[i].n; j++) {
                int64_t n = wide->r.weight[i][j].rows * wide->r.weight[i][j].cols;
                const float *a = narrow->r.wgrad[i][j], *b = wide->r.wgrad[i][j];
                double far = distance(a, b, n), own = 0.0;
                for (int64_t k = 0; k < n; k++) {
                    own += (double)b[k] * (double)b[k];
                }
                if (pass == 0) {
                    size += own;
                    apart += far * far * own;
                } else if (own > 1e-4 * size && !(far <= 0.08)) {
                    fail_msg("%s: layer %d, parameter %d: the gradient is %g off", s->name, i, j,
                             far);
                }
            }
        }
    }
    if (!(sqrt(apart / size) <= 0.02)) {
        fail_msg("%s: the gradients are %g off", s->name, sqrt(apart / size));
    }
}

static void test_models_bf16__are_near_fp32(void **state)
{
    (void)state;
    fl_device *device = NULL;
    assert_int_equal(fl_device_cpu_create(2, NULL, SIZE_MAX, &device), FL_OK);
    for (int i = 0; i < N_SUBJECTS; i++) {
        static trial narrow, wide;
        set_up(&narrow, device, &subjects[i], FL_BF16, SAMPLES);
        set_up(&wide, device, &subjects[i], FL_F32, SAMPLES);
        step(&narrow);
        step(&wide);
        compare(&subjects[i], &narrow, &wide);
        assert_int_equal(narrow.r.act[1].dtype, FL_BF16);
        assert_int_equal(narrow.r.act[wide.r.n_layers - 1].dtype, FL_BF16);
        assert_true(narrow.r.keep.peak_bytes < wide.r.keep.peak_bytes * 6 / 10 + 4096);
        tear_down(&narrow);
        tear_down(&wide);
    }
    fl_device_destroy(&device);
}

static size_t row_bytes(const fl_tensor *t)
{
    return (size_t)t->width * fl_dtype_size(t->dtype);
}

/* The first two samples alone, on one thread, against all on two: outputs of every layer, and the
 * gradients of every layer's input under the same scale of the loss. */
static void check_alone(const subject *s, fl_device *one, fl_device *two)
{
    static trial all, some;
    set_up(&all, two, s, FL_BF16, SAMPLES);
    set_up(&some, one, s, FL_BF16, 2);
    memcpy(some.target, all.target, sizeof all.target);
    some.targets.n_tokens = some.offsets[2];
    step(&all);
    fl_loss_sums sums = {0};
    int last = all.r.n_layers;
    some.r.x.params = &some.r.params[last - 1];
    assert_int_equal(rig_clear_grads(&some.r), FL_OK);
    assert_int_equal(rig_forward(&some.r), FL_OK);
    assert_int_equal(fl_exec_loss(&some.r.x, some.model, &some.r.act[last], &some.targets,
                                  1.0f / (float)all.targets.n_tokens, &some.r.grad[last], &sums),
                     FL_OK);
    assert_int_equal(rig_backward(&some.r, false), FL_OK);
    for (int i = 1; i <= last; i++) {
        const fl_tensor *a = &some.r.act[i];
        size_t bytes = (size_t)a->n_tokens * row_bytes(a);
        assert_memory_equal(a->data, all.r.act[i].data, bytes);
        assert_memory_equal(some.r.grad[i].data, all.r.grad[i].data, bytes);
    }
    tear_down(&all);
    tear_down(&some);
}

static void test_models_bf16__a_sample_has_the_same_bits_among_others(void **state)
{
    (void)state;
    fl_device *one = NULL, *two = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, SIZE_MAX, &one), FL_OK);
    assert_int_equal(fl_device_cpu_create(2, NULL, SIZE_MAX, &two), FL_OK);
    for (int i = 0; i < N_SUBJECTS; i++) {
        check_alone(&subjects[i], one, two);
    }
    fl_device_destroy(&one);
    fl_device_destroy(&two);
}

/* A loss of fp32 refuses what a layer of bf16 gives, and a patch embedding refuses bf16 images. */
static void test_models_bf16__types_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_model *model = NULL;
    const fl_shape image = {.tokens = 1, .width = SIDE * SIDE, .dtype = FL_F32};
    const fl_patch_embed_config config = {
        .channels = 1, .height = SIDE, .width = SIDE, .patch = SIDE, .dim = 4, .dtype = FL_I32};
    assert_int_equal(fl_layer_patch_embed_with(&config, &layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "patch_embed: dtype is int32, allowed are fp32 and bf16");
    fl_patch_embed_config good = config;
    good.dtype = FL_BF16;
    assert_int_equal(fl_layer_patch_embed_with(&good, &layer), FL_OK);
    assert_int_equal(fl_model_create("m", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
    assert_int_equal(fl_model_set_loss(model, fl_loss_mse()), FL_OK);
    assert_int_equal(fl_model_check(model, &image), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "takes fp32, got bf16"));
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_bf16__are_near_fp32),
        cmocka_unit_test(test_models_bf16__a_sample_has_the_same_bits_among_others),
        cmocka_unit_test(test_models_bf16__types_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
