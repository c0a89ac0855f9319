/* Names of layers and parameters: what a model accepts, and how one is found. */
#include "device/system/alloc.h"
#include "nn/model.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A layer whose parameters have the names in `self`, a list that ends with NULL. */
static fl_status listed_params(void *self, fl_param_list *list)
{
    for (const char *const *name = self; *name != NULL; name++) {
        FL_TRY(fl_param_list_add(list, *name, 2, 3, FL_INIT_ONES, 0.0f, true));
    }
    return FL_OK;
}

static fl_status nothing_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    (void)x;
    (void)in;
    (void)out;
    return FL_OK;
}

static fl_status nothing_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                  fl_tensor *grad_in)
{
    return nothing_forward(self, x, grad_out, grad_in);
}

static const fl_layer_ops listed = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                    .kind = "listed",
                                    .shape = fl_toy_same_shape,
                                    .params = listed_params,
                                    .forward = nothing_forward,
                                    .backward = nothing_backward};

static const char *none[] = {NULL}, *one_w[] = {"w", NULL}, *one_b_w[] = {"b.w", NULL};
static const char *two[] = {"w", "bias", NULL};

static fl_model *model;

static int make_model(void **state)
{
    (void)state;
    return fl_model_create("mine", &model) == FL_OK ? 0 : -1;
}

static int free_model(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    return 0;
}

static fl_status add(const char *name, const char **params)
{
    return fl_model_add_named(model, 1, name, (fl_layer){&listed, params});
}

static void test_names__a_layer_without_a_name_has_its_number(void **state)
{
    (void)state;
    char text[FL_LAYER_TEXT_MAX];
    assert_int_equal(add("first", two), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&listed, two}), FL_OK);
    assert_string_equal(fl_model_layer_name(model, 0), "first");
    assert_string_equal(fl_model_layer_name(model, 1), "layers.1");
    assert_string_equal(fl_model_layer_text(model, 0, text), "layer 0, first (listed)");
    assert_string_equal(fl_model_layer_text(model, 1, text), "layer 1 (listed)");
    assert_int_equal(fl_model_find_layer(model, "layers.1"), 1);
    assert_int_equal(fl_model_find_layer(model, "layers.0"), -1);
    assert_int_equal(fl_model_layer_n_tensors(model, 1), 2);
    assert_string_equal(fl_model_param_name(model, 1, 1), "bias");
}

static void test_names__refuses_names_that_are_not_allowed(void **state)
{
    (void)state;
    static const char *const bad[] = {"",     "a b", ".a",       "a.",    "a..b",
                                      "a-b",  "a/b", "\xc3\xa4", "a\nb",  "attention[0]",
                                      "a\"b", ".",   "blocks:1", "\\home"};
    char name[FL_LAYER_NAME_MAX + 1];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(add(bad[i], two), FL_EINVAL);
        fl_param_list list = {0};
        assert_int_equal(fl_param_list_add(&list, bad[i], 1, 1, FL_INIT_ONES, 0.0f, true),
                         FL_EINVAL);
        assert_null(list.spec);
    }
    assert_int_equal(add("a b", two), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "layer 0 (listed): the name 'a b': a name has letters, digits, "
                        "'_', and single dots between them");
    assert_int_equal(add(name, two), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "a name has 1 to 63 bytes, this one 64"));
    assert_int_equal(fl_model_n_layers(model), 0);
    assert_int_equal(add(name + 1, two), FL_OK);
    assert_string_equal(fl_model_layer_name(model, 0), name + 1);
}

static void test_names__are_unique_over_the_model(void **state)
{
    (void)state;
    assert_int_equal(add("a", one_b_w), FL_OK);
    assert_int_equal(add("a", one_w), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 1 (listed): the name 'a' is that of layer 0, a "
                                     "(listed)");
    assert_int_equal(add("a.b", one_w), FL_EINVAL); /* both have a.b.w */
    assert_string_equal(fl_errmsg(), "layer 1 (listed): the parameter 'a.b.w' is also one of layer "
                                     "0, a (listed)");
    assert_int_equal(add("a.b", none), FL_OK);
    assert_int_equal(add("ab", one_w), FL_OK);
    assert_int_equal(add("c.b", one_w), FL_OK);
    assert_int_equal(add("c", one_b_w), FL_EINVAL); /* the longer name came first */
    assert_string_equal(fl_errmsg(), "layer 4 (listed): the parameter 'c.b.w' is also one of layer "
                                     "3, c.b (listed)");
    assert_int_equal(add("layers.5", two), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&listed, two}), FL_EINVAL);
    assert_non_null(
        strstr(fl_errmsg(), "the name 'layers.5' is that of layer 4, layers.5 (listed)"));
    assert_int_equal(fl_model_n_layers(model), 5);
}

static void test_names__find_a_parameter_by_its_full_name(void **state)
{
    (void)state;
    int layer = -1, param = -1;
    assert_int_equal(add("a", two), FL_OK);
    assert_int_equal(add("a.b", two), FL_OK);
    assert_int_equal(add("rest", none), FL_OK);
    assert_int_equal(fl_model_find_param(model, "a.b.bias", &layer, &param), FL_OK);
    assert_int_equal(layer, 1);
    assert_int_equal(param, 1);
    assert_int_equal(fl_model_find_param(model, "a.w", &layer, &param), FL_OK);
    assert_int_equal(layer, 0);
    assert_int_equal(param, 0);
    assert_int_equal(fl_model_find_param(model, "a.b.x", &layer, &param), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine' has no parameter 'a.b.x': layer 1, a.b (listed) "
                                     "has w, bias");
    assert_int_equal(fl_model_find_param(model, "rest.w", &layer, &param), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine' has no parameter 'rest.w': layer 2, rest "
                                     "(listed) has no parameters");
    assert_int_equal(fl_model_find_param(model, "head.w", &layer, &param), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "model 'mine' has no parameter 'head.w': no layer's name "
                                     "begins it");
    assert_int_equal(fl_model_find_param(model, "a", &layer, &param), FL_EINVAL);
    assert_int_equal(layer, 0); /* a failed search leaves them */
}

/* These names are what files will hold: a change would lose them. */
static void test_names__of_a_vision_transformer(void **state)
{
    (void)state;
    static const char *const layers[] = {"embed",         "blocks.1.attn", "blocks.1.mlp",
                                         "blocks.2.attn", "blocks.2.mlp",  "head"};
    static const char *const params[] = {"embed.patch.weight",
                                         "embed.patch.bias",
                                         "embed.cls",
                                         "embed.pos",
                                         "blocks.1.attn.ln.weight",
                                         "blocks.1.attn.ln.bias",
                                         "blocks.1.attn.qkv.weight",
                                         "blocks.1.attn.qkv.bias",
                                         "blocks.1.attn.proj.weight",
                                         "blocks.1.attn.proj.bias",
                                         "blocks.1.mlp.ln.weight",
                                         "blocks.1.mlp.ln.bias",
                                         "blocks.1.mlp.fc.weight",
                                         "blocks.1.mlp.fc.bias",
                                         "blocks.1.mlp.proj.weight",
                                         "blocks.1.mlp.proj.bias",
                                         "blocks.2.attn.qkv.weight",
                                         "blocks.2.mlp.fc.weight",
                                         "head.ln.weight",
                                         "head.ln.bias",
                                         "head.fc.weight",
                                         "head.fc.bias"};
    const fl_vit_config config = {.channels = 1,
                                  .height = 28,
                                  .width = 28,
                                  .patch = 7,
                                  .dim = 12,
                                  .heads = 3,
                                  .blocks = 2,
                                  .n_classes = 10};
    fl_model *vit = NULL;
    int layer, param;
    assert_int_equal(fl_model_vit(&config, &vit), FL_OK);
    assert_int_equal(fl_model_n_layers(vit), 6);
    for (int i = 0; i < 6; i++) {
        assert_string_equal(fl_model_layer_name(vit, i), layers[i]);
    }
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++) {
        assert_int_equal(fl_model_find_param(vit, params[i], &layer, &param), FL_OK);
    }
    assert_int_equal(fl_model_find_param(vit, "blocks.1.mlp.weight", &layer, &param), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "ln.weight, ln.bias, fc.weight, fc.bias, proj.weight, "
                                        "proj.bias"));
    fl_model_destroy(&vit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_names__a_layer_without_a_name_has_its_number,
                                        make_model, free_model),
        cmocka_unit_test_setup_teardown(test_names__refuses_names_that_are_not_allowed, make_model,
                                        free_model),
        cmocka_unit_test_setup_teardown(test_names__are_unique_over_the_model, make_model,
                                        free_model),
        cmocka_unit_test_setup_teardown(test_names__find_a_parameter_by_its_full_name, make_model,
                                        free_model),
        cmocka_unit_test(test_names__of_a_vision_transformer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
