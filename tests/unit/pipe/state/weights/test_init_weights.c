/* Whether a file of weights fits a model: every difference is listed, and only what the job allows
 * is passed over. */
#include "pipe/state/weights/init_weights.h"

#include "nn/model.h"
#include "support/data/toy.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SPECS_MAX = 64, NAME = 160 };

static char folder[FOLDER_SIZE], path[128];
static fl_model *model;
static fl_st_spec specs[SPECS_MAX];
static char names[SPECS_MAX][NAME];
static int n_specs;

/* What the model's own file would hold. */
static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    if (fl_toy_model(2, 0.0f, &model) != FL_OK) {
        return -1;
    }
    n_specs = 0;
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++, n_specs++) {
            const fl_param_spec *p = &list->spec[i];
            snprintf(names[n_specs], NAME, "%s.%s", fl_model_layer_name(model, layer), p->name);
            specs[n_specs] = (fl_st_spec){
                .name = names[n_specs], .n_dims = p->cols == 1 ? 1 : 2, .dims = {p->rows, p->cols}};
        }
    }
    return n_specs < SPECS_MAX ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    return remove_folder(folder);
}

static fl_status open_with(const char *allow, fl_init_weights *init)
{
    fl_st_layout layout;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, specs, n_specs, NULL, 0), FL_OK);
    assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
    close(fd);
    fl_st_layout_fini(&layout);
    return fl_init_weights_open(model, folder, allow, init);
}

static void refused(const char *allow, const char *says)
{
    fl_init_weights init;
    assert_int_equal(open_with(allow, &init), FL_EINVAL);
    assert_null(init.file);
    if (strstr(fl_errmsg(), says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), says);
    }
}

static void accepted(const char *allow)
{
    fl_init_weights init;
    if (open_with(allow, &init) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    fl_init_weights_close(&init);
    assert_null(init.file);
}

static int find_spec(const char *name)
{
    int i = 0;
    while (i < n_specs && strcmp(names[i], name) != 0) {
        i++;
    }
    assert_true(i < n_specs);
    return i;
}

static void test_init_weights__takes_the_model_s_own_file(void **state)
{
    (void)state;
    accepted("");
    accepted("head");
    refused("nothing",
            "model.init_allow: found nothing, allowed: a layer of the model or of the file");
}

/* A vector as a matrix of one column. */
static void test_init_weights__takes_a_column_for_a_vector(void **state)
{
    (void)state;
    fl_st_spec *bias = &specs[find_spec("head.fc.bias")];
    bias->n_dims = 2;
    bias->dims[1] = 1;
    accepted("");
    bias->n_dims = 1;
}

static void test_init_weights__lists_what_is_missing(void **state)
{
    (void)state;
    int head = find_spec("head.fc.bias");
    assert_int_equal(head, n_specs - 1);
    n_specs -= 2;
    refused("", "\n  2 tensors missing:\n    head.fc.weight\n    head.fc.bias");
    refused("blocks", "2 tensors missing");
    refused("hea", "model.init_allow: found hea, allowed: "); /* not up to a dot */
    accepted("head");
    accepted("head.fc");
    n_specs += 2;
}

static void test_init_weights__lists_what_is_extra(void **state)
{
    (void)state;
    specs[n_specs] = (fl_st_spec){.name = "pooler.weight", .n_dims = 1, .dims = {3}};
    n_specs++;
    refused("", "\n  1 tensor extra:\n    pooler.weight");
    accepted("pooler");
    n_specs--;
}

static void test_init_weights__lists_other_shapes(void **state)
{
    (void)state;
    fl_st_spec *weight = &specs[find_spec("head.fc.weight")];
    int64_t rows = weight->dims[0];
    weight->dims[0] = 10;
    refused(
        "",
        "  1 tensor of another shape or type:\n    head.fc.weight [10, 24], the model has [4, 24]");
    accepted("head");
    weight->dims[0] = rows;
    weight->n_dims = 1; /* as many elements, but no matrix */
    weight->dims[0] = rows * weight->dims[1];
    refused("", "head.fc.weight [96], the model has [4, 24]");
    weight->n_dims = 2;
    weight->dims[0] = rows;
}

static void test_init_weights__tells_all_differences_at_once(void **state)
{
    (void)state;
    int weight = find_spec("head.fc.weight"), first = find_spec("embed.cls");
    const char *name = specs[first].name;
    specs[weight].dims[0] = 10;
    specs[first].name = "other";
    refused("",
            "1 tensor missing:\n    embed.cls\n  1 tensor of another shape or type:\n    head.fc");
    refused("", "\n  1 tensor extra:\n    other");
    refused("head", "1 tensor missing:\n    embed.cls\n  1 tensor extra:\n    other");
    specs[first].name = name;
    specs[weight].dims[0] = 4;
}

/* A line for each tensor, whole. */
static void test_init_weights__lists_every_tensor(void **state)
{
    (void)state;
    char others[SPECS_MAX][NAME];
    for (int i = 0; i < n_specs; i++) {
        snprintf(others[i], NAME, "a.name.that.is.longer.than.those.of.the.model.%d", i);
        specs[i].name = others[i];
    }
    refused("", " tensors extra:\n    a.name.that.is.longer");
    char last[NAME + 16];
    for (int i = 0; i < n_specs; i++) {
        snprintf(last, sizeof last, "\n    %s", names[i]);
        assert_non_null(strstr(fl_errmsg(), last));
        snprintf(last, sizeof last, "\n    %s", others[i]);
        assert_non_null(strstr(fl_errmsg(), last));
        specs[i].name = names[i];
    }
}

/* A file need have only one of them, as those of language models do. */
static void test_init_weights__one_of_two_tied_tensors_is_enough(void **state)
{
    (void)state;
    assert_int_equal(fl_model_tie(model, "blocks.1.attn.ln.bias", "head.fc.bias"), FL_EINVAL);
    assert_int_equal(fl_model_tie(model, "blocks.1.attn.ln.bias", "head.ln.bias"), FL_OK);
    int head = find_spec("head.ln.bias"), block = find_spec("blocks.1.attn.ln.bias");
    specs[head].name = "other.a";
    accepted("other");
    specs[block].name = "other.b";
    refused("other", "2 tensors missing:\n    blocks.1.attn.ln.bias\n    head.ln.bias");
    specs[head].name = names[head];
    accepted("other");
    specs[block].name = names[block];
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_init_weights__takes_the_model_s_own_file),
        cmocka_unit_test(test_init_weights__takes_a_column_for_a_vector),
        cmocka_unit_test(test_init_weights__lists_what_is_missing),
        cmocka_unit_test(test_init_weights__lists_what_is_extra),
        cmocka_unit_test(test_init_weights__lists_other_shapes),
        cmocka_unit_test(test_init_weights__tells_all_differences_at_once),
        cmocka_unit_test(test_init_weights__lists_every_tensor),
        cmocka_unit_test(test_init_weights__one_of_two_tied_tensors_is_enough),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
