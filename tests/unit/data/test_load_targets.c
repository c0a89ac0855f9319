/* Targets of samples: ragged, and classes or values. */
#include "data/loader.h"

#include "support/data/loader_toy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_targets__are_ragged(void **state)
{
    int64_t ids[3] = {4, 7, 2};
    int32_t data[4], offsets[4];
    const int32_t expected[4] = {400, 700, 701, 200}, places[4] = {0, 1, 3, 4};
    fl_tensor t;
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 4, offsets, &t), FL_OK);
    assert_memory_equal(data, expected, sizeof data);
    assert_memory_equal(offsets, places, sizeof offsets);
    assert_int_equal(t.n_samples, 3);
    assert_int_equal(t.n_tokens, 4);
    assert_int_equal(t.width, 1);
    assert_int_equal(t.dtype, FL_I32);
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 3, offsets, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "the 1 targets of training sample 2 do not fit: 3 of 3 in use");
    ids[1] = LOADER_SAMPLES;
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 3, data, 4, offsets, &t), FL_EINVAL);
    assert_int_equal(fl_load_targets(*state, FL_TRAIN, ids, 0, data, 0, offsets, &t), FL_OK);
    assert_int_equal(t.n_tokens, 0);
}

static fl_status half_targets(const void *self, fl_split split, int64_t id, float *targets)
{
    int32_t classes[2] = {0};
    (void)split;
    FL_TRY(loader_targets(self, split, id, classes));
    targets[0] = (float)classes[0] + 0.5f;
    return FL_OK;
}

static void test_targets__may_be_values(void **state)
{
    const fl_dataset *set = *state;
    fl_dataset_ops ops = *set->ops;
    const fl_dataset data = {.ops = &ops, .self = set->self};
    const int64_t ids[2] = {4, 2};
    float values[2];
    int32_t offsets[3];
    fl_tensor t;
    ops.targets = NULL;
    ops.targets_f32 = half_targets;
    assert_int_equal(fl_load_targets(&data, FL_TRAIN, ids, 2, values, 2, offsets, &t), FL_OK);
    assert_int_equal(t.dtype, FL_F32);
    assert_true(fl_f32(&t)[0] == 400.5f && fl_f32(&t)[1] == 200.5f);
    assert_int_equal(fl_targets_check(&ops), FL_OK);
    ops.targets = set->ops->targets;
    assert_int_equal(fl_targets_check(&ops), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "targets and targets_f32 found, allowed: targets or "));
    ops.targets = NULL;
    ops.targets_f32 = NULL;
    assert_int_equal(fl_targets_check(&ops), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "no targets found, allowed: targets or targets_f32"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_targets__are_ragged, loader_set_up),
        cmocka_unit_test_setup(test_targets__may_be_values, loader_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
