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
        cmocka_unit_test(test_tensor_names__blocks_and_rows),
        cmocka_unit_test(test_tensor_names__old_spellings_are_found),
        cmocka_unit_test(test_tensor_names__other_heads_are_not_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
