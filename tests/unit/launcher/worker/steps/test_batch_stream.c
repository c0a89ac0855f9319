/* The stream of global batches. Would catch: a batch that is skipped, used twice or read from the
 * wrong position after a transition, an evaluation or a pause; a batch whose ids change while it is
 * in use; a batch that is prefetched twice or never. */
#include "launcher/worker/steps/batch_stream.h"

#include "device/system/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 7, N_SAMPLES = 10, BATCH = 4, PER_EPOCH = 3, N_STEPS = 9 };

/* What the sampler alone makes of step `step`. */
typedef struct expected_batch {
    int64_t ids[BATCH], n, epoch;
    fl_cursor after;
} expected_batch;

static expected_batch expect_step(int64_t step)
{
    expected_batch e = {0};
    fl_cursor cursor = {0};
    for (int64_t i = 0; i <= step; i++) {
        e.epoch = cursor.epoch;
        fl_sampler_next(SEED, N_SAMPLES, BATCH, &cursor, e.ids, &e.n);
    }
    e.after = cursor;
    return e;
}

static void check_batch(const fl_stream_batch *b, int64_t step)
{
    expected_batch e = expect_step(step);
    assert_int_equal(b->batch.step, step);
    assert_int_equal(b->batch.split, FL_TRAIN);
    assert_int_equal(b->batch.epoch, e.epoch);
    assert_int_equal(b->batch.n, e.n);
    assert_memory_equal(b->batch.ids, e.ids, (size_t)e.n * sizeof *e.ids);
    assert_int_equal(b->after.epoch, e.after.epoch);
    assert_int_equal(b->after.position, e.after.position);
}

static int set_up(void **state)
{
    static fl_batch_stream stream;
    assert_int_equal(fl_batch_stream_init(&stream, SEED, N_SAMPLES, BATCH), FL_OK);
    *state = &stream;
    return 0;
}

static int tear_down(void **state)
{
    fl_batch_stream_fini(*state);
    return 0;
}

/* As a worker goes through three epochs: one batch ahead, but not past an epoch's end. */
static void test_batch_stream__gives_each_batch_once(void **state)
{
    fl_batch_stream *s = *state;
    const fl_stream_batch *next, *ahead;
    bool is_drawn = false;
    for (int64_t step = 0; step < N_STEPS; step++) {
        assert_int_equal(fl_batch_stream_peek(s, 0, &next), !is_drawn);
        assert_false(fl_batch_stream_peek(s, 0, &next));
        check_batch(next, step);
        is_drawn = next->after.epoch == next->batch.epoch;
        assert_int_equal(is_drawn, step % PER_EPOCH != PER_EPOCH - 1);
        if (is_drawn) {
            assert_true(fl_batch_stream_peek(s, 1, &ahead));
            check_batch(ahead, step + 1);
            check_batch(next, step); /* drawing ahead leaves the batch at work alone */
        }
        fl_batch_stream_take(s);
    }
}

/* A transition: the batch ahead was read by the old pipeline and must be read by the new one. */
static void test_batch_stream__draws_again_after_a_reset(void **state)
{
    fl_batch_stream *s = *state;
    const fl_stream_batch *next, *ahead;
    assert_true(fl_batch_stream_peek(s, 0, &next));
    assert_true(fl_batch_stream_peek(s, 1, &ahead));
    fl_cursor after = next->after;
    fl_batch_stream_take(s);
    fl_batch_stream_reset(s, 1, after);
    assert_true(fl_batch_stream_peek(s, 0, &next));
    check_batch(next, 1);
    assert_true(fl_batch_stream_peek(s, 1, &ahead));
    check_batch(ahead, 2);
}

/* A worker that joins at step 4 has drawn nothing before. */
static void test_batch_stream__begins_where_a_worker_joins(void **state)
{
    fl_batch_stream *s = *state;
    const fl_stream_batch *next;
    fl_batch_stream_reset(s, 4, expect_step(3).after);
    assert_true(fl_batch_stream_peek(s, 0, &next));
    check_batch(next, 4);
}

static void test_batch_stream__survives_a_failed_allocation(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= FL_BATCH_STREAM_AHEAD; n++) {
        fl_batch_stream s;
        fl_alloc_fail_at(n);
        assert_int_equal(fl_batch_stream_init(&s, SEED, N_SAMPLES, BATCH), FL_ENOMEM);
        fl_alloc_fail_at(0);
        fl_batch_stream_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_batch_stream__gives_each_batch_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_batch_stream__draws_again_after_a_reset, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_batch_stream__begins_where_a_worker_joins, set_up,
                                        tear_down),
        cmocka_unit_test(test_batch_stream__survives_a_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
