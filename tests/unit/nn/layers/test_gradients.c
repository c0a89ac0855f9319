/* Every ready layer through the checks that `frostline check-model` makes: gradients against finite
 * differences, memory, batching, evaluation. Odd sizes, ragged samples down to one token, dropout
 * on (its mask is a pure function, so differences see it). */
#include "nn/check/layer.h"
#include "nn/check/loss.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_SAMPLES = 4 };

static const int64_t lengths[N_SAMPLES] = {3, 1, 7, 2};
static const int64_t images[N_SAMPLES] = {1, 1, 1, 1};

/* What the checks of one layer came to. */
typedef struct findings {
    int n_passed, n_gradients;
    char failed[2048];
} findings;

static void take(void *context, const fl_check_result *result)
{
    findings *f = context;
    f->n_passed += result->state == FL_CHECK_PASSED;
    f->n_gradients += result->state == FL_CHECK_PASSED && result->error == result->error;
    if (result->state == FL_CHECK_FAILED) {
        size_t n = strlen(f->failed);
        snprintf(f->failed + n, sizeof f->failed - n, "%s: %s\n", result->name, result->text);
    }
}

static fl_check_options options_for(findings *f)
{
    fl_check_options options = fl_check_defaults();
    options.seen = take;
    options.context = f;
    return options;
}

/* n_gradients: those that must have been compared. ids: of the samples' tokens; NULL: the layer
 * takes floats, and the gradient of the input is compared, too. */
static void check_shapes(const char *what, fl_status made, fl_layer layer, const fl_shape *shape,
                         const int32_t *ids, int n_gradients)
{
    findings f = {.n_passed = 0};
    fl_check_options options = options_for(&f);
    fl_model *model = NULL;
    int n_failed = 0;
    assert_int_equal(made, FL_OK);
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
    assert_int_equal(
        fl__check_layer(model, 0, shape, N_SAMPLES, ids, ids == NULL, &options, &n_failed), FL_OK);
    if (n_failed > 0) {
        fail_msg("%s:\n%s", what, f.failed);
    }
    assert_int_equal(f.n_gradients, n_gradients);
    assert_int_equal(f.n_passed, 7 + n_gradients);
    fl_model_destroy(&model);
}

/* n_params: gradients that must have been compared, beside the input's. */
static void check_layer(const char *what, fl_status made, fl_layer layer, int64_t width,
                        const int64_t *length, int n_params)
{
    fl_shape shape[N_SAMPLES];
    for (int s = 0; s < N_SAMPLES; s++) {
        shape[s] = (fl_shape){.tokens = length[s], .width = width, .dtype = FL_F32};
    }
    check_shapes(what, made, layer, shape, NULL, 1 + n_params);
}

static void test_gradients__attention(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made =
        fl_layer_attention(&(fl_attention_config){.dim = 15, .heads = 3, .depth = 1}, &layer);
    check_layer("attention", made, layer, 15, lengths, 6);
    made = fl_layer_attention(
        &(fl_attention_config){.dim = 7, .heads = 1, .causal = true, .depth = 1}, &layer);
    check_layer("causal attention", made, layer, 7, lengths, 6);
    made = fl_layer_attention(
        &(fl_attention_config){.dim = 12, .heads = 4, .dropout = 0.4f, .depth = 1}, &layer);
    check_layer("attention with dropout", made, layer, 12, lengths, 6);
    made = fl_layer_attention(
        &(fl_attention_config){.dim = 3, .heads = 3, .causal = true, .depth = 1}, &layer);
    check_layer("attention with heads of width 1", made, layer, 3, lengths, 6);
    made = fl_layer_attention(
        &(fl_attention_config){.dim = 10, .heads = 2, .depth = 1, .first = true}, &layer);
    check_layer("attention of the first token", made, layer, 10, lengths, 6);
    made = fl_layer_attention(
        &(fl_attention_config){.dim = 6, .heads = 3, .dropout = 0.4f, .depth = 1, .first = true},
        &layer);
    check_layer("attention of the first token with dropout", made, layer, 6, lengths, 6);
}

static void test_gradients__mlp(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_mlp(
        &(fl_mlp_config){.dim = 7, .hidden = 13, .depth = 1, .activation = FL_ACT_GELU_TANH},
        &layer);
    check_layer("mlp", made, layer, 7, lengths, 6);
    made = fl_layer_mlp(
        &(fl_mlp_config){
            .dim = 5, .hidden = 3, .dropout = 0.4f, .depth = 1, .activation = FL_ACT_GELU_TANH},
        &layer);
    check_layer("mlp with dropout", made, layer, 5, lengths, 6);
}

static void test_gradients__every_activation(void **state)
{
    (void)state;
    for (int kind = FL_ACT_GELU_TANH; kind <= FL_ACT_SILU; kind++) {
        fl_layer layer = {0};
        fl_status made = fl_layer_mlp(&(fl_mlp_config){.dim = 7,
                                                       .hidden = 13,
                                                       .depth = 1,
                                                       .activation = (fl_activation)kind,
                                                       .epsilon = 1e-12f},
                                      &layer);
        check_layer("mlp", made, layer, 7, lengths, 6);
    }
}

/* The mask of the probabilities is a pure function, so differences see it. */
static void test_gradients__attention_with_dropped_probabilities(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        fl_layer layer = {0};
        fl_status made = fl_layer_attention(&(fl_attention_config){.dim = 12,
                                                                   .heads = 3,
                                                                   .depth = 1,
                                                                   .causal = causal == 1,
                                                                   .dropout = 0.2f,
                                                                   .attention_dropout = 0.4f},
                                            &layer);
        check_layer("attention with dropped probabilities", made, layer, 12, lengths, 6);
    }
}

/* LayerNorm after the sum, with each of the ways through the layer. */
static void test_gradients__attention_with_the_norm_after(void **state)
{
    (void)state;
    for (int way = 0; way < 4; way++) {
        fl_layer layer = {0};
        bool drops = way % 2 == 1;
        fl_status made =
            fl_layer_attention(&(fl_attention_config){.dim = 12,
                                                      .heads = 3,
                                                      .depth = 1,
                                                      .dropout = drops ? 0.3f : 0,
                                                      .attention_dropout = drops ? 0.2f : 0,
                                                      .first = way >= 2,
                                                      .norm = FL_NORM_AFTER,
                                                      .deviation = 0.3f},
                               &layer);
        check_layer("attention with the norm after", made, layer, 12, lengths, 6);
    }
}

static void test_gradients__mlp_with_the_norm_after(void **state)
{
    (void)state;
    for (int drops = 0; drops < 2; drops++) {
        fl_layer layer = {0};
        fl_status made = fl_layer_mlp(&(fl_mlp_config){.dim = 7,
                                                       .hidden = 13,
                                                       .depth = 1,
                                                       .activation = FL_ACT_GELU_ERF,
                                                       .dropout = drops == 1 ? 0.4f : 0,
                                                       .norm = FL_NORM_AFTER,
                                                       .deviation = 0.3f},
                                      &layer);
        check_layer("mlp with the norm after", made, layer, 7, lengths, 6);
    }
}

static void test_gradients__pooled_classifier(void **state)
{
    (void)state;
    for (int drops = 0; drops < 2; drops++) {
        fl_layer layer = {0};
        fl_status made = fl_layer_pooled_classifier(
            &(fl_pooled_classifier_config){
                .dim = 9, .n_classes = 5, .dropout = drops == 1 ? 0.4f : 0, .deviation = 0.3f},
            &layer);
        check_layer("pooled classifier", made, layer, 9, lengths, 4);
    }
}

static void test_gradients__embedding_with_types_and_norm(void **state)
{
    (void)state;
    enum { IDS = 13 };
    static const int32_t ids[2 * IDS] = {5, 0, 0, 1, 5, 1, 3, 0, 1, 1, 1, 0, 2,
                                         1, 8, 0, 0, 0, 4, 1, 4, 0, 7, 1, 8, 1};
    fl_shape shape[N_SAMPLES];
    fl_layer layer = {0};
    for (int s = 0; s < N_SAMPLES; s++) {
        shape[s] = (fl_shape){.tokens = lengths[s], .width = 2, .dtype = FL_I32, .n_ids = 9};
    }
    fl_embedding_config c = {.rows = 9,
                             .positions = 7,
                             .types = 2,
                             .dim = 5,
                             .dropout = 0.3f,
                             .norm = true,
                             .deviation = 0.5f};
    check_shapes("embedding with types", fl_layer_embedding(&c, &layer), layer, shape, ids, 5);
    c.positions = 0;
    c.dropout = 0;
    check_shapes("embedding of tokens and types", fl_layer_embedding(&c, &layer), layer, shape, ids,
                 4);
}

static void test_gradients__embedding(void **state)
{
    (void)state;
    enum { IDS = 13 };
    static const int32_t ids[IDS] = {5, 0, 5, 3, 1, 1, 2, 8, 0, 4, 4, 7, 8};
    fl_shape shape[N_SAMPLES];
    fl_layer layer = {0};
    for (int s = 0; s < N_SAMPLES; s++) {
        shape[s] = (fl_shape){.tokens = lengths[s], .width = 1, .dtype = FL_I32, .n_ids = 9};
    }
    fl_status made = fl_layer_embedding(
        &(fl_embedding_config){.rows = 9, .positions = 7, .dim = 5, .dropout = 0.3f}, &layer);
    check_shapes("embedding", made, layer, shape, ids, 2);
    assert_int_equal(
        fl_layer_embedding(&(fl_embedding_config){.rows = 9, .n_ids = 10, .dim = 5}, &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "embedding: n_ids is 10, allowed is 0 (all rows) to 9");
    made = fl_layer_embedding(&(fl_embedding_config){.rows = 11, .dim = 6}, &layer);
    check_shapes("embedding without positions", made, layer, shape, ids, 1);
}

static void test_gradients__norm(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_norm(&(fl_norm_config){.dim = 9}, &layer);
    check_layer("norm", made, layer, 9, lengths, 2);
    made =
        fl_layer_norm(&(fl_norm_config){.dim = 9, .kind = FL_NORM_RMS, .epsilon = 1e-6f}, &layer);
    check_layer("RMSNorm", made, layer, 9, lengths, 1);
}

static void test_gradients__linear(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_linear(5, 11, &layer);
    check_layer("linear", made, layer, 5, lengths, 2);
    made = fl_layer_linear(17, 1, &layer);
    check_layer("linear to one", made, layer, 17, lengths, 2);
}

static void test_gradients__classifier(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_classifier(9, 5, &layer);
    check_layer("classifier", made, layer, 9, lengths, 4);
}

static void test_gradients__patch_embed(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_status made = fl_layer_patch_embed(3, 6, 9, 3, 7, &layer);
    check_layer("patch_embed", made, layer, 3 * 6 * 9, images, 4);
    made = fl_layer_patch_embed(1, 5, 5, 5, 3, &layer);
    check_layer("patch_embed of one patch", made, layer, 25, images, 4);
}

/* The loss's gradient is that of grad_scale times the sum of losses. */
static void test_gradients__cross_entropy(void **state)
{
    (void)state;
    enum { ROWS = 6, CLASSES = 7, SAMPLES = 3 };
    static const int32_t rows[SAMPLES + 1] = {0, 1, 4, 6};
    int32_t target[ROWS] = {0, 6, 3, 3, 1, 5};
    const fl_shape shape[SAMPLES] = {
        {1, CLASSES, FL_F32, 0}, {3, CLASSES, FL_F32, 0}, {2, CLASSES, FL_F32, 0}};
    const fl_tensor targets = {target, rows, rows, SAMPLES, ROWS, 1, FL_I32};
    findings f = {.n_passed = 0};
    fl_check_options options = options_for(&f);
    fl_model *model = NULL;
    fl_loss loss = {0};
    int n_failed = 0;
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    assert_int_equal(fl_loss_cross_entropy(CLASSES, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    assert_int_equal(fl__check_loss(model, shape, &targets, &options, &n_failed), FL_OK);
    if (n_failed > 0) {
        fail_msg("%s", f.failed);
    }
    assert_int_equal(f.n_passed, 2);
    assert_int_equal(f.n_gradients, 1);
    fl_model_destroy(&model);
}

/* The loss multiplies by a weight of the last layer and gives that weight's gradient, too; the rows
 * beyond the vocabulary move with the others and change nothing. */
static void test_gradients__lm_head(void **state)
{
    (void)state;
    enum { ROWS = 6, DIM = 5, SAMPLES = 3 };
    static const int32_t rows[SAMPLES + 1] = {0, 1, 4, 6};
    const fl_lm_head_config config = {.dim = DIM, .vocabulary = 7};
    int32_t target[ROWS] = {0, 6, 3, 3, 1, 5};
    const fl_shape shape[SAMPLES] = {{1, DIM, FL_F32, 0}, {3, DIM, FL_F32, 0}, {2, DIM, FL_F32, 0}};
    const fl_tensor targets = {target, rows, rows, SAMPLES, ROWS, 1, FL_I32};
    findings f = {.n_passed = 0};
    fl_check_options options = options_for(&f);
    fl_model *model = NULL;
    fl_layer layer = {0};
    fl_loss loss = {0};
    int n_failed = 0;
    fl_status made = fl_layer_lm_head(&config, &layer);
    check_layer("lm_head", made, layer, DIM, lengths, 3);
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    assert_int_equal(fl_layer_lm_head(&config, &layer), FL_OK);
    assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
    assert_int_equal(fl_loss_lm_head(&config, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    assert_int_equal(fl__check_loss(model, shape, &targets, &options, &n_failed), FL_OK);
    if (n_failed > 0) {
        fail_msg("%s", f.failed);
    }
    assert_int_equal(f.n_passed, 2);
    assert_int_equal(f.n_gradients, 1);
    fl_model_destroy(&model);
}

/* Two values a row. */
static void test_gradients__mse(void **state)
{
    (void)state;
    enum { ROWS = 6, WIDTH = 2, SAMPLES = 3 };
    static const int32_t places[SAMPLES + 1] = {0, 2, 8, 12};
    float target[ROWS * WIDTH] = {0.5f, -1, 2, 0, 1e-3f, 3, -2, 0.25f, 1, 1, -0.5f, 4};
    const fl_shape shape[SAMPLES] = {{.tokens = 1, .width = WIDTH},
                                     {.tokens = 3, .width = WIDTH},
                                     {.tokens = 2, .width = WIDTH}};
    const fl_tensor targets = {target, places, places, SAMPLES, ROWS * WIDTH, 1, FL_F32};
    findings f = {.n_passed = 0};
    fl_check_options options = options_for(&f);
    fl_model *model = NULL;
    int n_failed = 0;
    assert_int_equal(fl_model_create("test", &model), FL_OK);
    assert_int_equal(fl_model_set_loss(model, fl_loss_mse()), FL_OK);
    assert_int_equal(fl__check_loss(model, shape, &targets, &options, &n_failed), FL_OK);
    if (n_failed > 0) {
        fail_msg("%s", f.failed);
    }
    assert_int_equal(f.n_passed, 2);
    assert_int_equal(f.n_gradients, 1);
    fl_model_destroy(&model);
}

/* As a program calls it: a whole model with its data set, and the defaults. */
static void test_gradients__a_program_checks_its_model(void **state)
{
    (void)state;
    fl_model *model = NULL;
    fl_dataset dataset = {0};
    findings f = {.n_passed = 0};
    fl_check_options options = options_for(&f);
    int n_failed = -1;
    assert_int_equal(fl_toy_model(2, 0.2f, &model), FL_OK);
    assert_int_equal(fl_toy_dataset(8, &dataset), FL_OK);
    assert_int_equal(fl_check_model(model, &dataset, NULL, &n_failed), FL_OK);
    assert_int_equal(n_failed, 0);
    assert_int_equal(fl_check_model(model, &dataset, &options, &n_failed), FL_OK);
    assert_int_equal(n_failed, 0);
    assert_true(f.n_passed > 6 * 7);
    options.n_samples = FL_CHECK_SAMPLES_MAX + 1;
    assert_int_equal(fl_check_model(model, &dataset, &options, &n_failed), FL_EINVAL);
    fl_dataset_destroy(&dataset);
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients__attention),
        cmocka_unit_test(test_gradients__mlp),
        cmocka_unit_test(test_gradients__every_activation),
        cmocka_unit_test(test_gradients__attention_with_dropped_probabilities),
        cmocka_unit_test(test_gradients__attention_with_the_norm_after),
        cmocka_unit_test(test_gradients__mlp_with_the_norm_after),
        cmocka_unit_test(test_gradients__pooled_classifier),
        cmocka_unit_test(test_gradients__embedding_with_types_and_norm),
        cmocka_unit_test(test_gradients__embedding),
        cmocka_unit_test(test_gradients__norm),
        cmocka_unit_test(test_gradients__linear),
        cmocka_unit_test(test_gradients__classifier),
        cmocka_unit_test(test_gradients__patch_embed),
        cmocka_unit_test(test_gradients__cross_entropy),
        cmocka_unit_test(test_gradients__lm_head),
        cmocka_unit_test(test_gradients__mse),
        cmocka_unit_test(test_gradients__a_program_checks_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
