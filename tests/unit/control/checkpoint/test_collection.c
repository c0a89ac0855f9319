#include "control/checkpoint/collection.h"

#include "support/data/checkpoints.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEP = 60 };

static fl_collection *collection;
static fl_checkpoint *checkpoint, *before;

static int set_up(void **state)
{
    (void)state;
    collection = calloc(1, sizeof *collection);
    checkpoint = make_checkpoint(STEP, 1);
    before = make_checkpoint(STEP / 2, 2);
    fl_collection_begin(collection, STEP, 1);
    return collection == NULL ? -1 : 0;
}

static int clean(void **state)
{
    (void)state;
    free(collection);
    destroy_checkpoint(checkpoint);
    destroy_checkpoint(before);
    return 0;
}

static void add_file(int rank, int layer, fl_checkpoint_part part, int64_t bytes, bool linked)
{
    fl_checkpoint_file_report report = {.step = STEP,
                                        .layer = layer,
                                        .part = part,
                                        .bytes = linked ? 0 : bytes,
                                        .xxh64 = linked ? 0 : (uint64_t)bytes * 3,
                                        .linked = linked};
    fl_collection_file(collection, rank, &report);
}

static void add_part(int rank, uint32_t generation, fl_status status, const char *text)
{
    fl_checkpoint_part_report report = {.step = STEP,
                                        .generation = generation,
                                        .bytes = 100,
                                        .copy_us = 10 * rank,
                                        .write_us = 50 - rank,
                                        .status = status};
    snprintf(report.text, sizeof report.text, "%s", text);
    fl_collection_part(collection, rank, &report);
}

static fl_status finish(const char *message)
{
    fl_status status = fl_collection_finish(collection, before, checkpoint);
    assert_string_equal(status == FL_OK ? "" : fl_errmsg(), message);
    return status;
}

static void test_collection__sums_up_what_workers_report(void **state)
{
    (void)state;
    before->n_files = 1;
    before->file[0] =
        (fl_checkpoint_entry){.name = "moments-000.safetensors", .bytes = 7000, .xxh64 = 0xabcdef};
    add_file(1, 2, FL_CHECKPOINT_WEIGHTS, 500, false);
    add_file(0, 0, FL_CHECKPOINT_MOMENTS, 0, true);
    add_part(1, 3, FL_OK, "");
    add_part(0, 3, FL_OK, "");
    assert_int_equal(finish(""), FL_OK);
    assert_int_equal(checkpoint->n_files, 2);
    assert_string_equal(checkpoint->file[0].name, "weights-002.safetensors");
    assert_int_equal(checkpoint->file[0].bytes, 500);
    assert_int_equal(checkpoint->file[0].xxh64, 1500);
    assert_string_equal(checkpoint->file[1].name, "moments-000.safetensors");
    assert_int_equal(checkpoint->file[1].bytes, 7000);
    assert_int_equal(checkpoint->file[1].xxh64, 0xabcdef);
    assert_int_equal(collection->bytes, 200);
    assert_int_equal(collection->copy_us, 10);
    assert_int_equal(collection->write_us, 50);
    assert_int_equal(fl_collection_linked_bytes(collection, checkpoint), 7000);
}

static void test_collection__the_first_failure_is_the_reason(void **state)
{
    (void)state;
    add_part(0, 3, FL_OK, "");
    add_part(1, 3, FL_EIO, "worker 1, step-000000060: No space left on device");
    add_part(2, 3, FL_EIO, "another");
    assert_int_equal(finish("worker 1, step-000000060: No space left on device"), FL_EFAILED);
}

/* Would catch: "no checkpoint: ", and nothing behind it. */
static void test_collection__a_failure_without_a_text_names_worker_and_kind(void **state)
{
    (void)state;
    add_part(0, 3, FL_OK, "");
    add_part(1, 3, FL_ENOMEM, "");
    assert_int_equal(finish("worker 1: out of memory"), FL_EFAILED);
}

static void test_collection__a_link_needs_the_file_that_it_links_to(void **state)
{
    (void)state;
    add_file(0, 1, FL_CHECKPOINT_WEIGHTS, 0, true);
    add_part(0, 3, FL_OK, "");
    assert_int_equal(
        finish("weights-001.safetensors is a link to a checkpoint that does not have it"),
        FL_EFAILED);
    assert_int_equal(fl_collection_finish(collection, NULL, checkpoint), FL_EFAILED);
}

static void test_collection__reports_that_contradict_each_other_fail(void **state)
{
    (void)state;
    add_file(0, 1, FL_CHECKPOINT_WEIGHTS, 5, false);
    add_file(1, 1, FL_CHECKPOINT_WEIGHTS, 5, false);
    assert_int_equal(finish("worker 1: weights-001.safetensors was written twice"), FL_EFAILED);
    fl_collection_begin(collection, STEP, 1);
    add_part(0, 3, FL_OK, "");
    add_part(0, 3, FL_OK, "");
    assert_int_equal(finish("worker 0: reported its part twice"), FL_EFAILED);
    fl_collection_begin(collection, STEP, 1);
    add_part(0, 3, FL_OK, "");
    add_part(1, 4, FL_OK, "");
    assert_int_equal(finish("worker 1: wrote the state of another generation"), FL_EFAILED);
}

/* The index and config.json need places, too. */
static void test_collection__has_room_for_every_file_of_the_largest_model(void **state)
{
    (void)state;
    for (int layer = 0; layer < FL_MAX_LAYERS; layer++) {
        add_file(0, layer, FL_CHECKPOINT_WEIGHTS, 1, false);
        add_file(0, layer, FL_CHECKPOINT_MOMENTS, 1, false);
    }
    add_part(0, 3, FL_OK, "");
    assert_int_equal(finish(""), FL_OK);
    assert_int_equal(checkpoint->n_files, FL_CHECKPOINT_FILES_MAX - FL_CHECKPOINT_OWN_FILES);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_collection__##name, set_up, clean)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sums_up_what_workers_report),
        TEST(the_first_failure_is_the_reason),
        TEST(a_failure_without_a_text_names_worker_and_kind),
        TEST(a_link_needs_the_file_that_it_links_to),
        TEST(reports_that_contradict_each_other_fail),
        TEST(has_room_for_every_file_of_the_largest_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
