/* What a stage is predicted to take against what a real stage takes from its device: for every
 * number of frozen blocks and every cut. */
#include "pipe/cost/memory/memory.h"
#include "pipe/cost/plan.h"

#include "nn/model.h"
#include "pipe/state/migrate.h"
#include "pipe/state/params.h"
#include "pipe/step/stage/stage.h"
#include "support/data/tied.h"
#include "support/data/toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static fl_job adamw_job(void)
{
    fl_job job = {0};
    job.train.optimizer = FL_ADAMW;
    return job;
}

enum { SLOTS = 2, BATCH = 3 };

static void step_once(fl_stage *stage, int n_layers, int first, int last, int n_frozen)
{
    const int64_t ids[BATCH] = {0, 1, 2};
    for (int slot = 0; slot < SLOTS; slot++) {
        fl_micro_batch batch = {
            .split = FL_TRAIN, .ids = ids, .n = BATCH, .n_global = BATCH, .training = true};
        fl_tensor t;
        assert_int_equal(fl_stage_begin(stage, slot, &batch, &t), FL_OK);
        assert_int_equal(fl_stage_forward(stage, slot, NULL, &t), FL_OK);
    }
    for (int slot = 0; slot < SLOTS; slot++) {
        fl_loss_sums sums = {0};
        fl_tensor t;
        if (last == n_layers) {
            assert_int_equal(fl_stage_loss(stage, slot, true, 1.0f, &sums), FL_OK);
        } else if (n_frozen < last) {
            fl_stage_grad_out(stage, slot, &t);
        }
        assert_int_equal(fl_stage_backward(stage, slot, n_frozen < first, NULL, NULL, NULL, &t),
                         FL_OK);
        assert_int_equal(t.data != NULL, n_frozen < first);
    }
}

/* Evaluation keeps nothing, and borrows what training keeps. */
static void evaluate_once(fl_stage *stage, int n_layers, int last)
{
    const int64_t ids[BATCH] = {0, 1, 2};
    fl_micro_batch batch = {.split = FL_TRAIN, .ids = ids, .n = BATCH, .n_global = BATCH};
    fl_loss_sums sums = {0};
    fl_tensor t;
    assert_int_equal(fl_stage_begin(stage, 0, &batch, &t), FL_OK);
    assert_int_equal(fl_stage_forward(stage, 0, NULL, &t), FL_OK);
    if (last == n_layers) {
        assert_int_equal(fl_stage_loss(stage, 0, false, 1.0f, &sums), FL_OK);
    }
}

static void check_stage(const fl_model *model, const fl_dataset *data, const fl_job *job,
                        const fl_layer_memory *layers, int stage_index, const int *cut,
                        int n_frozen)
{
    enum { K = 3 };
    fl_stage *stage = NULL;
    fl_device *device = NULL;
    int n_layers = fl_model_n_layers(model), n_slots = 0;
    size_t slot_bytes = 0, scratch_bytes = 0;
    fl_drawn_state drawn = {.model = model, .seed = job->train.seed};
    fl_state_source source = fl_drawn_source(&drawn);
    fl_stage_options o = {.model = model,
                          .dataset = data,
                          .job = job,
                          .first = cut[stage_index],
                          .last = cut[stage_index + 1],
                          .n_frozen = n_frozen,
                          .source = &source,
                          .n_slots = SLOTS,
                          .capacity = fl_capacity_equal(BATCH, 1, 1, SLOTS)};
    fl_memory_stage(model, job, layers, n_frozen,
                    &(fl_stage_place){FL_GPIPE, K, SLOTS, stage_index, o.first, o.last}, &o.memory);
    assert_int_equal(o.memory.n_slots, SLOTS);
    size_t promised =
        (size_t)(o.memory.params_bytes + SLOTS * o.memory.slot_bytes + o.memory.scratch_bytes);
    assert_int_equal(fl_device_cpu_create(1, NULL, promised, &device), FL_OK);
    o.device = device;
    assert_int_equal(fl_stage_create(&o, &stage), FL_OK);
    assert_int_equal(device->used_bytes, promised);
    step_once(stage, n_layers, o.first, o.last, n_frozen);
    evaluate_once(stage, n_layers, o.last);
    fl_stage_peaks(stage, &n_slots, &slot_bytes, &scratch_bytes);
    assert_int_equal(n_slots, SLOTS);
    assert_int_equal(slot_bytes, o.memory.slot_bytes);
    assert_int_equal(scratch_bytes, o.memory.scratch_bytes);
    fl_stage_destroy(&stage);
    assert_int_equal(device->used_bytes, 0);
    fl_device_destroy(&device);
}

/* For every F and every stage, a real stage takes exactly the predicted memory. Would catch: a
 * stage with frozen layers that holds gradients which are never computed, or that exceeds its
 * budget. */
static void check_frozen(const fl_model *model, const int cut[4], int n_blocks)
{
    fl_dataset data;
    fl_job job = adamw_job();
    fl_layer_memory layers[16];
    fl_shape input;
    int64_t n_targets, total = INT64_MAX;
    assert_int_equal(fl_toy_dataset(40, &data), FL_OK);
    assert_int_equal(fl_model_n_layers(model), cut[3]);
    assert_int_equal(data.ops->max_shape(data.self, &input, &n_targets), FL_OK);
    assert_int_equal(fl_memory_measure(model, &(fl_sample_shape){input, 1, FL_I32}, BATCH, layers),
                     FL_OK);
    for (int F = 0; F <= n_blocks; F++) {
        int n_frozen = fl_frozen_layers(model, F);
        fl_stage_memory whole;
        fl_memory_stage(model, &job, layers, n_frozen,
                        &(fl_stage_place){FL_1F1B, 1, 1, 0, 0, cut[3]}, &whole);
        assert_true(whole.total_bytes < total); /* each frozen block saves something */
        total = whole.total_bytes;
        for (int s = 0; s < 3; s++) {
            check_stage(model, &data, &job, layers, s, cut, n_frozen);
        }
    }
    fl_dataset_destroy(&data);
}

/* A device that cannot read host memory has tables of its own, which count as well. */
static void test_memory__tables_count_on_a_device_with_memory_of_its_own(void **state)
{
    (void)state;
    const int cut[] = {0, 3, 5, 8};
    fl_model *model = NULL;
    fl_dataset data;
    fl_job job = adamw_job();
    fl_layer_memory layers[16];
    fl_sample_shape sample;
    job.devices.kind = FL_DEVICE_ASYNC_TEST;
    assert_int_equal(fl_toy_dataset(40, &data), FL_OK);
    assert_int_equal(fl_toy_model(3, 0.1f, &model), FL_OK);
    assert_int_equal(fl_sample_shape_max(&data, &sample), FL_OK);
    assert_int_equal(fl_memory_measure(model, &sample, BATCH, layers), FL_OK);
    for (int s = 0; s < 3; s++) {
        fl_stage *stage = NULL;
        fl_device_options device = {.kind = job.devices.kind, .n_threads = 1};
        fl_stage_options o = {.model = model,
                              .dataset = &data,
                              .job = &job,
                              .first = cut[s],
                              .last = cut[s + 1],
                              .n_slots = SLOTS,
                              .capacity = fl_capacity_equal(BATCH, 1, 1, SLOTS)};
        fl_memory_stage(model, &job, layers, 0,
                        &(fl_stage_place){FL_GPIPE, 3, SLOTS, s, o.first, o.last}, &o.memory);
        assert_true(o.memory.tables_bytes > 0);
        device.budget_bytes = (size_t)(o.memory.params_bytes + SLOTS * o.memory.slot_bytes +
                                       o.memory.scratch_bytes + o.memory.tables_bytes);
        assert_int_equal(fl_device_open(&device, &o.device), FL_OK);
        assert_int_equal(fl_stage_create(&o, &stage), FL_OK);
        assert_int_equal(o.device->used_bytes, device.budget_bytes);
        assert_int_equal(o.device->ops->sync(o.device, NULL), FL_OK);
        fl_stage_destroy(&stage);
        fl_device_destroy(&o.device);
    }
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

static void test_memory__frozen_layers_take_what_a_real_stage_takes(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(fl_toy_model(3, 0.1f, &model), FL_OK);
    check_frozen(model, (const int[]){0, 3, 5, 8}, 3);
    fl_model_destroy(&model);
}

/* Two uses in one stage share a gradient; of a use that is frozen above the frost line there is
 * none. */
static void test_memory__ties_take_what_a_real_stage_takes(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(tied_model(true, 0.1f, &model), FL_OK);
    check_frozen(model, (const int[]){0, 5, 7, TIED_LAYERS}, TIED_BLOCKS);
    check_frozen(model, (const int[]){0, 1, 8, TIED_LAYERS}, TIED_BLOCKS);
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory__tables_count_on_a_device_with_memory_of_its_own),
        cmocka_unit_test(test_memory__frozen_layers_take_what_a_real_stage_takes),
        cmocka_unit_test(test_memory__ties_take_what_a_real_stage_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
