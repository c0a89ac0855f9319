/* GPT-2 besides its numbers, which test_gpt2_reference.c has: what it refuses, how it begins, what
 * its loss takes of memory and adds to the operations. */
#include "nn/loss.h"
#include "nn/model.h"

#include "device/cpu/cpu.h"
#include "pipe/cost/memory/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const fl_gpt2_config tiny = {.vocabulary = 50,
                                    .positions = 12,
                                    .dim = 32,
                                    .heads = 2,
                                    .blocks = 2,
                                    .embedding_dropout = 0.1f,
                                    .attention_dropout = 0.1f,
                                    .dropout = 0.1f};

static fl_model *gpt2(const fl_gpt2_config *config)
{
    fl_model *model = NULL;
    assert_int_equal(fl_model_gpt2(config, &model), FL_OK);
    return model;
}

static void test_gpt2__refuses_impossible_sizes(void **state)
{
    (void)state;
    static const struct {
        fl_gpt2_config change;
        const char *text;
    } cases[] = {
        {{.blocks = -1}, "gpt2: blocks is -1, allowed is 1 to 999999"},
        {{.positions = -1}, "gpt2: positions is -1, allowed is 1 to 2147483647"},
        {{.vocabulary = -1}, "gpt2: vocabulary is -1, allowed is 1 to 2147483647"},
        {{.vocabulary = 1 << 21}, "gpt2: embedding: rows is 2097152, allowed is 1 to 1048576"},
        {{.positions = 1 << 21}, "gpt2: embedding: positions is 2097152, allowed is 1 to 1048576"},
        {{.heads = 5}, "gpt2: attention: dim 32 is not a multiple of heads 5"},
        {{.hidden = -1}, "gpt2: mlp: hidden is -1, allowed is 1 to 1048576"},
        {{.embedding_dropout = 1}, "gpt2: embedding: dropout is 1, allowed is 0 to below 1"},
        {{.attention_dropout = 1}, "gpt2: attention: dropout is 1, allowed is 0 to below 1"},
        {{.dropout = 1}, "gpt2: attention: dropout is 1, allowed is 0 to below 1"},
        {{.epsilon = -1}, "gpt2: attention: epsilon is -1, allowed is 0 (the default) or more"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_gpt2_config c = tiny;
        const fl_gpt2_config *change = &cases[i].change;
        fl_model *model = NULL;
        c.vocabulary = change->vocabulary != 0 ? change->vocabulary : c.vocabulary;
        c.positions = change->positions != 0 ? change->positions : c.positions;
        c.heads = change->heads != 0 ? change->heads : c.heads;
        c.blocks = change->blocks != 0 ? change->blocks : c.blocks;
        c.hidden = change->hidden;
        c.embedding_dropout = change->embedding_dropout;
        c.attention_dropout = change->attention_dropout;
        c.dropout = change->dropout;
        c.epsilon = change->epsilon;
        assert_int_equal(fl_model_gpt2(&c, &model), FL_EINVAL);
        assert_string_equal(fl_errmsg(), cases[i].text);
        assert_null(model);
    }
}

/* The table's last rows are padding, so an id there is one that the model does not have. */
static void test_gpt2__refuses_ids_and_lengths_beyond_it(void **state)
{
    (void)state;
    fl_model *model = gpt2(&tiny);
    fl_shape in = {.tokens = 12, .width = 1, .dtype = FL_I32, .n_ids = 50};
    assert_int_equal(fl_model_check(model, &in), FL_OK);
    in.n_ids = 51;
    assert_int_equal(fl_model_check(model, &in), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "the data set has ids 0 to 50, the table has 0 to 49"));
    in = (fl_shape){.tokens = 13, .width = 1, .dtype = FL_I32, .n_ids = 50};
    assert_int_equal(fl_model_check(model, &in), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "takes samples of 1 to 12 tokens, got 13"));
    fl_model_destroy(&model);
}

/* A loss that computes with the last layer's weight must find that weight there. */
static void test_gpt2__its_loss_needs_its_head(void **state)
{
    (void)state;
    enum { DIM = 4, OTHER_VOCABULARY = 65 };
    fl_shape row = {.tokens = 1, .width = DIM, .dtype = FL_F32};
    fl_layer_memory memory;
    const fl_lm_head_config config = {.dim = DIM, .vocabulary = 50};
    const fl_lm_head_config other = {.dim = DIM, .vocabulary = OTHER_VOCABULARY};
    for (int i = 0; i < 2; i++) {
        fl_model *model = NULL;
        fl_layer layer = {0};
        fl_loss loss = {0};
        assert_int_equal(fl_model_create("test", &model), FL_OK);
        assert_int_equal(
            i == 0 ? fl_layer_linear(DIM, DIM, &layer) : fl_layer_lm_head(&other, &layer), FL_OK);
        assert_int_equal(fl_model_add(model, 1, layer), FL_OK);
        assert_int_equal(fl_loss_lm_head(&config, &loss), FL_OK);
        assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
        assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){row, 1, FL_I32}, 1, &memory),
                         FL_EINVAL);
        assert_string_equal(fl_errmsg(), "loss (lm_head): the last layer has no weight [64, 4]; "
                                         "allowed is fl_layer_lm_head of the same configuration");
        fl_model_destroy(&model);
    }
}

/* e to the power of the mean loss of a token; a smaller value is better. Would catch a mean of the
 * micro-batches' perplexities. */
static void test_gpt2__its_loss_gives_perplexity(void **state)
{
    (void)state;
    fl_model *model = gpt2(&tiny);
    fl_metric_list list = fl_model_metrics(model);
    fl_loss_sums sums = {.loss = 12.0, .n_targets = 4.0}, more = {.loss = 2.0, .n_targets = 3.0};
    fl_loss_sums_add(&sums, &more);
    fl_metric_means means = fl_loss_sums_means(&sums, list);
    int i = fl_metric_list_find(&list, "perplexity");
    assert_true(i >= 0 && !list.metric[i].is_share && !list.metric[i].is_gain);
    assert_true(fabs(means.mean[i] - exp(2.0)) < 1e-12);
    fl_model_destroy(&model);
}

static double deviation_of(const fl_model *model, const char *name)
{
    int layer = 0, param = 0;
    assert_int_equal(fl_model_find_param(model, name, &layer, &param), FL_OK);
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[param];
    int64_t n = spec->rows * spec->cols;
    float *values = calloc((size_t)n, sizeof *values);
    double sum = 0;
    assert_non_null(values);
    fl_model_draw_param(model, layer, param, 1, values);
    for (int64_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    free(values);
    return sqrt(sum / (double)n);
}

/* As transformers' _init_weights has it, for 2 blocks: the branches are smaller by sqrt(4). */
static void test_gpt2__begins_as_the_original(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double deviation;
    } wanted[] = {
        {"embed.token", 0.02},
        {"embed.position", 0.02},
        {"blocks.1.attn.qkv.weight", 0.02},
        {"blocks.1.attn.qkv.bias", 0},
        {"blocks.1.attn.proj.weight", 0.01},
        {"blocks.1.attn.proj.bias", 0},
        {"blocks.2.mlp.fc.weight", 0.02},
        {"blocks.2.mlp.fc.bias", 0},
        {"blocks.2.mlp.proj.weight", 0.01},
        {"blocks.2.mlp.proj.bias", 0},
        {"head.ln.weight", 1},
        {"head.ln.bias", 0},
        {"head.fc.weight", 0.02},
    };
    fl_model *model = gpt2(&tiny);
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        double d = deviation_of(model, wanted[i].name), want = wanted[i].deviation;
        if (!(fabs(d - want) <= 0.1 * want)) {
            fail_msg("%s: deviation %g, expected %g", wanted[i].name, d, want);
        }
    }
    /* tied: one parameter of 64 rows, counted once */
    assert_int_equal(fl_model_n_params(model),
                     64 * 32 + 12 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32);
    fl_model_destroy(&model);
}

/* A micro-batch of 1,024 tokens and GPT-2's vocabulary: what the head keeps and its temporaries lie
 * far below the one matrix of all logits that a head with an output of its own would have, and its
 * gradients twice more. Would catch a chunk that grows with the micro-batch. */
static void test_gpt2__no_matrix_of_all_tokens_and_ids(void **state)
{
    (void)state;
    enum { T = 1024, V = 50257, ROWS = 50304, DIM = 384, CHUNK_MAX = 256 };
    const fl_gpt2_config config = {
        .vocabulary = V, .positions = T, .dim = DIM, .heads = 6, .blocks = 1};
    const fl_shape in = {.tokens = T, .width = 1, .dtype = FL_I32, .n_ids = V};
    fl_model *model = gpt2(&config);
    fl_layer_memory one[4], four[4];
    const fl_sample_shape sample = {in, T, FL_I32};
    assert_int_equal(fl_memory_measure(model, &sample, 1, one), FL_OK);
    assert_int_equal(fl_memory_measure(model, &sample, 4, four), FL_OK);
    const int64_t out = (int64_t)T * DIM * 4, chunk = (int64_t)CHUNK_MAX * ROWS * 4;
    assert_int_equal(one[3].out_bytes, out);
    assert_true(one[3].kept_bytes < 2 * out);
    assert_true(one[3].scratch_bytes >= chunk && one[3].scratch_bytes < chunk + out);
    assert_int_equal(four[3].scratch_bytes, one[3].scratch_bytes);
    /* Three products of the loss, all with the gradient. */
    assert_int_equal(one[3].forward_flops, 0);
    assert_int_equal(one[3].backward_flops, 3 * 2 * (int64_t)T * ROWS * DIM);
    assert_int_equal(one[3].lowest_backward_flops, one[3].backward_flops);
    fl_model_destroy(&model);
}

/* Twice as many tokens take twice the memory in an attention layer, and in the kernels' workspace:
 * there is no matrix of all scores, forward or backward. */
static void test_gpt2__no_matrix_of_all_scores(void **state)
{
    (void)state;
    enum { LEAST = 512, MOST = 1024, DIM = 384, HEADS = 6, ROUNDING = 4096 };
    fl_layer_memory half[4], whole[4];
    const fl_gpt2_config config = {.vocabulary = 50,
                                   .positions = MOST,
                                   .dim = DIM,
                                   .heads = HEADS,
                                   .blocks = 1,
                                   .attention_dropout = 0.1f};
    fl_model *model = gpt2(&config);
    fl_shape in = {.tokens = LEAST, .width = 1, .dtype = FL_I32, .n_ids = 50};
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){in, LEAST, FL_I32}, 1, half),
                     FL_OK);
    in.tokens = MOST;
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){in, MOST, FL_I32}, 1, whole),
                     FL_OK);
    assert_true(whole[1].kept_bytes <= 2 * half[1].kept_bytes + ROUNDING);
    assert_true(whole[1].scratch_bytes <= 2 * half[1].scratch_bytes + ROUNDING);
    assert_true(whole[1].kept_bytes < (int64_t)HEADS * MOST * MOST * 4);
    fl_device *device = NULL;
    assert_int_equal(fl_device_cpu_create(1, NULL, (size_t)1 << 28, &device), FL_OK);
    for (int backward = 0; backward < 2; backward++) {
        const fl__isa *isa = fl__cpu_of(device)->isa;
        size_t one = isa->attention_workspace(LEAST, DIM / HEADS, backward == 1);
        size_t two = isa->attention_workspace(MOST, DIM / HEADS, backward == 1);
        assert_true(two <= 2 * one && two < (size_t)MOST * MOST * sizeof(float) / 8);
    }
    fl_device_destroy(&device);
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2__refuses_impossible_sizes),
        cmocka_unit_test(test_gpt2__refuses_ids_and_lengths_beyond_it),
        cmocka_unit_test(test_gpt2__its_loss_needs_its_head),
        cmocka_unit_test(test_gpt2__its_loss_gives_perplexity),
        cmocka_unit_test(test_gpt2__begins_as_the_original),
        cmocka_unit_test(test_gpt2__no_matrix_of_all_tokens_and_ids),
        cmocka_unit_test(test_gpt2__no_matrix_of_all_scores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
