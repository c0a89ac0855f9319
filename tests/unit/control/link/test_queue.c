/* The queue between the training thread and the link thread. */
#include "control/link/queue.h"

#include "device/system/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { START_BYTES = 256, LIMIT_BYTES = 4096, MANY = 20000 };

static fl_wire_message step_of(int64_t step)
{
    fl_wire_message frame = {.type = FL_WIRE_STEP, .generation = 1};
    frame.step.step = step;
    return frame;
}

/* Read what was taken: the steps first, first + 1, ...; returns how many. */
static int64_t check_steps(const unsigned char *bytes, size_t n, int64_t first)
{
    int64_t count = 0;
    while (n > 0) {
        fl_wire_message frame;
        assert_int_equal(fl_wire_next(&bytes, &n, &frame), FL_OK);
        assert_int_equal(frame.step.step, first + count++);
    }
    return count;
}

/* Would catch: a report lost or moved when the buffers grow or change places. */
static void test_queue__keeps_order_while_it_grows(void **state)
{
    (void)state;
    fl_queue queue;
    int64_t put = 0, taken = 0;
    assert_int_equal(fl_queue_init(&queue, START_BYTES, LIMIT_BYTES), FL_OK);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < round; i++) {
            fl_wire_message frame = step_of(put++);
            assert_int_equal(fl_queue_put(&queue, &frame), FL_OK);
        }
        size_t n;
        const unsigned char *bytes = fl_queue_take(&queue, &n);
        taken += check_steps(bytes, n, taken);
        assert_int_equal(taken, put);
    }
    fl_queue_fini(&queue);
}

/* Would catch: a step that allocates. */
static void test_queue__allocates_only_to_grow(void **state)
{
    (void)state;
    fl_queue queue;
    fl_wire_message frame = step_of(0);
    assert_int_equal(fl_queue_init(&queue, START_BYTES, LIMIT_BYTES), FL_OK);
    uint64_t before = fl_alloc_count();
    for (int i = 0; i < MANY; i++) {
        size_t n;
        assert_int_equal(fl_queue_put(&queue, &frame), FL_OK);
        assert_int_equal(fl_queue_put(&queue, &frame), FL_OK);
        (void)fl_queue_take(&queue, &n);
    }
    assert_int_equal(fl_alloc_count(), before);
    fl_queue_fini(&queue);
}

static void *put_many(void *argument)
{
    for (int64_t step = 0; step < MANY; step++) {
        fl_wire_message frame = step_of(step);
        if (fl_queue_put((fl_queue *)argument, &frame) != FL_OK) {
            return argument;
        }
    }
    return NULL;
}

/* Would catch: a report dropped, or a put that never returns, when the queue is at its limit. */
static void test_queue__waits_for_room_at_the_limit(void **state)
{
    (void)state;
    fl_queue queue;
    pthread_t thread;
    void *failed = NULL;
    int64_t taken = 0;
    assert_int_equal(fl_queue_init(&queue, START_BYTES, LIMIT_BYTES), FL_OK);
    assert_int_equal(pthread_create(&thread, NULL, put_many, &queue), 0);
    while (taken < MANY) {
        size_t n;
        const unsigned char *bytes = fl_queue_take(&queue, &n);
        assert_true(n <= LIMIT_BYTES);
        taken += check_steps(bytes, n, taken);
    }
    pthread_join(thread, &failed);
    assert_null(failed);
    fl_queue_fini(&queue);
}

/* Would catch: a training thread that stays asleep when its link has ended. */
static void test_queue__lets_waiters_go_when_it_is_closed(void **state)
{
    (void)state;
    fl_queue queue;
    pthread_t thread;
    void *failed = NULL;
    size_t n_filling = 0;
    assert_int_equal(fl_queue_init(&queue, START_BYTES, LIMIT_BYTES), FL_OK);
    assert_int_equal(pthread_create(&thread, NULL, put_many, &queue), 0);
    fl_wire_message frame = step_of(0);
    while (n_filling + fl_wire_size(&frame) <= LIMIT_BYTES) { /* until it is full */
        pthread_mutex_lock(&queue.lock);
        n_filling = queue.n_filling;
        pthread_mutex_unlock(&queue.lock);
    }
    fl_queue_close(&queue);
    pthread_join(thread, &failed);
    assert_null(failed);
    fl_queue_fini(&queue);
}

static void test_queue__refuses_what_no_buffer_holds(void **state)
{
    (void)state;
    fl_queue queue;
    size_t n;
    int64_t *ids = calloc(LIMIT_BYTES / 8, sizeof *ids);
    fl_wire_message frame = {.type = FL_WIRE_LEDGER};
    frame.ledger.n = LIMIT_BYTES / 8;
    frame.ledger.ids = ids;
    assert_int_equal(fl_queue_init(&queue, START_BYTES, LIMIT_BYTES), FL_OK);
    assert_int_equal(fl_queue_put(&queue, &frame), FL_ENOMEM);
    (void)fl_queue_take(&queue, &n);
    assert_int_equal(n, 0);
    frame.ledger.n = START_BYTES / 8; /* would fit, were there memory */
    fl_alloc_fail_at(1);
    assert_int_equal(fl_queue_put(&queue, &frame), FL_ENOMEM);
    fl_alloc_fail_at(0);
    assert_int_equal(fl_queue_put(&queue, &frame), FL_OK);
    free(ids);
    fl_queue_fini(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue__keeps_order_while_it_grows),
        cmocka_unit_test(test_queue__allocates_only_to_grow),
        cmocka_unit_test(test_queue__waits_for_room_at_the_limit),
        cmocka_unit_test(test_queue__lets_waiters_go_when_it_is_closed),
        cmocka_unit_test(test_queue__refuses_what_no_buffer_holds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
