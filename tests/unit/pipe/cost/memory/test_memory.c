/* What the dry run counts against what a real execution on the CPU takes from arenas, and what a
 * stage takes by these counts. */
#include "pipe/cost/layout.h"
#include "pipe/cost/memory/memory.h"
#include "pipe/cost/plan.h"

#include "device/system/alloc.h"
#include "nn/exec.h"
#include "nn/model.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ARENA_BYTES = 4 << 20, MAX_SAMPLES = 16 };

static fl_model *vit_of(float dropout, fl_dtype dtype)
{
    fl_vit_config config = {.channels = 1,
                            .height = 14,
                            .width = 14,
                            .patch = 7,
                            .dim = 24,
                            .heads = 3,
                            .blocks = 3,
                            .n_classes = 10,
                            .dropout = dropout,
                            .dtype = dtype};
    fl_model *model = NULL;
    assert_int_equal(fl_model_vit(&config, &model), FL_OK);
    return model;
}

static fl_model *vit(float dropout)
{
    return vit_of(dropout, FL_F32);
}

static const fl_shape image = {.tokens = 1, .width = 14 * 14, .dtype = FL_F32};

/* A real run of one micro-batch through one layer: weights, tensors and arenas on the CPU device.
 */
typedef struct real_run {
    fl_device *device;
    fl_arena tensors, keep, scratch;
    int32_t offsets[2][MAX_SAMPLES + 1];
    int64_t ids[MAX_SAMPLES];
    fl_batch batch;
} real_run;

static void arena_init(fl_arena *arena)
{
    void *base = NULL;
    assert_int_equal(fl_alloc(ARENA_BYTES, &base), FL_OK);
    fl_arena_init(arena, base, ARENA_BYTES, "test");
}

static void real_run_init(real_run *r, int64_t n_samples)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(fl_device_cpu_create(1, NULL, SIZE_MAX, &r->device), FL_OK);
    arena_init(&r->tensors);
    arena_init(&r->keep);
    arena_init(&r->scratch);
    r->batch = (fl_batch){.n_samples = n_samples,
                          .sample_ids = r->ids,
                          .sample_ids_device = r->ids,
                          .n_global = n_samples};
}

static void real_run_fini(real_run *r)
{
    fl_free(r->tensors.base);
    fl_free(r->keep.base);
    fl_free(r->scratch.base);
    fl_device_destroy(&r->device);
}

static fl_tensor take_tensor(real_run *r, const fl_shape *shape, int which)
{
    fl_tensor t = {.offsets = r->offsets[which],
                   .offsets_device = r->offsets[which],
                   .n_samples = r->batch.n_samples,
                   .n_tokens = r->batch.n_samples * shape->tokens,
                   .width = shape->width,
                   .dtype = shape->dtype};
    for (int64_t i = 0; i <= t.n_samples; i++) {
        r->offsets[which][i] = (int32_t)(i * shape->tokens);
    }
    size_t bytes = (size_t)(t.n_tokens * t.width) * fl_dtype_size(t.dtype);
    assert_int_equal(fl_arena_take(&r->tensors, bytes, &t.data), FL_OK);
    return t;
}

static void take_params(real_run *r, const fl_model *model, int layer, fl_layer_params *params,
                        fl_weight *weights, float **grads)
{
    const fl_param_list *list = fl_model_params(model, layer);
    *params = (fl_layer_params){.n = list->n, .weight = weights, .grad = grads};
    for (int i = 0; i < list->n; i++) {
        const fl_param_spec *spec = &list->spec[i];
        size_t bytes = (size_t)(spec->rows * spec->cols) * sizeof(float);
        weights[i] = (fl_weight){.rows = spec->rows, .cols = spec->cols, .version = 1};
        assert_int_equal(fl_arena_take(&r->tensors, bytes, (void **)&weights[i].data), FL_OK);
        assert_int_equal(fl_arena_take(&r->tensors, bytes, (void **)&grads[i]), FL_OK);
        fl_param_init(spec, 1, layer, i, weights[i].data);
    }
}

/* Peaks of one layer's forward in training, forward in evaluation, backward, and the loss. */
static void run_layer(real_run *r, const fl_model *model, int layer, const fl_shape *in_shape,
                      const fl_shape *out_shape, size_t *kept, size_t *scratch, size_t *frozen_kept,
                      size_t *frozen_scratch)
{
    fl_weight weights[16];
    float *grads[16];
    fl_layer_params params;
    fl_exec_frame frame;
    r->tensors.used_bytes = r->keep.used_bytes = r->scratch.used_bytes = 0;
    r->keep.peak_bytes = r->scratch.peak_bytes = 0;
    take_params(r, model, layer, &params, weights, grads);
    fl_tensor in = take_tensor(r, in_shape, 0), grad_in = take_tensor(r, in_shape, 0);
    size_t before = r->tensors.used_bytes;
    fl_tensor out = take_tensor(r, out_shape, 1);
    size_t out_bytes = r->tensors.used_bytes - before;
    fl_tensor grad_out = take_tensor(r, out_shape, 1);
    fl_exec x = {.device = r->device, .batch = &r->batch, .keep = &r->keep, .scratch = &r->scratch};
    assert_int_equal(fl_exec_forward(&x, model, layer, &params, &frame, &in, &out), FL_OK);
    assert_int_equal(r->keep.peak_bytes, 0);
    *frozen_kept = out_bytes;
    *frozen_scratch = r->scratch.peak_bytes;
    x.training = true;
    assert_int_equal(fl_exec_forward(&x, model, layer, &params, &frame, &in, &out), FL_OK);
    if (layer == fl_model_n_layers(model) - 1) {
        int32_t classes[MAX_SAMPLES] = {0};
        fl_tensor targets = out;
        fl_loss_sums sums = {0};
        targets.data = classes;
        targets.width = 1;
        targets.dtype = FL_I32;
        assert_int_equal(fl_exec_loss(&x, model, &out, &targets, 1.0f, &grad_out, &sums), FL_OK);
    }
    assert_int_equal(fl_exec_backward(&x, model, layer, &params, &frame, &grad_out,
                                      layer == 0 ? NULL : &grad_in),
                     FL_OK);
    *kept = out_bytes + r->keep.peak_bytes;
    *scratch = r->scratch.peak_bytes;
}

static int64_t bytes_of(const fl_shape *shape, int64_t n_samples)
{
    return n_samples * shape->tokens * shape->width * (int64_t)fl_dtype_size(shape->dtype);
}

static void check_counts(const fl_model *model, int64_t n_samples)
{
    fl_layer_memory memory[16];
    real_run r;
    fl_shape in = image, out;
    real_run_init(&r, n_samples);
    assert_int_equal(
        fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, n_samples, memory), FL_OK);
    for (int i = 0; i < fl_model_n_layers(model); i++) {
        size_t kept, scratch, frozen_kept, frozen_scratch;
        assert_int_equal(fl_model_shape(model, i, &image, &out), FL_OK);
        run_layer(&r, model, i, &in, &out, &kept, &scratch, &frozen_kept, &frozen_scratch);
        assert_int_equal(memory[i].kept_bytes, kept);
        assert_int_equal(memory[i].scratch_bytes, scratch);
        assert_int_equal(memory[i].frozen_kept_bytes, frozen_kept);
        assert_int_equal(memory[i].frozen_scratch_bytes, frozen_scratch);
        assert_int_equal(memory[i].in_bytes, bytes_of(&in, n_samples));
        assert_int_equal(memory[i].out_bytes, bytes_of(&out, n_samples));
        assert_true(kept > 0);
        in = out;
    }
    real_run_fini(&r);
}

/* A stage that runs out of the memory it planned, or holds more than it will use. */
static void test_memory__dry_run_counts_what_a_real_run_takes(void **state)
{
    (void)state;
    const int64_t sizes[] = {1, 3, 16};
    for (int d = 0; d < 4; d++) {
        fl_model *model = vit_of(d % 2 == 0 ? 0.0f : 0.1f, d < 2 ? FL_F32 : FL_BF16);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_counts(model, sizes[i]);
        }
        fl_model_destroy(&model);
    }
}

/* The planner multiplies what one sample takes: it must never promise too little. */
static void test_memory__n_samples_take_at_most_n_times_one(void **state)
{
    (void)state;
    fl_model *model = vit(0.1f);
    fl_layer_memory one[16], many[16];
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 1, one), FL_OK);
    for (int64_t n = 1; n <= 40; n += 3) {
        assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, n, many),
                         FL_OK);
        for (int i = 0; i < fl_model_n_layers(model); i++) {
            assert_true(many[i].kept_bytes <= n * one[i].kept_bytes);
            assert_true(many[i].scratch_bytes <= n * one[i].scratch_bytes);
            assert_int_equal(many[i].out_bytes, n * one[i].out_bytes);
        }
    }
    fl_model_destroy(&model);
}

static fl_status explode(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self, (void)x, (void)in, (void)out;
    return fl_fail(FL_EINVAL, "on purpose");
}

static void test_memory__a_layers_failure_comes_with_its_place(void **state)
{
    (void)state;
    static const fl_layer_ops bad = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                     .kind = "bad",
                                     .shape = fl_toy_same_shape,
                                     .params = fl_toy_no_params,
                                     .forward = explode,
                                     .backward = explode};
    fl_model *model = NULL;
    fl_layer_memory memory[1];
    assert_int_equal(fl_model_create("m", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&bad, NULL}), FL_OK);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 1, memory),
                     FL_EINVAL);
    assert_string_equal(fl_errmsg(), "layer 0 (bad): on purpose");
    fl_model_destroy(&model);
}

/* A layer of a plugin writes its outputs itself, on the null device too: here values that are no
 * class of any loss, wherever the arena puts them. */
static fl_status write_outputs(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self, (void)x, (void)in;
    memset(out->data, 0x80, (size_t)(out->n_tokens * out->width) * sizeof(float));
    return FL_OK;
}

static fl_status write_gradient(void *self, fl_exec *x, const fl_tensor *grad, fl_tensor *grad_in)
{
    return grad_in == NULL ? FL_OK : write_outputs(self, x, grad, grad_in);
}

static void test_memory__a_layer_may_write_without_kernels(void **state)
{
    (void)state;
    static const fl_layer_ops writes = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                        .kind = "writes",
                                        .shape = fl_toy_same_shape,
                                        .params = fl_toy_no_params,
                                        .forward = write_outputs,
                                        .backward = write_gradient};
    fl_model *model = NULL;
    fl_layer head;
    fl_loss loss;
    fl_layer_memory memory[3];
    assert_int_equal(fl_model_create("m", &model), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&writes, NULL}), FL_OK);
    assert_int_equal(fl_model_add(model, 1, (fl_layer){&writes, NULL}), FL_OK);
    assert_int_equal(fl_layer_classifier(image.width, 4, &head), FL_OK);
    assert_int_equal(fl_model_add(model, FL_BLOCK_HEAD, head), FL_OK);
    assert_int_equal(fl_loss_cross_entropy(4, &loss), FL_OK);
    assert_int_equal(fl_model_set_loss(model, loss), FL_OK);
    for (int64_t n = 1; n <= MAX_SAMPLES; n++) {
        fl_status status =
            fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, n, memory);
        assert_string_equal(status == FL_OK ? "" : fl_errmsg(), "");
    }
    fl_model_destroy(&model);
}

static void test_memory__survives_every_failed_allocation(void **state)
{
    (void)state;
    fl_model *model = vit(0.0f);
    fl_layer_memory memory[16];
    fl_status status = FL_ENOMEM;
    int n = 0;
    while (status == FL_ENOMEM) {
        fl_alloc_fail_at((uint64_t)++n);
        status = fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 2, memory);
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(n > 3);
    fl_model_destroy(&model);
}

/* ---- composing a stage ---- */

static fl_job adamw_job(void)
{
    fl_job job = {0};
    job.train.optimizer = FL_ADAMW;
    return job;
}

static void test_memory__stage_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    fl_model *model = vit(0.0f);
    fl_job job = adamw_job();
    fl_layer_memory m[16];
    fl_stage_memory out;
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 3, m), FL_OK);
    /* the middle one of three: layers 2 .. 4 */
    fl_memory_stage(model, &job, m, 0, &(fl_stage_place){FL_1F1B, 3, 8, 1, 2, 5}, &out);
    int64_t boundary = 3 * 5 * 24 * 4;
    int64_t kept = m[2].kept_bytes + m[3].kept_bytes + m[4].kept_bytes;
    int64_t scratch =
        m[2].scratch_bytes > m[3].scratch_bytes ? m[2].scratch_bytes : m[3].scratch_bytes;
    int64_t rounded = (boundary + 63) / 64 * 64;
    assert_int_equal(out.params_bytes, 16 * fl_layout_count(model, 2, 5));
    assert_int_equal(out.n_slots, 2);
    assert_int_equal(out.slot_bytes, rounded + kept);
    assert_int_equal(out.scratch_bytes, 2 * rounded + scratch);
    assert_int_equal(out.channel_bytes, 10 * boundary);
    assert_int_equal(out.loader_bytes, 0);
    assert_int_equal(out.total_bytes,
                     out.params_bytes + 2 * out.slot_bytes + out.scratch_bytes + out.channel_bytes);
    job.train.optimizer = FL_SGD;
    fl_memory_stage(model, &job, m, 0, &(fl_stage_place){FL_GPIPE, 3, 8, 0, 0, 2}, &out);
    assert_int_equal(out.params_bytes, 12 * fl_layout_count(model, 0, 2));
    assert_int_equal(out.n_slots, 8);
    assert_int_equal(out.channel_bytes, 5 * boundary);
    assert_int_equal(out.loader_bytes, 16 * 3 * 14 * 14 * 4);
    fl_memory_stage(model, &job, m, 0,
                    &(fl_stage_place){FL_1F1B, 1, 1, 0, 0, fl_model_n_layers(model)}, &out);
    assert_int_equal(out.channel_bytes, 0);
    assert_int_equal(out.n_slots, 1);
    fl_model_destroy(&model);
}

/* A stage wholly below the frost line sends nothing back and has no gradients. */
static void test_memory__nothing_flows_back_below_the_frost_line(void **state)
{
    (void)state;
    fl_model *model = vit(0.1f);
    fl_job job = adamw_job();
    fl_layer_memory m[16];
    fl_stage_memory warm, cold;
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 3, m), FL_OK);
    fl_memory_stage(model, &job, m, 0, &(fl_stage_place){FL_1F1B, 3, 8, 1, 2, 5}, &warm);
    fl_memory_stage(model, &job, m, 5, &(fl_stage_place){FL_1F1B, 3, 8, 1, 2, 5}, &cold);
    assert_int_equal(cold.params_bytes, 4 * fl_layout_count(model, 2, 5));
    assert_int_equal(2 * cold.channel_bytes, warm.channel_bytes);
    assert_true(cold.slot_bytes < warm.slot_bytes);
    /* the line lies at its lower edge: it trains, and owes the stage below nothing */
    fl_memory_stage(model, &job, m, 2, &(fl_stage_place){FL_1F1B, 3, 8, 1, 2, 5}, &cold);
    assert_int_equal(cold.params_bytes, warm.params_bytes);
    assert_int_equal(10 * cold.channel_bytes, 7 * warm.channel_bytes);
    fl_model_destroy(&model);
}

/* The planner's table and the walk must agree on every run of layers, wherever the frost line. */
static void test_memory__table_agrees_with_the_walk(void **state)
{
    (void)state;
    fl_model *model = vit(0.1f);
    fl_job job = adamw_job();
    int n_layers = fl_model_n_layers(model);
    fl_layer_memory one[16], scaled[16];
    fl_memory_table *table = malloc(sizeof *table);
    assert_non_null(table);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 1, one), FL_OK);
    job.devices.kind = FL_DEVICE_CUDA;
    for (int i = 0; i < n_layers; i++) {
        one[i].graph_bytes = FL_DEVICE_GRAPH_ROOM_BYTES;
    }
    for (int64_t turn = 0; turn < 3 * (n_layers + 1); turn++) {
        int64_t n = 1 + 4 * (turn % 3);
        int n_frozen = (int)turn / 3;
        fl_memory_table_init(table, model, &job, one, n_frozen);
        for (int i = 0; i < n_layers; i++) {
            scaled[i] = (fl_layer_memory){.graph_bytes = one[i].graph_bytes,
                                          .n_samples = n * one[i].n_samples,
                                          .n_targets = n * one[i].n_targets,
                                          .kept_bytes = n * one[i].kept_bytes,
                                          .scratch_bytes = n * one[i].scratch_bytes,
                                          .in_bytes = n * one[i].in_bytes,
                                          .out_bytes = n * one[i].out_bytes,
                                          .frozen_kept_bytes = n * one[i].frozen_kept_bytes,
                                          .frozen_scratch_bytes = n * one[i].frozen_scratch_bytes};
        }
        for (int first = 0; first < n_layers; first++) {
            for (int last = first + 1; last <= n_layers; last++) {
                int K = 4, stage = first == 0 ? 0 : (last == n_layers ? 3 : 1);
                fl_stage_memory walked, looked_up;
                fl_memory_stage(model, &job, scaled, n_frozen,
                                &(fl_stage_place){FL_1F1B, K, 6, stage, first, last}, &walked);
                fl_memory_table_stage(
                    table, n, &(fl_stage_place){FL_1F1B, K, 6, stage, first, last}, &looked_up);
                assert_memory_equal(&walked, &looked_up, sizeof walked);
            }
        }
    }
    free(table);
    fl_model_destroy(&model);
}

/* What a stage takes on a GPU alone. Would catch: copies or the cache's memory that a plan forgets,
 * so that a run ends when they do not fit. */
static void test_memory__counts_what_only_a_gpu_holds(void **state)
{
    (void)state;
    fl_model *model = vit(0.0f);
    fl_job job = adamw_job();
    fl_layer_memory m[16];
    fl_stage_memory cpu, gpu;
    int n_layers = fl_model_n_layers(model), n_frozen = fl_frozen_layers(model, 1);
    const fl_stage_place whole = {FL_1F1B, 1, 1, 0, 0, n_layers};
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){image, 1, FL_I32}, 3, m), FL_OK);
    job.cache.policy = FL_CACHE_AUTO;
    job.cache.device_bytes = 12345;
    job.train.precision = FL_PRECISION_BF16;
    fl_memory_stage(model, &job, m, n_frozen, &whole, &cpu);
    assert_int_equal(cpu.copies_bytes + cpu.window_bytes + cpu.tier_bytes, 0);
    job.devices.kind = FL_DEVICE_CUDA;
    fl_memory_stage(model, &job, m, n_frozen, &whole, &gpu);
    assert_int_equal(gpu.copies_bytes, 2 * fl_layout_count(model, 0, n_layers));
    assert_int_equal(gpu.window_bytes, m[n_frozen - 1].out_bytes);
    assert_int_equal(gpu.tier_bytes, 12345);
    assert_int_equal(gpu.total_bytes - gpu.tables_bytes,
                     cpu.total_bytes + gpu.copies_bytes + gpu.window_bytes + gpu.tier_bytes);
    fl_memory_stage(model, &job, m, 0, &whole, &gpu); /* nothing is frozen, nothing cached */
    assert_int_equal(gpu.window_bytes + gpu.tier_bytes, 0);
    job.train.precision = FL_PRECISION_TF32;
    job.cache.policy = FL_CACHE_OFF;
    fl_memory_stage(model, &job, m, n_frozen, &whole, &gpu);
    assert_int_equal(gpu.copies_bytes + gpu.window_bytes + gpu.tier_bytes, 0);
    int64_t without = gpu.total_bytes;
    m[0].graph_bytes = FL_DEVICE_GRAPH_ROOM_BYTES / n_layers; /* there is room beside the budget */
    fl_memory_stage(model, &job, m, n_frozen, &whole, &gpu);
    assert_int_equal(gpu.total_bytes, without);
    m[0].graph_bytes = FL_DEVICE_GRAPH_ROOM_BYTES;
    fl_memory_stage(model, &job, m, n_frozen, &whole, &gpu);
    assert_int_equal(gpu.graphs_bytes, (n_layers - 1) * (int64_t)FL_DEVICE_GRAPH_ROOM_BYTES);
    assert_int_equal(gpu.total_bytes, without + gpu.graphs_bytes);
    job.devices.kind = FL_DEVICE_CPU;
    fl_memory_stage(model, &job, m, n_frozen, &whole, &cpu);
    assert_int_equal(cpu.graphs_bytes, 0);
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__counts_what_only_a_gpu_holds),
        cmocka_unit_test(test_memory__dry_run_counts_what_a_real_run_takes),
        cmocka_unit_test(test_memory__n_samples_take_at_most_n_times_one),
        cmocka_unit_test(test_memory__a_layers_failure_comes_with_its_place),
        cmocka_unit_test(test_memory__a_layer_may_write_without_kernels),
        cmocka_unit_test(test_memory__survives_every_failed_allocation),
        cmocka_unit_test(test_memory__stage_is_the_sum_of_its_parts),
        cmocka_unit_test(test_memory__nothing_flows_back_below_the_frost_line),
        cmocka_unit_test(test_memory__table_agrees_with_the_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
