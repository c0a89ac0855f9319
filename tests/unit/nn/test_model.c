/* Models: blocks, shapes, ownership, and the messages about impossible sizes. */
#include "device/system/alloc.h"
#include "nn/model.h"
#include "support/data/toy.h"

#include <frostline/plan.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const fl_vit_config small = {.channels = 1,
                                    .height = 28,
                                    .width = 28,
                                    .patch = 7,
                                    .dim = 12,
                                    .heads = 3,
                                    .blocks = 4,
                                    .n_classes = 10,
                                    .dropout = 0.1f};

static void test_model__vit_is_laid_out_in_blocks(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&small, &model), FL_OK);
    assert_string_equal(fl_model_name(model), "vit");
    assert_int_equal(fl_model_n_layers(model), 10);
    assert_int_equal(fl_model_n_blocks(model), 4);
    static const int block[10] = {1, 1, 1, 2, 2, 3, 3, 4, 4, FL_BLOCK_HEAD};
    static const char *const kind[10] = {"patch_embed", "attention", "mlp", "attention",
                                         "mlp",         "attention", "mlp", "attention-first",
                                         "mlp",         "classifier"};
    int64_t n = 0;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(fl_model_block_of(model, i), block[i]);
        assert_string_equal(fl_model_layer_kind(model, i), kind[i]);
        n += fl_model_layer_n_params(model, i);
    }
    int64_t C = 12, embed = C * 49 + C + C + 17 * C;
    int64_t attention = 2 * C + 3 * C * C + 3 * C + C * C + C;
    int64_t mlp = 2 * C + 8 * C * C + 5 * C, head = 2 * C + 10 * C + 10;
    assert_int_equal(fl_model_layer_n_params(model, 0), embed);
    assert_int_equal(fl_model_layer_n_params(model, 1), attention);
    assert_int_equal(fl_model_layer_n_params(model, 2), mlp);
    assert_int_equal(fl_model_n_params(model), embed + 4 * (attention + mlp) + head);
    assert_int_equal(n, fl_model_n_params(model));
    fl_model_destroy(&model);
    assert_null(model);
    fl_model_destroy(&model);
}

static void test_model__shapes_follow_the_layers(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&small, &model), FL_OK);
    const fl_shape image = {.tokens = 1, .width = 784, .dtype = FL_F32};
    fl_shape out;
    assert_int_equal(fl_model_shape(model, -1, &image, &out), FL_OK);
    assert_int_equal(out.width, 784);
    assert_int_equal(fl_model_shape(model, 0, &image, &out), FL_OK);
    assert_int_equal(out.tokens, 17);
    assert_int_equal(out.width, 12);
    assert_int_equal(fl_model_shape(model, 9, &image, &out), FL_OK);
    assert_int_equal(out.tokens, 1);
    assert_int_equal(out.width, 10);
    assert_int_equal(fl_model_check(model, &image), FL_OK);
    fl_model_destroy(&model);
}

static void test_model__wrong_input_names_layer_and_numbers(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&small, &model), FL_OK);
    fl_shape image = {.tokens = 1, .width = 783, .dtype = FL_F32};
    assert_int_equal(fl_model_check(model, &image), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "model 'vit': layer 0, embed (patch_embed): takes rows of width 784, "
                        "got [1, 783]");
    image = (fl_shape){.tokens = 2, .width = 784, .dtype = FL_F32};
    assert_int_equal(fl_model_check(model, &image), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "takes one image a sample, got 2 rows"));
    image = (fl_shape){.tokens = 1, .width = 784, .dtype = FL_I32};
    assert_int_equal(fl_model_check(model, &image), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "takes fp32, got int32"));
    fl_model_destroy(&model);
}

static void assert_refused(fl_status status, const char *message)
{
    assert_int_equal(status, FL_EINVAL);
    assert_string_equal(fl_errmsg(), message);
}

/* BERT's options. */
static void test_model__impossible_options_get_a_message(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_model *model = NULL;
    fl_attention_config attention = {.dim = 4, .heads = 2, .depth = 1, .norm = (fl_norm_place)2};
    fl_embedding_config embedding = {.rows = 9, .dim = 4, .has_padding = true, .padding = 9};
    fl_pooled_classifier_config head = {.dim = 4, .n_classes = 2, .deviation = -0.5f};
    fl_bert_config bert = {.vocabulary = 9, .positions = 4, .dim = 4, .hidden = 8, .heads = 2};
    assert_refused(fl_layer_attention(&attention, &layer),
                   "attention: norm is 2, allowed are FL_NORM_BEFORE and FL_NORM_AFTER");
    attention = (fl_attention_config){.dim = 4, .heads = 2, .depth = 1, .deviation = NAN};
    assert_refused(fl_layer_attention(&attention, &layer),
                   "attention: deviation is nan, allowed is 0 (the default) or more");
    assert_refused(fl_layer_embedding(&embedding, &layer),
                   "embedding: padding is 9, allowed is 0 to 8");
    embedding = (fl_embedding_config){.rows = 9, .dim = 4, .types = -1};
    assert_refused(fl_layer_embedding(&embedding, &layer),
                   "embedding: types is -1, allowed is 1 to 1048576");
    assert_refused(fl_layer_pooled_classifier(&head, &layer),
                   "pooled-classifier: deviation is -0.5, allowed is 0 (the default) or more");
    assert_refused(fl_model_bert(&bert, &model), "bert: blocks is 0, allowed is 1 or more");
    bert.blocks = 1;
    assert_refused(fl_model_bert(&bert, &model),
                   "bert: mlp: activation is 0, allowed is FL_ACT_GELU_TANH to FL_ACT_SILU");
}

/* Each ready layer and model refuses what cannot be, with its kind and the numbers. */
static void test_model__impossible_sizes_get_a_message(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_loss loss = {0};
    assert_int_equal(
        fl_layer_attention(&(fl_attention_config){.dim = 100, .heads = 3, .depth = 1}, &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "attention: dim 100 is not a multiple of heads 3");
    assert_int_equal(
        fl_layer_attention(&(fl_attention_config){.dim = 0, .heads = 1, .depth = 1}, &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "attention: dim is 0, allowed is 1 to 1048576");
    assert_int_equal(
        fl_layer_attention(&(fl_attention_config){.dim = 4, .heads = -1, .depth = 1}, &layer),
        FL_EINVAL);
    assert_int_equal(
        fl_layer_attention(
            &(fl_attention_config){.dim = 4, .heads = 2, .dropout = 1.0f, .depth = 1}, &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "attention: dropout is 1, allowed is 0 to below 1");
    assert_int_equal(fl_layer_mlp(&(fl_mlp_config){.dim = 4,
                                                   .hidden = 8,
                                                   .dropout = -0.1f,
                                                   .depth = 1,
                                                   .activation = FL_ACT_GELU_TANH},
                                  &layer),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(), "mlp: dropout is -0.1, allowed is 0 to below 1");
    assert_int_equal(
        fl_layer_mlp(
            &(fl_mlp_config){
                .dim = 4, .hidden = 8, .dropout = NAN, .depth = 1, .activation = FL_ACT_GELU_TANH},
            &layer),
        FL_EINVAL);
    assert_int_equal(
        fl_layer_mlp(
            &(fl_mlp_config){.dim = 4, .hidden = 0, .depth = 1, .activation = FL_ACT_GELU_TANH},
            &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "mlp: hidden is 0, allowed is 1 to 1048576");
    assert_int_equal(
        fl_layer_mlp(&(fl_mlp_config){.dim = 4, .hidden = 8, .activation = FL_ACT_GELU_TANH},
                     &layer),
        FL_EINVAL);
    assert_string_equal(fl_errmsg(), "mlp: depth is 0, allowed is 1 to 1048576");
    assert_int_equal(fl_layer_attention(&(fl_attention_config){.dim = 4, .heads = 2}, &layer),
                     FL_EINVAL);
    assert_int_equal(fl_layer_patch_embed(1, 28, 27, 7, 8, &layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "patch_embed: images of 28 x 27 pixels cannot be cut into "
                                     "patches of 7 x 7");
    assert_int_equal(fl_layer_patch_embed(1, 28, 28, 0, 8, &layer), FL_EINVAL);
    assert_int_equal(fl_layer_patch_embed(1024, 65536, 65536, 16, 8, &layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "patch_embed: images of 1024 x 65536 x 65536 are too large");
    assert_int_equal(fl_layer_mlp(&(fl_mlp_config){.dim = 4, .hidden = 8, .depth = 1}, &layer),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "mlp: activation is 0, allowed is FL_ACT_GELU_TANH to FL_ACT_SILU");
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4, .epsilon = -1.0f}, &layer),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(), "norm: epsilon is -1, allowed is 0 (the default) or more");
    assert_int_equal(
        fl_layer_attention(
            &(fl_attention_config){.dim = 4, .heads = 2, .depth = 1, .attention_dropout = 1.0f},
            &layer),
        FL_EINVAL);
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = -3}, &layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "norm: dim is -3, allowed is 1 to 1048576");
    assert_int_equal(fl_layer_linear(4, 0, &layer), FL_EINVAL);
    assert_int_equal(fl_layer_classifier(4, 0, &layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "classifier: n_classes is 0, allowed is 1 to 1048576");
    assert_int_equal(fl_loss_cross_entropy(0, &loss), FL_EINVAL);
    assert_null(layer.ops);
    assert_null(loss.ops);

    fl_model *model = NULL;
    fl_vit_config config = small;
    config.heads = 5;
    assert_int_equal(fl_model_vit(&config, &model), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "vit: attention: dim 12 is not a multiple of heads 5");
    config = small;
    config.blocks = 0;
    assert_int_equal(fl_model_vit(&config, &model), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "vit: blocks is 0, allowed is 1 or more");
    config.blocks = FL_MAX_LAYERS;
    assert_int_equal(fl_model_vit(&config, &model), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "a model has at most 512 layers"));
    assert_null(model);
}

static void add_linear(fl_model *model, int block, int64_t n_in, int64_t n_out)
{
    fl_layer layer = {0};
    assert_int_equal(fl_layer_linear(n_in, n_out, &layer), FL_OK);
    assert_int_equal(fl_model_add(model, block, layer), FL_OK);
}

/* How far the first weights of the last parameter but one, proj, may lie from zero. */
static float branch_scale(fl_status made, fl_layer *layer)
{
    fl_param_list list = {0};
    assert_int_equal(made, FL_OK);
    assert_int_equal(layer->ops->params(layer->self, &list), FL_OK);
    assert_string_equal(list.spec[list.n - 2].name, "proj.weight");
    float scale = list.spec[list.n - 2].scale;
    fl_free(list.spec);
    layer->ops->destroy(layer->self);
    return scale;
}

/* Would catch: a depth that is checked and not used. */
static void test_model__deep_models_begin_with_small_branches(void **state)
{
    (void)state;
    fl_layer layer = {0};
    assert_true(branch_scale(fl_layer_mlp(&(fl_mlp_config){.dim = 8,
                                                           .hidden = 16,
                                                           .depth = 1,
                                                           .activation = FL_ACT_GELU_TANH},
                                          &layer),
                             &layer) == 0.25f);
    assert_true(branch_scale(fl_layer_mlp(&(fl_mlp_config){.dim = 8,
                                                           .hidden = 16,
                                                           .depth = 4,
                                                           .activation = FL_ACT_GELU_TANH},
                                          &layer),
                             &layer) == 0.125f);
    assert_true(
        branch_scale(
            fl_layer_attention(
                &(fl_attention_config){.dim = 16, .heads = 2, .causal = true, .depth = 16}, &layer),
            &layer) == 0.0625f);
    assert_true(
        branch_scale(
            fl_layer_attention(
                &(fl_attention_config){.dim = 16, .heads = 2, .depth = 4, .first = true}, &layer),
            &layer) == 0.125f);
}

static void test_model__layers_that_do_not_fit_are_named(void **state)
{
    (void)state;
    fl_model *model = NULL;
    const fl_shape row = {.tokens = 2, .width = 4, .dtype = FL_F32};
    assert_int_equal(fl_model_create("mine", &model), FL_OK);
    assert_int_equal(fl_model_check(model, &row), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine' has no layers");
    add_linear(model, 1, 4, 5);
    assert_int_equal(fl_model_check(model, &row), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine' has no loss: call fl_model_set_loss");
    fl_loss loss = {0};
    assert_int_equal(fl_loss_cross_entropy(6, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    assert_int_equal(fl_model_check(model, &row), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine': loss (cross_entropy): takes rows of width 6, "
                                     "got [2, 5]");
    assert_int_equal(fl_loss_cross_entropy(5, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK); /* replaces the first */
    assert_int_equal(fl_model_check(model, &row), FL_OK);
    add_linear(model, 1, 6, 5);
    assert_int_equal(fl_model_check(model, &row), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine': layer 1 (linear): takes rows of width 6, got "
                                     "[2, 5]");
    fl_model_destroy(&model);
}

static void test_model__blocks_count_up_without_gaps(void **state)
{
    (void)state;
    fl_model *model = NULL;
    fl_layer layer = {0};
    assert_int_equal(fl_model_create("mine", &model), FL_OK);
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4}, &layer), FL_OK);
    assert_int_equal(fl_model_add(model, 2, layer), FL_EINVAL);
    assert_int_equal(fl_model_add(model, 0, layer), FL_EINVAL);
    assert_int_equal(fl_model_add(model, -1, layer), FL_EINVAL);
    assert_int_equal(fl_model_add(model, FL_BLOCK_HEAD + 1, layer), FL_EINVAL);
    assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4}, &layer), FL_OK);
    assert_int_equal(fl_model_add(model, 3, layer), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 1 (norm): block 3 after block 1; blocks count from 1 "
                                     "without gaps, and the head comes last");
    assert_int_equal(fl_model_add(model, FL_BLOCK_HEAD, layer), FL_OK);
    assert_int_equal(fl_layer_norm(&(fl_norm_config){.dim = 4}, &layer), FL_OK);
    assert_int_equal(fl_model_add(model, 2, layer), FL_EINVAL);
    assert_int_equal(fl_model_n_layers(model), 2);
    assert_int_equal(fl_model_n_blocks(model), 1);
    layer.ops->destroy(layer.self); /* the model has not taken it */
    fl_model_destroy(&model);
}

static fl_status bad_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = (fl_shape){.tokens = 0, .width = in->width, .dtype = FL_F32};
    return FL_OK;
}

static fl_status twice_params(void *self, fl_param_list *list)
{
    (void)self;
    FL_TRY(fl_param_list_add(list, "w", 1, 1, FL_INIT_ONES, 0.0f, true));
    return fl_param_list_add(list, "w", 1, 1, FL_INIT_ONES, 0.0f, true);
}

static fl_status no_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    (void)x;
    (void)in;
    (void)out;
    return FL_OK;
}

static fl_status no_backward(void *self, fl_exec *x, const fl_tensor *grad_out, fl_tensor *grad_in)
{
    return no_forward(self, x, grad_out, grad_in);
}

/* Would catch: an id beyond the table that is found by a kernel in the middle of an epoch, or that
 * reads another parameter's memory. */
static void test_model__an_embedding_refuses_ids_that_it_lacks(void **state)
{
    (void)state;
    fl_layer layer = {0};
    fl_shape out, in = {.tokens = 6, .width = 1, .dtype = FL_I32, .n_ids = 100};
    assert_int_equal(
        fl_layer_embedding(&(fl_embedding_config){.rows = 100, .positions = 6, .dim = 8}, &layer),
        FL_OK);
    assert_int_equal(layer.ops->shape(layer.self, &in, &out), FL_OK);
    assert_true(out.tokens == 6 && out.width == 8 && out.dtype == FL_F32);
    in.n_ids = 101;
    assert_int_equal(layer.ops->shape(layer.self, &in, &out), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "the data set has ids 0 to 100, the table has 0 to 99");
    in.n_ids = 0;
    assert_int_equal(layer.ops->shape(layer.self, &in, &out), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "promises no range of ids"));
    in = (fl_shape){.tokens = 7, .width = 1, .dtype = FL_I32, .n_ids = 100};
    assert_int_equal(layer.ops->shape(layer.self, &in, &out), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "takes samples of 1 to 6 tokens, got 7");
    in = (fl_shape){.tokens = 6, .width = 1, .dtype = FL_F32};
    assert_int_equal(layer.ops->shape(layer.self, &in, &out), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "takes one int32 id a token, got rows of 1 fp32");
    layer.ops->destroy(layer.self);
    assert_int_equal(fl_layer_embedding(&(fl_embedding_config){.rows = 0, .dim = 8}, &layer),
                     FL_EINVAL);
    assert_int_equal(
        fl_layer_embedding(&(fl_embedding_config){.rows = 9, .positions = -1, .dim = 8}, &layer),
        FL_EINVAL);
}

/* A user's layer may be wrong in ways a ready one is not. */
static void test_model__broken_user_layers_are_refused(void **state)
{
    (void)state;
    fl_model *model = NULL;
    fl_layer_ops ops = {.head = FL_TABLE_HEAD(fl_layer_ops),
                        .kind = "mine",
                        .shape = bad_shape,
                        .params = twice_params,
                        .forward = no_forward,
                        .backward = no_backward};
    assert_int_equal(fl_model_create("mine", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){.ops = &ops}), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 0 (mine): parameter 'w' is there twice");
    ops.head.version--;
    assert_int_equal(fl_model_add(model, 1, (fl_layer){.ops = &ops}), FL_ENOTSUP);
    assert_non_null(
        strstr(fl_errmsg(), "layer 0: its fl_layer_ops is of version 7 of Frostline's"));
    ops.head = (fl_table_head){0};
    assert_int_equal(fl_model_add(model, 1, (fl_layer){.ops = &ops}), FL_ENOTSUP);
    assert_string_equal(fl_errmsg(), "layer 0: its fl_layer_ops has no head: set .head = "
                                     "FL_TABLE_HEAD(fl_layer_ops)");
    const fl_loss_ops other = {.head = {FL_API_VERSION, sizeof(fl_loss_ops) - 8}, .kind = "mine"};
    assert_int_equal(fl_model_set_loss(model, (fl_loss){.ops = &other}), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "loss: its fl_loss_ops is of version 8"));
    ops.head = (fl_table_head)FL_TABLE_HEAD(fl_layer_ops);
    ops.params = fl_toy_no_params;
    ops.backward = NULL;
    assert_int_equal(fl_model_add(model, 1, (fl_layer){.ops = &ops}), FL_EINVAL);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){0}), FL_EINVAL);
    assert_int_equal(fl_model_set_loss(model, (fl_loss){0}), FL_EINVAL);
    ops.backward = no_backward;
    assert_int_equal(fl_model_add(model, 1, (fl_layer){.ops = &ops}), FL_OK);
    fl_shape out;
    const fl_shape in = {.tokens = 3, .width = 4, .dtype = FL_F32};
    assert_int_equal(fl_model_shape(model, 0, &in, &out), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "layer 0 (mine): gives [0, 4] for [3, 4]; both must be at least 1");
    fl_model_destroy(&model);
}

/* Every allocation fails in turn: a clean FL_ENOMEM each time, and nothing lost (which the
 * sanitizer build sees). */
static void test_model__survives_every_failed_allocation(void **state)
{
    (void)state;
    uint64_t n = 1;
    for (;; n++) {
        fl_model *model = NULL;
        fl_alloc_fail_at(n);
        fl_status status = fl_model_vit(&small, &model);
        fl_alloc_fail_at(0);
        if (status == FL_OK) {
            fl_model_destroy(&model);
            break;
        }
        assert_int_equal(status, FL_ENOMEM);
        assert_null(model);
        assert_true(n < 1000);
    }
    assert_true(n > 20); /* that many allocations there are at least: layers, lists, model */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model__vit_is_laid_out_in_blocks),
        cmocka_unit_test(test_model__shapes_follow_the_layers),
        cmocka_unit_test(test_model__wrong_input_names_layer_and_numbers),
        cmocka_unit_test(test_model__impossible_sizes_get_a_message),
        cmocka_unit_test(test_model__impossible_options_get_a_message),
        cmocka_unit_test(test_model__deep_models_begin_with_small_branches),
        cmocka_unit_test(test_model__layers_that_do_not_fit_are_named),
        cmocka_unit_test(test_model__blocks_count_up_without_gaps),
        cmocka_unit_test(test_model__an_embedding_refuses_ids_that_it_lacks),
        cmocka_unit_test(test_model__broken_user_layers_are_refused),
        cmocka_unit_test(test_model__survives_every_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
