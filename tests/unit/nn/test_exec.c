/* fl_exec: what a layer of a user's own sees, keeps and borrows. Runs on the null device. */
#include "nn/exec.h"
#include "nn/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARENA_BYTES = 4096 };

/* A layer that does what the test tells it and notes what it saw. */
typedef struct probe {
    size_t keep_bytes, scratch_bytes;
    int slot;
    bool twice, fail;
    void *kept, *kept_again, *scratch;
    size_t n_forward, n_backward;
    float *grad0;
} probe;

static fl_status probe_shape(void *self, const fl_shape *in, fl_shape *out)
{
    (void)self;
    *out = *in;
    return FL_OK;
}

static fl_status probe_params(void *self, fl_param_list *list)
{
    (void)self;
    return fl_param_list_add(list, "w", 2, 1, FL_INIT_ONES, 0.0f, false);
}

static fl_status probe_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    probe *p = self;
    p->n_forward++;
    assert_ptr_equal(fl_exec_input(x)->data, in->data);
    assert_ptr_equal(fl_exec_output(x)->data, out->data);
    FL_TRY(fl_exec_keep(x, p->slot, p->keep_bytes, &p->kept));
    FL_TRY(fl_exec_scratch(x, p->scratch_bytes, &p->scratch));
    if (p->twice) {
        FL_TRY(fl_exec_keep(x, p->slot, p->keep_bytes, &p->kept));
    }
    return p->fail ? fl_fail(FL_EIO, "told to") : FL_OK;
}

static fl_status probe_backward(void *self, fl_exec *x, const fl_tensor *grad_out,
                                fl_tensor *grad_in)
{
    probe *p = self;
    (void)grad_out;
    (void)grad_in;
    p->n_backward++;
    p->kept_again = fl_exec_kept(x, p->slot);
    p->grad0 = fl_exec_grad(x, 0);
    assert_null(fl_exec_grad(x, 1));
    assert_null(fl_exec_grad(x, -1));
    assert_non_null(fl_exec_weight(x, 0));
    assert_null(fl_exec_weight(x, 1));
    assert_null(fl_exec_kept(x, FL_KEEP_MAX));
    return fl_exec_scratch(x, p->scratch_bytes, &p->scratch);
}

static const fl_layer_ops probe_ops = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                       .kind = "probe",
                                       .shape = probe_shape,
                                       .params = probe_params,
                                       .forward = probe_forward,
                                       .backward = probe_backward};

typedef struct stage {
    probe probe;
    fl_model *model;
    fl_device *device;
    fl_exec x;
    fl_arena keep, scratch;
    fl_batch batch;
    fl_exec_frame frame;
    fl_weight weight;
    float *grad;
    float grad_values[2];
    fl_layer_params params;
    fl_tensor in, out;
    float in_data[2], out_data[2];
    int32_t offsets[2];
    int64_t ids[1];
    _Alignas(64) unsigned char keep_bytes[ARENA_BYTES], scratch_bytes[ARENA_BYTES];
} stage;

static int setup(void **state)
{
    stage *s = aligned_alloc(64, (sizeof(stage) + 63) / 64 * 64);
    assert_non_null(s);
    memset(s, 0, sizeof *s);
    s->probe = (probe){.keep_bytes = 100, .scratch_bytes = 200, .slot = 3};
    assert_int_equal(fl_device_null_create(&s->device), FL_OK);
    assert_int_equal(fl_model_create("probe", &s->model), FL_OK);
    assert_int_equal(fl_model_add(s->model, 1, (fl_layer){&probe_ops, &s->probe}), FL_OK);
    fl_arena_init(&s->keep, s->keep_bytes, ARENA_BYTES, "the kept arena");
    fl_arena_init(&s->scratch, s->scratch_bytes, ARENA_BYTES, "the scratch arena");
    s->offsets[1] = 1;
    s->batch = (fl_batch){
        .n_samples = 1, .sample_ids = s->ids, .sample_ids_device = s->ids, .n_global = 1};
    s->in = (fl_tensor){s->in_data, s->offsets, s->offsets, 1, 1, 2, FL_F32};
    s->out = (fl_tensor){s->out_data, s->offsets, s->offsets, 1, 1, 2, FL_F32};
    s->grad = s->grad_values;
    s->params = (fl_layer_params){.n = 1, .weight = &s->weight, .grad = &s->grad};
    s->x = (fl_exec){.device = s->device,
                     .batch = &s->batch,
                     .training = true,
                     .keep = &s->keep,
                     .scratch = &s->scratch};
    *state = s;
    return 0;
}

static int teardown(void **state)
{
    stage *s = *state;
    fl_model_destroy(&s->model);
    fl_device_destroy(&s->device);
    free(s);
    return 0;
}

static fl_status forward(stage *s)
{
    return fl_exec_forward(&s->x, s->model, 0, &s->params, &s->frame, &s->in, &s->out);
}

static fl_status backward(stage *s)
{
    return fl_exec_backward(&s->x, s->model, 0, &s->params, &s->frame, &s->out, &s->in);
}

/* Catches kept memory that dies with the call, or scratch that piles up over calls. */
static void test_exec__keeps_until_backward_and_gives_scratch_back(void **state)
{
    stage *s = *state;
    assert_int_equal(forward(s), FL_OK);
    size_t used = s->keep.used_bytes;
    assert_true(used >= 100);
    assert_int_equal(s->scratch.used_bytes, 0);
    assert_true(s->scratch.peak_bytes >= 200);
    assert_int_equal(backward(s), FL_OK);
    assert_ptr_equal(s->probe.kept_again, s->probe.kept);
    assert_int_equal(s->keep.used_bytes, used);
    assert_int_equal(s->scratch.used_bytes, 0);
    assert_int_equal(s->probe.n_forward + s->probe.n_backward, 2);
}

/* Catches evaluation filling the arena of activations. */
static void test_exec__keeps_nothing_without_a_backward_to_come(void **state)
{
    stage *s = *state;
    s->x.training = false;
    s->x.keep = NULL; /* whoever evaluates need not have one */
    assert_int_equal(forward(s), FL_OK);
    assert_in_range((uintptr_t)s->probe.kept, (uintptr_t)s->scratch_bytes,
                    (uintptr_t)s->scratch_bytes + ARENA_BYTES);
    assert_true(s->scratch.peak_bytes >= 300);
    assert_int_equal(s->scratch.used_bytes, 0);
    assert_null(s->frame.kept[3]);
}

/* Catches two micro-batches in flight overwriting each other. */
static void test_exec__holds_several_micro_batches_apart(void **state)
{
    stage *s = *state;
    fl_exec_frame second;
    assert_int_equal(forward(s), FL_OK);
    void *first = s->probe.kept;
    assert_int_equal(fl_exec_forward(&s->x, s->model, 0, &s->params, &second, &s->in, &s->out),
                     FL_OK);
    assert_ptr_not_equal(s->probe.kept, first);
    assert_int_equal(backward(s), FL_OK);
    assert_ptr_equal(s->probe.kept_again, first);
}

static void test_exec__says_which_layer_ran_out_of_budget(void **state)
{
    stage *s = *state;
    s->probe.keep_bytes = ARENA_BYTES + 1;
    assert_int_equal(forward(s), FL_EBUDGET);
    assert_string_equal(fl_errmsg(), "layer 0 (probe): the kept arena: 4097 bytes asked, 0 of 4096 "
                                     "in use");
    s->probe.keep_bytes = 64;
    s->probe.scratch_bytes = 2 * ARENA_BYTES;
    assert_int_equal(forward(s), FL_EBUDGET);
    assert_non_null(strstr(fl_errmsg(), "layer 0 (probe): the scratch arena: 8192 bytes asked"));
}

/* A failed call takes nothing. */
static void test_exec__takes_back_what_a_failed_forward_kept(void **state)
{
    stage *s = *state;
    s->probe.fail = true;
    assert_int_equal(forward(s), FL_EIO);
    assert_string_equal(fl_errmsg(), "layer 0 (probe): told to");
    assert_int_equal(s->keep.used_bytes, 0);
    assert_int_equal(s->scratch.used_bytes, 0);
    assert_null(s->frame.kept[3]);
}

static void test_exec__refuses_bad_slots(void **state)
{
    stage *s = *state;
    s->probe.slot = FL_KEEP_MAX;
    assert_int_equal(forward(s), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 0 (probe): keeps under slot 8, allowed are 0 to 7");
    s->probe.slot = -1;
    assert_int_equal(forward(s), FL_EINVAL);
    s->probe.slot = 0;
    s->probe.twice = true;
    assert_int_equal(forward(s), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 0 (probe): keeps under slot 0 twice");
}

static void test_exec__tells_which_gradients_are_wanted(void **state)
{
    stage *s = *state;
    assert_int_equal(forward(s), FL_OK);
    assert_int_equal(backward(s), FL_OK);
    assert_ptr_equal(s->probe.grad0, s->grad_values);
    s->grad = NULL;
    assert_int_equal(backward(s), FL_OK);
    assert_null(s->probe.grad0);
    s->params.grad = NULL;
    assert_int_equal(backward(s), FL_OK);
    assert_null(s->probe.grad0);
}

/* A layer that asks for a parameter it never declared gets a message, not a crash. */
static void test_exec__refuses_kernels_without_a_weight(void **state)
{
    stage *s = *state;
    float y[2];
    fl_linear_args linear = {.in = s->in_data, .y = y, .m = 1};
    assert_int_equal(fl_linear(&s->x, &linear), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "fl_linear got no weight"));
    const fl_linear_backward_input_args back = {.grad_out = y, .grad_in = s->in_data, .m = 1};
    assert_int_equal(fl_linear_backward_input(&s->x, &back), FL_EINVAL);
    const fl_norm_args norm = {.in = s->in_data, .y = y, .m = 1, .n = 2};
    assert_int_equal(fl_layernorm(&s->x, &norm), FL_EINVAL);
    assert_int_equal(fl_rmsnorm(&s->x, &norm), FL_EINVAL);
    fl_weight w = {.data = y, .rows = 2, .cols = 2}, bias = {.data = y, .rows = 3, .cols = 1};
    linear.w = &w;
    linear.bias = &bias;
    assert_int_equal(fl_linear(&s->x, &linear), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_linear: the bias has 3 elements for 2 outputs");
}

/* What no kernel can compute gets a message before it reaches a device. */
static void test_exec__refuses_arguments_that_cannot_be(void **state)
{
    stage *s = *state;
    float y[2];
    fl_weight w = {.data = y, .rows = 2, .cols = 2};
    fl_linear_args linear = {.dtype = FL_I32, .in = s->in_data, .w = &w, .y = y, .m = 1};
    fl_attention_args attention = {.offsets = fl_offsets_of(&s->in), .heads = 3, .width = 4};
    fl_dropout_args dropout = {.in = y, .y = y, .offsets = fl_offsets_of(&s->in), .mask = {.p = 1}};
    fl_embed_args embed = {.table = {{.weight = &w}}, .n_tables = 1, .width = 3};
    assert_int_equal(fl_linear(&s->x, &linear), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_linear got a dtype of int32, allowed are fp32 and bf16");
    linear.dtype = FL_F32;
    linear.residual = y;
    linear.activation = FL_ACT_TANH;
    assert_int_equal(fl_linear(&s->x, &linear), FL_EINVAL);
    assert_int_equal(fl_attention(&s->x, &attention), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_attention: width 4 is not a multiple of heads 3");
    attention.heads = 2;
    attention.mask.p = -0.1f;
    assert_int_equal(fl_attention(&s->x, &attention), FL_EINVAL);
    assert_int_equal(fl_dropout(&s->x, &dropout), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_dropout: p is 1, allowed is 0 to below 1");
    assert_int_equal(fl_embed(&s->x, &embed), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "fl_embed: table 0 has rows of width 2 for a width of 3");
    embed.n_tables = FL_EMBED_TABLES + 1;
    assert_int_equal(fl_embed(&s->x, &embed), FL_EINVAL);
    assert_true(fl_exec_host_memory(&s->x));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(test_exec__keeps_until_backward_and_gives_scratch_back),
        CASE(test_exec__keeps_nothing_without_a_backward_to_come),
        CASE(test_exec__holds_several_micro_batches_apart),
        CASE(test_exec__says_which_layer_ran_out_of_budget),
        CASE(test_exec__takes_back_what_a_failed_forward_kept),
        CASE(test_exec__refuses_bad_slots),
        CASE(test_exec__tells_which_gradients_are_wanted),
        CASE(test_exec__refuses_kernels_without_a_weight),
        CASE(test_exec__refuses_arguments_that_cannot_be),
    };
#undef CASE
    return cmocka_run_group_tests(tests, NULL, NULL);
}
