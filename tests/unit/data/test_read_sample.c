/* Raw samples of ids: an id that no table has is found where the sample is read, with its place. */
#include "data/read_sample.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 3, WIDTH = 2 };

static fl_status read_ids(const void *self, fl_split split, const fl_sample_key *key, void *input)
{
    (void)split;
    if (key->id == 9) {
        return fl_fail(FL_EIO, "the disk is gone");
    }
    memcpy(input, self, ROWS * WIDTH * sizeof(int32_t));
    return FL_OK;
}

static const fl_dataset_ops ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops), .kind = "sentences", .read = read_ids};

static fl_status read_one(int32_t *ids, fl_shape shape, int64_t id)
{
    int32_t input[ROWS * WIDTH] = {0};
    const fl_dataset dataset = {.ops = &ops, .self = ids};
    const fl_sample_key key = {.id = id};
    return fl_read_sample(&dataset, FL_TEST, &key, &shape, input);
}

static void test_read_sample__checks_the_promised_range(void **state)
{
    (void)state;
    int32_t ids[ROWS * WIDTH] = {0, 6, 3, 3, 1, 0};
    fl_shape shape = {.tokens = ROWS, .width = WIDTH, .dtype = FL_I32, .n_ids = 7};
    assert_int_equal(read_one(ids, shape, 4), FL_OK);
    ids[5] = 7;
    assert_int_equal(read_one(ids, shape, 4), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "test sample 4, row 2: id 7, but the data set (sentences) "
                                     "promised 0 to 6");
    ids[5] = -1;
    assert_int_equal(read_one(ids, shape, 4), FL_EINVAL);
    shape.n_ids = 0; /* nothing promised: whole numbers that are no ids */
    assert_int_equal(read_one(ids, shape, 4), FL_OK);
    shape.n_ids = 7;
    shape.dtype = FL_F32;
    assert_int_equal(read_one(ids, shape, 4), FL_OK);
    assert_int_equal(read_one(ids, shape, 9), FL_EIO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_sample__checks_the_promised_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
