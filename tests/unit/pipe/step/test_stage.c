/* A stage at work: it computes the same wherever its boundaries lie. */
#include "device/async/async.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "nn/exec.h"
#include "nn/model.h"
#include "pipe/step/stage/stage.h"
#include "support/data/ragged.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { FIRST = 2, LAST = 5, SLOTS = 2, BATCH = 3, BOUNDARY_BYTES = BATCH * 5 * 24 * 4 };

/* What a step of a middle stage leaves. */
typedef struct outcome {
    unsigned char output[SLOTS][BOUNDARY_BYTES], grad_in[SLOTS][BOUNDARY_BYTES];
    float *grad; /* [n_grad] */
    int64_t n_grad;
} outcome;

/* Memory for the stage's outputs and gradients; NULL: it has its own. */
typedef struct elsewhere {
    unsigned char *output[SLOTS], *grad_in[SLOTS];
} elsewhere;

static fl_model *model;
static fl_dataset data;
static fl_device *device;

static int set_up(void **state)
{
    (void)state;
    return fl_toy_dataset(40, &data) == FL_OK && fl_toy_model(3, 0.1f, &model) == FL_OK &&
                   fl_device_cpu_create(1, NULL, (size_t)1 << 30, &device) == FL_OK
               ? 0
               : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    fl_device_destroy(&device);
    return 0;
}

static fl_stage *create_stage(const fl_job *job)
{
    fl_shape input;
    int64_t n_targets;
    fl_layer_memory layers[16];
    fl_stage *stage = NULL;
    fl_drawn_state drawn = {.model = model, .seed = job->train.seed};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_stage_options o = {.model = model,
                          .dataset = &data,
                          .job = job,
                          .device = device,
                          .first = FIRST,
                          .last = LAST,
                          .source = &source,
                          .n_slots = SLOTS,
                          .capacity = fl_capacity_equal(BATCH, 1, 1, SLOTS)};
    assert_int_equal(data.ops->max_shape(data.self, &input, &n_targets), FL_OK);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){input, 1, FL_I32}, BATCH, layers),
                     FL_OK);
    fl_memory_stage(model, job, layers, 0, &(fl_stage_place){FL_GPIPE, 3, SLOTS, 1, FIRST, LAST},
                    &o.memory);
    assert_int_equal(o.memory.out_bytes, BOUNDARY_BYTES);
    assert_int_equal(fl_stage_create(&o, &stage), FL_OK);
    return stage;
}

static void fill_drawn(float *to, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        to[i] = fl_unit((uint32_t)fl_mix64(seed, (uint64_t)i)) - 0.5f;
    }
}

static void run_forward(fl_stage *stage, int slot, void *to, outcome *out)
{
    const int64_t ids[BATCH] = {4 * slot, 4 * slot + 1, 4 * slot + 2};
    const fl_micro_batch batch = {
        .split = FL_TRAIN, .ids = ids, .n = BATCH, .n_global = BATCH, .training = true};
    fl_tensor input, output;
    assert_int_equal(fl_stage_begin(stage, slot, &batch, &input), FL_OK);
    fill_drawn(input.data, BOUNDARY_BYTES / 4, (uint64_t)slot);
    assert_int_equal(fl_stage_forward(stage, slot, to, &output), FL_OK);
    assert_true(to == NULL || output.data == to);
    memcpy(out->output[slot], output.data, BOUNDARY_BYTES);
}

static void run_backward(fl_stage *stage, int slot, void *to, outcome *out)
{
    fl_tensor grad_out, grad_in;
    fl_stage_grad_out(stage, slot, &grad_out);
    fill_drawn(grad_out.data, BOUNDARY_BYTES / 4, 7 + (uint64_t)slot);
    assert_int_equal(fl_stage_backward(stage, slot, true, to, NULL, NULL, &grad_in), FL_OK);
    assert_true(to == NULL || grad_in.data == to);
    memcpy(out->grad_in[slot], grad_in.data, BOUNDARY_BYTES);
}

static void run_step(const elsewhere *there, outcome *out)
{
    fl_job job = {0};
    job.train.optimizer = FL_ADAMW;
    fl_stage *stage = create_stage(&job);
    for (int slot = 0; slot < SLOTS; slot++) {
        run_forward(stage, slot, there->output[slot], out);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        run_backward(stage, slot, there->grad_in[slot], out);
    }
    const fl_params *p = fl_stage_params(stage);
    out->n_grad = p->n_grad;
    assert_int_equal(fl_alloc_array((size_t)p->n_grad, sizeof(float), (void **)&out->grad), FL_OK);
    memcpy(out->grad, p->grad, (size_t)p->n_grad * sizeof(float));
    fl_stage_destroy(&stage);
}

/* Would catch: a layer whose output or input gradient is left in the stage's own memory although it
 * was to go into a message, and a backward that looks for its output there. */
static void test_stage__computes_the_same_into_other_memory(void **state)
{
    (void)state;
    static _Alignas(64) unsigned char memory[2][SLOTS][BOUNDARY_BYTES];
    static outcome own, other;
    const elsewhere nowhere = {{NULL}, {NULL}};
    elsewhere there;
    for (int slot = 0; slot < SLOTS; slot++) {
        there.output[slot] = memory[0][slot];
        there.grad_in[slot] = memory[1][slot];
    }
    run_step(&nowhere, &own);
    run_step(&there, &other);
    assert_memory_equal(own.output, other.output, sizeof own.output);
    assert_memory_equal(own.grad_in, other.grad_in, sizeof own.grad_in);
    assert_int_equal(own.n_grad, other.n_grad);
    assert_memory_equal(own.grad, other.grad, (size_t)own.n_grad * sizeof(float));
    /* The caller's memory is left alone until backward, and after it. */
    assert_memory_equal(memory[0], other.output, sizeof other.output);
    assert_memory_equal(memory[1], other.grad_in, sizeof other.grad_in);
    fl_free(own.grad);
    fl_free(other.grad);
}

/* ---- the loss of one sample ---- */

enum { ONE_SAMPLES = 4 };

/* A loss that looks for its samples in device memory: cross-entropy of each sample's first row. */
static fl_status first_row_loss(void *self, fl_exec *x, const fl_tensor *out,
                                const fl_tensor *targets, float grad_scale, fl_tensor *grad,
                                fl_loss_sums *sums)
{
    void *rows = NULL;
    (void)self, (void)grad_scale, (void)grad;
    FL_TRY(fl_exec_scratch(x, (size_t)(out->n_samples * out->width) * sizeof(float), &rows));
    FL_TRY(fl_gather_rows(x, &(fl_gather_rows_args){.in = out->data,
                                                    .index = out->offsets_device,
                                                    .y = rows,
                                                    .n_rows = out->n_samples,
                                                    .width = out->width}));
    return fl_cross_entropy(x, &(fl_cross_entropy_args){.logits = rows,
                                                        .targets = targets->data,
                                                        .loss = &sums->loss,
                                                        .m = out->n_samples,
                                                        .n = out->width});
}

static fl_status any_output(void *self, const fl_shape *out)
{
    (void)self, (void)out;
    return FL_OK;
}

static fl_model *first_row_model(void)
{
    static const fl_loss_ops loss = {.head = FL_TABLE_HEAD(fl_loss_ops),
                                     .kind = "first_row",
                                     .shape = any_output,
                                     .forward = first_row_loss};
    fl_model *one = NULL;
    fl_layer linear;
    assert_int_equal(fl_model_create("first rows", &one), FL_OK);
    assert_int_equal(fl_layer_linear(RAGGED_WIDTH, RAGGED_CLASSES, &linear), FL_OK);
    assert_int_equal(fl_model_add(one, 1, linear), FL_OK);
    assert_int_equal(fl_model_set_loss(one, (fl_loss){&loss, NULL}), FL_OK);
    return one;
}

/* The loss of a sample, or of the whole micro-batch where it is below 0. */
static double loss_of(fl_device *d, fl_stream *s, fl_stage *stage, int64_t sample)
{
    fl_loss_sums *sums = NULL, back;
    assert_int_equal(fl_device_alloc(d, sizeof *sums, "sums", (void **)&sums), FL_OK);
    fl_status status = sample >= 0 ? fl_stage_sample_loss(stage, 0, sample, sums)
                                   : fl_stage_loss(stage, 0, false, 0.0f, sums);
    assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
    assert_int_equal(d->ops->copy_out(d, s, &back, sums, sizeof back), FL_OK);
    assert_int_equal(d->ops->sync(d, s), FL_OK);
    fl_device_free(d, sums, sizeof *sums);
    return back.loss;
}

/* Would catch: the loss of one sample without the device's copy of where it begins, as of a loss
 * that was written for whole micro-batches. */
static void test_stage__computes_the_loss_of_one_sample_on_any_device(void **state)
{
    (void)state;
    const int64_t ids[ONE_SAMPLES] = {3, 0, 7, 5};
    const int64_t tokens = ONE_SAMPLES * RAGGED_LONGEST;
    static float rows[ONE_SAMPLES * RAGGED_LONGEST * RAGGED_WIDTH];
    fl_job job = {.train = {.optimizer = FL_SGD}, .devices = {.kind = FL_DEVICE_ASYNC_TEST}};
    fl_model *one = first_row_model();
    fl_dataset ragged;
    fl_device *d = NULL;
    fl_stage *stage = NULL;
    fl_stage_options o = {.model = one,
                          .dataset = &ragged,
                          .job = &job,
                          .last = 1,
                          .n_slots = 1,
                          .capacity = fl_capacity_equal(ONE_SAMPLES, RAGGED_LONGEST, 1, 1)};
    const fl_async_options options = {.n_threads = 1, .budget_bytes = 1 << 24};
    fl_drawn_state drawn = {.model = one, .seed = 1};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_tensor input, output;
    assert_int_equal(ragged_dataset(40, ragged_like_sst2, false, &ragged), FL_OK);
    assert_int_equal(fl_device_async_create(&options, &d), FL_OK);
    assert_int_equal(d->ops->stream_create(d, &o.stream), FL_OK);
    o.device = d;
    o.source = &source;
    o.memory =
        (fl_stage_memory){.slot_bytes = 1 << 16, .scratch_bytes = 1 << 16, .grad_bytes = 1 << 14};
    assert_int_equal(fl_stage_create(&o, &stage), FL_OK);
    const fl_micro_batch batch = {
        .split = FL_TRAIN, .ids = ids, .n = ONE_SAMPLES, .n_global = ONE_SAMPLES};
    assert_int_equal(fl_stage_begin(stage, 0, &batch, &input), FL_OK);
    fill_drawn(rows, tokens * RAGGED_WIDTH, 5);
    assert_int_equal(d->ops->copy_in(d, o.stream, input.data, rows,
                                     (size_t)(input.n_tokens * input.width) * sizeof *rows),
                     FL_OK);
    assert_int_equal(fl_stage_forward(stage, 0, NULL, &output), FL_OK);
    double sum = 0.0;
    for (int64_t i = 0; i < ONE_SAMPLES; i++) {
        sum += loss_of(d, o.stream, stage, i);
    }
    double all = loss_of(d, o.stream, stage, -1);
    assert_true(all > 0.1 && sum > all - 1e-5 && sum < all + 1e-5);
    fl_stage_destroy(&stage);
    d->ops->stream_destroy(d, &o.stream);
    fl_device_destroy(&d);
    fl_dataset_destroy(&ragged);
    fl_model_destroy(&one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stage__computes_the_same_into_other_memory),
        cmocka_unit_test(test_stage__computes_the_loss_of_one_sample_on_any_device),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
