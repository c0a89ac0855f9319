/* The names that parameters have in files of others: every parameter of BERT gets its own, and old
 * spellings are found. */
#include "nn/model.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const fl_bert_config config = {.vocabulary = 9,
                                      .positions = 4,
                                      .types = 2,
                                      .dim = 4,
                                      .hidden = 6,
                                      .heads = 2,
                                      .blocks = 11,
                                      .n_classes = 3,
                                      .activation = FL_ACT_GELU_ERF};

static fl_model *make_model(void)
{
    fl_model *model = NULL;
    assert_int_equal(fl_model_bert(&config, &model), FL_OK);
    return model;
}

static int pieces_of(const fl_tensor_names *names, const fl_model *model, const char *name,
                     fl_tensor_piece out[FL_TENSOR_PIECES_MAX])
{
    int layer, param;
    assert_int_equal(fl_model_find_param(model, name, &layer, &param), FL_OK);
    return fl_tensor_pieces(names, model, layer, param, out);
}

static void test_tensor_names__every_parameter_has_one(void **state)
{
    (void)state;
    fl_tensor_piece p[FL_TENSOR_PIECES_MAX];
    fl_model *model = make_model();
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int i = 0; i < fl_model_params(model, layer)->n; i++) {
            (void)fl_tensor_pieces(&fl_bert_tensor_names, model, layer, i, p);
            assert_true(strncmp(p[0].name, "bert.", 5) == 0 ||
                        strncmp(p[0].name, "classifier.", 11) == 0);
        }
    }
    fl_model_destroy(&model);
}

/* The head of another task has other names, and the pooler is not the model's. */
static void test_tensor_names__of_a_model_that_answers(void **state)
{
    (void)state;
    fl_tensor_piece p[FL_TENSOR_PIECES_MAX];
    const fl_tensor_names *n = &fl_bert_span_tensor_names;
    fl_bert_config answers = config;
    fl_model *model = NULL;
    answers.head = FL_BERT_ANSWERS;
    assert_int_equal(fl_model_bert(&answers, &model), FL_OK);
    assert_int_equal(pieces_of(n, model, "head.fc.weight", p), 1);
    assert_string_equal(p[0].name, "qa_outputs.weight");
    assert_int_equal(p[0].n_rows, 2);
    assert_int_equal(pieces_of(n, model, "blocks.2.attn.proj.bias", p), 1);
    assert_string_equal(p[0].name, "bert.encoder.layer.1.attention.output.dense.bias");
    assert_true(fl_tensor_is_unused(n, "bert.pooler.dense.weight"));
    assert_true(fl_tensor_is_unused(n, "pooler.dense.weight"));
    assert_true(fl_tensor_is_unused(n, "classifier.bias"));
    assert_false(fl_tensor_is_unused(n, "qa_outputs.bias"));
    fl_model_destroy(&model);
}

static void test_tensor_names__blocks_and_rows(void **state)
{
    (void)state;
    fl_tensor_piece p[FL_TENSOR_PIECES_MAX];
    fl_model *model = make_model();
    assert_int_equal(pieces_of(&fl_bert_tensor_names, model, "blocks.11.attn.qkv.weight", p), 3);
    assert_string_equal(p[1].name, "bert.encoder.layer.10.attention.self.key.weight");
    assert_int_equal(p[2].first_row, 8);
    assert_int_equal(p[2].n_rows, 4);
    assert_int_equal(p[2].cols, 4);
    assert_int_equal(pieces_of(&fl_bert_tensor_names, model, "blocks.1.mlp.ln.bias", p), 1);
    assert_string_equal(p[0].name, "bert.encoder.layer.0.output.LayerNorm.bias");
    assert_int_equal(pieces_of(NULL, model, "blocks.11.attn.qkv.weight", p), 1);
    assert_string_equal(p[0].name, "blocks.11.attn.qkv.weight");
    assert_int_equal(p[0].n_rows, 12);
    fl_model_destroy(&model);
}

static void test_tensor_names__old_spellings_are_found(void **state)
{
    (void)state;
    static const char *const spellings[] = {
        "bert.embeddings.LayerNorm.weight", "embeddings.LayerNorm.weight",
        "bert.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.gamma"};
    char folder[FOLDER_SIZE], path[128];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    for (int i = 0; i < 4; i++) {
        const fl_st_spec spec = {.name = spellings[i], .n_dims = 1, .dims = {4}};
        fl_st_layout layout;
        fl_safetensors *file = NULL;
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, &spec, 1, NULL, 0), FL_OK);
        assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
        close(fd);
        fl_st_layout_fini(&layout);
        assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
        assert_non_null(
            fl_tensor_find(&fl_bert_tensor_names, file, "bert.embeddings.LayerNorm.weight"));
        assert_null(fl_tensor_find(&fl_bert_tensor_names, file, "bert.embeddings.LayerNorm.bias"));
        assert_true((fl_tensor_find(NULL, file, "bert.embeddings.LayerNorm.weight") != NULL) ==
                    (i == 0));
        fl_safetensors_close(&file);
    }
    remove_folder(folder);
}

/* The shapes in the file: turned, without the rows that fill the vocabulary up, and without the
 * head, which is tied. */
static void test_tensor_names__gpt2_has_other_shapes(void **state)
{
    (void)state;
    const fl_gpt2_config gpt2 = {
        .vocabulary = 50, .positions = 7, .dim = 6, .heads = 2, .blocks = 2};
    const fl_tensor_names *n = &fl_gpt2_tensor_names;
    fl_tensor_piece p[FL_TENSOR_PIECES_MAX];
    fl_model *model = NULL;
    int layer, param;
    assert_int_equal(fl_model_gpt2(&gpt2, &model), FL_OK);
    fl__model_set_tensor_names(model, n, (fl_tensor_sizes){.n_ids = 50});
    assert_int_equal(pieces_of(n, model, "blocks.2.attn.qkv.weight", p), 1);
    assert_string_equal(p[0].name, "transformer.h.1.attn.c_attn.weight");
    assert_true(p[0].transposed && p[0].n_dims == 2 && p[0].dims[0] == 6 && p[0].dims[1] == 18);
    assert_int_equal(pieces_of(n, model, "blocks.2.attn.qkv.bias", p), 1);
    assert_true(!p[0].transposed && p[0].n_dims == 1 && p[0].dims[0] == 18);
    assert_int_equal(pieces_of(n, model, "embed.token", p), 1);
    assert_true(p[0].n_rows == 50 && p[0].dims[0] == 50 && p[0].dims[1] == 6);
    assert_int_equal(pieces_of(NULL, model, "embed.token", p), 1);
    assert_int_equal(p[0].n_rows, 64);
    assert_int_equal(pieces_of(n, model, "head.fc.weight", p), 1);
    assert_true(p[0].tied && p[0].dims[0] == 50);
    assert_int_equal(fl_model_find_param(model, "head.fc.weight", &layer, &param), FL_OK);
    assert_int_equal(fl_tensor_pieces_to_write(model, layer, param, p), 0);
    fl_model_destroy(&model);
}

static void test_tensor_names__vit_has_other_shapes(void **state)
{
    (void)state;
    const fl_vit_config vit = {.channels = 3,
                               .height = 8,
                               .width = 8,
                               .patch = 4,
                               .dim = 6,
                               .heads = 2,
                               .blocks = 1,
                               .n_classes = 2};
    const fl_tensor_names *n = &fl_vit_tensor_names;
    fl_tensor_piece p[FL_TENSOR_PIECES_MAX];
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&vit, &model), FL_OK);
    fl__model_set_tensor_names(model, n, (fl_tensor_sizes){.channels = 3, .patch = 4});
    assert_int_equal(pieces_of(n, model, "embed.patch.weight", p), 1);
    assert_true(p[0].n_dims == 4 && p[0].dims[0] == 6 && p[0].dims[1] == 3 && p[0].dims[3] == 4);
    assert_int_equal(pieces_of(n, model, "embed.patch.bias", p), 1);
    assert_true(p[0].n_dims == 1 && p[0].dims[0] == 6);
    assert_int_equal(pieces_of(n, model, "embed.pos", p), 1);
    assert_true(p[0].n_dims == 3 && p[0].dims[0] == 1 && p[0].dims[1] == 5 && p[0].dims[2] == 6);
    assert_int_equal(pieces_of(n, model, "blocks.1.attn.qkv.bias", p), 3);
    assert_string_equal(p[2].name, "vit.encoder.layer.0.attention.attention.value.bias");
    fl_model_destroy(&model);
}

static void test_tensor_names__buffers_of_old_files_are_not_used(void **state)
{
    (void)state;
    const fl_tensor_names *n = &fl_gpt2_tensor_names;
    assert_true(fl_tensor_is_unused(n, "h.11.attn.bias"));
    assert_true(fl_tensor_is_unused(n, "transformer.h.0.attn.masked_bias"));
    assert_false(fl_tensor_is_unused(n, "h.0.attn.c_attn.bias"));
    assert_false(fl_tensor_is_unused(n, "h.x.attn.bias"));
    assert_true(fl_tensor_is_unused(&fl_vit_tensor_names, "vit.pooler.dense.weight"));
}

static void test_tensor_names__other_heads_are_not_used(void **state)
{
    (void)state;
    const fl_tensor_names *n = &fl_bert_tensor_names;
    assert_true(fl_tensor_is_unused(n, "cls.predictions.bias"));
    assert_true(fl_tensor_is_unused(n, "bert.embeddings.position_ids"));
    assert_false(fl_tensor_is_unused(n, "classifier.weight"));
    assert_false(fl_tensor_is_unused(NULL, "cls.predictions.bias"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_names__every_parameter_has_one),
        cmocka_unit_test(test_tensor_names__of_a_model_that_answers),
        cmocka_unit_test(test_tensor_names__blocks_and_rows),
        cmocka_unit_test(test_tensor_names__old_spellings_are_found),
        cmocka_unit_test(test_tensor_names__gpt2_has_other_shapes),
        cmocka_unit_test(test_tensor_names__vit_has_other_shapes),
        cmocka_unit_test(test_tensor_names__buffers_of_old_files_are_not_used),
        cmocka_unit_test(test_tensor_names__other_heads_are_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
