/* config.json beside a model's weights. Would catch: a number that does not read back to the last
 * bit; a member that is not validated; another version or format that is read all the same; a list
 * of layers that another model has. */
#include "launcher/run/model/model_config.h"

#include "device/system/alloc.h"
#include "nn/model.h"
#include "support/data/idx_files.h"
#include "support/data/toy.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE], path[FOLDER_SIZE + 16];
static fl_model *model;
static fl_dataset data;
static fl_idx_info info;
static fl_job job;
static char *text;

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    write_split(folder, "train", 12, 8, 8, 3);
    write_split(folder, "t10k", 5, 8, 8, 3);
    snprintf(path, sizeof path, "%s/config.json", folder);
    fl_job_defaults(&job);
    job.model.patch = 4;
    job.model.dim = 16;
    job.model.heads = 2;
    job.model.blocks = 2;
    job.model.dropout = 0.1;
    const fl_vit_config vit = {.channels = 1,
                               .height = 8,
                               .width = 8,
                               .patch = 4,
                               .dim = 16,
                               .heads = 2,
                               .blocks = 2,
                               .n_classes = 3,
                               .dropout = 0.1f};
    return fl_dataset_idx(folder, FL_AUGMENT_NONE, 0, &data, &info) == FL_OK &&
                   fl_model_vit(&vit, &model) == FL_OK &&
                   fl_model_config_text(model, &data, &job, &text) == FL_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_free(text);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    return remove_folder(folder);
}

static void put(const char *contents)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(contents, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* The file with one piece of text replaced. */
static void put_edited(const char *old, const char *new)
{
    const char *at = strstr(text, old);
    char *edited = malloc(strlen(text) + strlen(new) + 1);
    assert_non_null(at);
    assert_non_null(edited);
    sprintf(edited, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    put(edited);
    free(edited);
}

static void test_model_config__reads_back_what_was_written(void **state)
{
    (void)state;
    fl_model_config c;
    fl_idx_normalization n;
    put(text);
    assert_int_equal(fl_model_config_read(path, &c), FL_OK);
    assert_int_equal(c.kind, FL_MODEL_VIT);
    assert_int_equal(c.vit.channels, 1);
    assert_int_equal(c.vit.height, 8);
    assert_int_equal(c.vit.width, 8);
    assert_int_equal(c.vit.patch, 4);
    assert_int_equal(c.vit.dim, 16);
    assert_int_equal(c.vit.heads, 2);
    assert_int_equal(c.vit.blocks, 2);
    assert_int_equal(c.vit.n_classes, 3);
    assert_true(c.vit.dropout == 0.1f);
    assert_string_equal(c.data_kind, "idx");
    assert_non_null(fl_dataset_idx_info(&data, &n));
    assert_true(c.has_normalization);
    assert_memory_equal(&c.normalization, &n, sizeof n); /* to the last bit */
    assert_int_equal(fl_model_config_check(&c, model), FL_OK);
    fl_model_config_fini(&c);
}

/* Pixels of another folder enter the model as they did in training. */
static void test_model_config__normalization_does_not_come_from_the_new_data(void **state)
{
    (void)state;
    char other[FOLDER_SIZE];
    fl_idx_normalization n, again;
    fl_dataset same = {0};
    float expected[64], found[64];
    const fl_sample_key key = {.id = 1};
    make_folder(other);
    write_split(other, "t10k", 5, 8, 8, 3); /* no file of training images at all */
    assert_non_null(fl_dataset_idx_info(&data, &n));
    const fl_idx_options options = {
        .folder = other, .normalization = &n, .one_split = true, .split = FL_TEST};
    assert_int_equal(fl_dataset_idx_open(&options, &same, NULL), FL_OK);
    assert_int_equal(same.ops->count(same.self, FL_TRAIN), 0);
    assert_int_equal(same.ops->count(same.self, FL_TEST), 5);
    assert_non_null(fl_dataset_idx_info(&same, &again));
    assert_memory_equal(&n, &again, sizeof n);
    assert_int_equal(data.ops->read(data.self, FL_TEST, &key, expected), FL_OK);
    assert_int_equal(same.ops->read(same.self, FL_TEST, &key, found), FL_OK);
    assert_memory_equal(expected, found, sizeof found);
    fl_dataset_destroy(&same);
    assert_int_equal(remove_folder(other), 0);
}

static void test_model_config__labels_may_be_absent_where_they_are_not_needed(void **state)
{
    (void)state;
    char other[FOLDER_SIZE];
    fl_idx_normalization n;
    fl_dataset unlabeled = {0};
    make_folder(other);
    write_split(other, "t10k", 5, 8, 8, 3);
    remove_file(other, "t10k-labels-idx1-ubyte");
    assert_non_null(fl_dataset_idx_info(&data, &n));
    fl_idx_options options = {
        .folder = other, .normalization = &n, .one_split = true, .split = FL_TEST};
    assert_int_equal(fl_dataset_idx_open(&options, &unlabeled, NULL), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "neither t10k-labels-idx1-ubyte nor"));
    options.labels_optional = true;
    assert_int_equal(fl_dataset_idx_open(&options, &unlabeled, NULL), FL_OK);
    int32_t label = 0;
    assert_int_equal(unlabeled.ops->targets(unlabeled.self, FL_TEST, 4, &label), FL_OK);
    assert_int_equal(label, -1);
    fl_dataset_destroy(&unlabeled);
    assert_int_equal(remove_folder(other), 0);
}

static void test_model_config__refuses_what_it_cannot_use(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new;
        fl_status status;
        const char *message;
    } cases[] = {
        {"{\n", "[\n", FL_EFORMAT, "config.json:"},
        {"\"version\": 1,", "\"version\": 1, \"version\": 1,", FL_EFORMAT, "duplicate"},
        {"\"frostline-model\"", "\"gguf\"", FL_EFORMAT,
         "format: found '\"gguf\"', allowed: \"frostline-model\""},
        {"\"format\": \"frostline-model\"", "\"model_type\": \"t5\"", FL_ENOTSUP,
         "model_type: found t5, allowed: bert, gpt2, vit"},
        {"\"version\": 1", "\"version\": 2", FL_ENOTSUP,
         "version 2 of this format; this Frostline reads version 1"},
        {"\"version\": 1", "\"version\": \"1\"", FL_EFORMAT, "version: found"},
        {"\"kind\": \"vit\"", "\"kind\": \"cnn\"", FL_EFORMAT,
         "model.kind: found '\"cnn\"', allowed: \"vit\", \"plugin\" or \"program\""},
        {"\"kind\": \"vit\"", "\"kind\": \"plugin\"", FL_EFORMAT, "model.plugin: found nothing"},
        {"\"dim\": 16", "\"dim\": 0", FL_EFORMAT, "model.dim: found '0', allowed: 1 to"},
        {"\"dim\": 16", "\"dim\": 16.5", FL_EFORMAT, "model.dim: found '16.5'"},
        {"\"dim\": 16, ", "", FL_EFORMAT, "model.dim: found nothing"},
        {"\"blocks\": 2", "\"blocks\": 999999", FL_EFORMAT, "model.blocks: found '999999'"},
        {"\"classes\": 3", "\"classes\": -3", FL_EFORMAT, "model.classes: found '-3'"},
        {"\"dropout\": 0.1", "\"dropout\": 1.1", FL_EFORMAT, "model.dropout: found"},
        {"\"mean\": ", "\"average\": ", FL_EFORMAT, "data.normalization.mean: found nothing"},
        {"\"deviation\": ", "\"deviation\": -", FL_EFORMAT, "data.normalization.deviation: found"},
        {"\"data\": ", "\"date\": ", FL_EFORMAT, "data.kind: found nothing"},
        {"\"layers\": [", "\"layers\": 7, \"rest\": [", FL_EFORMAT, "layers: found '7'"},
        {"\"cls\": [1, 16]", "\"cls\": [1, 16, 1]", FL_EFORMAT, "layers[0]: found"},
        {"\"cls\": [1, 16]", "\"cls\": [1, 0]", FL_EFORMAT, "layers[0]: found"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_model_config c;
        put_edited(cases[i].old, cases[i].new);
        fl_status status = fl_model_config_read(path, &c);
        if (status != cases[i].status || strstr(fl_errmsg(), cases[i].message) == NULL ||
            strstr(fl_errmsg(), path) == NULL) {
            fail_msg("%s: status %d, message: %s", cases[i].new, status, fl_errmsg());
        }
    }
    fl_model_config c;
    remove(path);
    assert_int_equal(fl_model_config_read(path, &c), FL_EIO);
}

/* The file is in order, but describes another model than it lists. */
static void test_model_config__compares_its_layers_with_the_model(void **state)
{
    (void)state;
    static const struct {
        const char *old, *new, *message;
    } cases[] = {
        {"\"blocks.1.mlp\"", "\"blocks.7.mlp\"",
         "layers[2]: found blocks.7.mlp (mlp), allowed: blocks.1.mlp (mlp)"},
        {"\"kind\": \"mlp\"", "\"kind\": \"moe\"", "layers[2]: found blocks.1.mlp (moe)"},
        {"\"pos\": [5, 16]", "\"pos\": [17, 16]",
         "layers[0]: pos: found '[17, 16]', allowed: [5, 16]"},
        {"\"pos\": [5, 16]", "\"position\": [5, 16]", "layers[0]: pos: found nothing"},
        {"\"pos\": [5, 16]", "\"pos\": [5, 16], \"more\": [1]",
         "layers[0]: found 5 parameters, allowed: 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fl_model_config c;
        put_edited(cases[i].old, cases[i].new);
        assert_int_equal(fl_model_config_read(path, &c), FL_OK);
        assert_int_equal(fl_model_config_check(&c, model), FL_EFORMAT);
        if (strstr(fl_errmsg(), cases[i].message) == NULL) {
            fail_msg("%s: %s", cases[i].new, fl_errmsg());
        }
        fl_model_config_fini(&c);
    }
}

/* What only its program can build again says so, and still lists its layers. */
static void test_model_config__describes_a_programs_model(void **state)
{
    (void)state;
    fl_model *toy = NULL;
    fl_model_config c;
    char *its_text = NULL;
    fl_job its_job = job;
    its_job.model.kind = FL_MODEL_PROGRAM;
    assert_int_equal(fl_toy_model(2, 0.0f, &toy), FL_OK);
    assert_int_equal(fl_model_config_text(toy, &data, &its_job, &its_text), FL_OK);
    put(its_text);
    assert_int_equal(fl_model_config_read(path, &c), FL_OK);
    assert_int_equal(c.kind, FL_MODEL_PROGRAM);
    assert_int_equal(fl_model_config_check(&c, toy), FL_OK);
    assert_int_equal(fl_model_config_check(&c, model), FL_EFORMAT);
    fl_model_config_fini(&c);
    fl_free(its_text);
    fl_model_destroy(&toy);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_model_config__reads_back_what_was_written),
        TEST(test_model_config__normalization_does_not_come_from_the_new_data),
        TEST(test_model_config__labels_may_be_absent_where_they_are_not_needed),
        TEST(test_model_config__refuses_what_it_cannot_use),
        TEST(test_model_config__compares_its_layers_with_the_model),
        TEST(test_model_config__describes_a_programs_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
