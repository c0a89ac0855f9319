/* What a loader hands out, and when: in order, whole, until it is released, or with a failure. */
#include "data/loader.h"

#include "support/data/loader_toy.h"
#include "support/draw.h"

#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Ragged requests of changing size, always `depth` ahead, come out in their order and whole; would
 * catch slots that are mixed up, and ids that are kept by reference. */
static void test_loader__hands_out_in_order(void **state)
{
    enum { MAX = 9, ROUNDS = 500 };
    for (int depth = 1; depth <= 5; depth++) {
        fl_loader *loader = loader_make(state, MAX, depth);
        for (int round = 0; round < ROUNDS + depth; round++) {
            int64_t ids[MAX];
            if (round >= depth) {
                int old = round - depth;
                for (int i = 0; i < MAX; i++) {
                    ids[i] = (old * 7 + i * 13) % LOADER_SAMPLES;
                }
                fl_load_request expected = loader_request(ids, old % (MAX + 1));
                expected.epoch = old % 3;
                expected.augment = old % 2 == 0;
                fl_tensor t;
                assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
                loader_assert(&t, &expected);
                fl_loader_release(loader);
            }
            for (int i = 0; i < MAX; i++) {
                ids[i] = (round * 7 + i * 13) % LOADER_SAMPLES;
            }
            fl_load_request r = loader_request(ids, round % (MAX + 1));
            r.epoch = round % 3;
            r.augment = round % 2 == 0;
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
            memset(ids, 0xFF, sizeof ids);
        }
        fl_loader_destroy(&loader);
        assert_null(loader);
    }
}

/* The requests of a step: ids [IN_A_STEP], of which the first n [M] each. */
enum { M = 4, IN_A_STEP = 24, MOST_TOKENS = 12 };

typedef struct step_ids {
    int64_t ids[M][IN_A_STEP], n[M];
} step_ids;

/* Samples for a step of at most MOST_TOKENS tokens, cut anywhere. */
static void draw_step(step_ids *s)
{
    int64_t tokens = 0;
    memset(s->n, 0, sizeof s->n);
    for (int m = 0; m < M;) {
        int64_t id = draw(0, LOADER_SAMPLES - 1);
        if (draw(0, 3) == 0) {
            m++;
        } else if (tokens + 1 + id % 4 <= MOST_TOKENS) {
            s->ids[m][s->n[m]++] = id;
            tokens += 1 + id % 4;
        } else {
            break;
        }
    }
}

/* A ring that holds two steps, and one request more, never stops a caller that is one step ahead,
 * whatever the requests' sizes and wherever the ring ends; and no two requests share a place. */
static void test_loader__reads_two_steps_ahead_in_a_ring_of_their_size(void **state)
{
    enum { STEPS = 2000 };
    static step_ids steps[2];
    fl_loader *loader = NULL;
    fl_loader_room room = fl_loader_room_ragged(
        IN_A_STEP, 2 * M, (int64_t)(3 * MOST_TOKENS * LOADER_WIDTH * sizeof(float)));
    assert_true(room.n_pieces * room.piece_bytes <
                (size_t)(2 * M * MOST_TOKENS * LOADER_WIDTH) * sizeof(float) * 2);
    assert_int_equal(fl_loader_create(*state, &room, &loader), FL_OK);
    seed_random();
    for (int step = 0; step <= STEPS; step++) {
        draw_step(&steps[step % 2]);
        for (int m = 0; m < M && step < STEPS; m++) {
            fl_load_request r = loader_request(steps[step % 2].ids[m], steps[step % 2].n[m]);
            assert_int_equal(fl_loader_request(loader, &r), FL_OK);
        }
        for (int m = 0; m < M && step > 0; m++) {
            const step_ids *before = &steps[(step + 1) % 2];
            fl_load_request r = loader_request(before->ids[m], before->n[m]);
            fl_tensor t;
            assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
            loader_assert(&t, &r);
            fl_loader_release(loader);
        }
    }
    fl_loader_destroy(&loader);
}

/* Stage 0 of a pipeline keeps inputs until their backward: several taken at once stay valid. */
static void test_loader__keeps_what_is_taken_until_released(void **state)
{
    enum { DEPTH = 4 };
    fl_loader *loader = loader_make(state, 2, DEPTH);
    int64_t ids[DEPTH][2] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}}, more[2] = {9, 10};
    fl_tensor t[DEPTH], last;
    fl_load_request r[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        r[i] = loader_request(ids[i], 2);
        assert_int_equal(fl_loader_request(loader, &r[i]), FL_OK);
    }
    for (int i = 0; i < DEPTH; i++) {
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t[i]), FL_OK);
    }
    fl_loader_release(loader);
    fl_load_request again = loader_request(more, 2);
    assert_int_equal(fl_loader_request(loader, &again), FL_OK);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &last), FL_OK);
    loader_assert(&last, &again);
    for (int i = 1; i < DEPTH; i++) {
        loader_assert(&t[i], &r[i]);
    }
    fl_loader_destroy(&loader);
}

typedef struct requester {
    fl_loader *loader;
    sem_t begun;
    fl_status status;
} requester;

static void *request_one_more(void *argument)
{
    requester *r = argument;
    int64_t id = 42;
    fl_load_request request = loader_request(&id, 1);
    sem_post(&r->begun);
    r->status = fl_loader_request(r->loader, &request);
    return NULL;
}

/* With `depth` requests under way the next one waits, and a release lets it through. */
static void test_request__waits_for_a_release(void **state)
{
    fl_loader *loader = loader_make(state, 1, 2);
    int64_t ids[2] = {10, 11};
    for (int i = 0; i < 2; i++) {
        fl_load_request r = loader_request(&ids[i], 1);
        assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    }
    requester other = {.loader = loader, .status = FL_EINTERNAL};
    pthread_t thread;
    sem_init(&other.begun, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, request_one_more, &other), 0);
    sem_wait(&other.begun);
    fl_tensor t;
    for (int i = 0; i < 2; i++) {
        fl_load_request r = loader_request(&ids[i], 1);
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
        loader_assert(&t, &r);
    }
    fl_loader_release(loader);
    pthread_join(thread, NULL);
    assert_int_equal(other.status, FL_OK);
    int64_t id = 42;
    fl_load_request r = loader_request(&id, 1);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    loader_assert(&t, &r);
    fl_loader_destroy(&loader);
}

/* A deadline that passes leaves the request where it is: it can be taken later. Would also catch: a
 * slow data set that passes for a wait for another worker, who then gets the blame. */
static void test_take__keeps_its_deadline(void **state)
{
    loader_toy.gated = true;
    fl_loader *loader = loader_make(state, 1, 1);
    int64_t id = 5;
    fl_load_request r = loader_request(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    static const int64_t timeouts[] = {-1, 0, 1, 20};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(fl_loader_take(loader, timeouts[i], &t), FL_EIO);
    }
    assert_string_equal(fl_errmsg(), "samples were not read within 0.02 s (fault.deadline)");
    sem_post(&loader_toy.gate);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    loader_assert(&t, &r);
    fl_loader_release(loader);
    fl_loader_destroy(&loader);
}

/* take returns the failure of a read, in its turn and with the reader's message. Requests before
 * and after it are not affected, and its memory is free again without a release. */
static void test_take__delivers_the_failure_of_a_read(void **state)
{
    enum { DEPTH = 3, BAD = 77 };
    loader_toy.bad_id = BAD;
    fl_loader *loader = loader_make(state, 2, DEPTH);
    for (int round = 0; round < 20; round++) {
        int64_t before[2] = {1, 2}, bad[2] = {3, BAD}, behind[2] = {4, 5};
        fl_load_request r[3] = {loader_request(before, 2), loader_request(bad, 2),
                                loader_request(behind, 2)};
        fl_tensor t, last;
        for (int i = 0; i < 3; i++) {
            assert_int_equal(fl_loader_request(loader, &r[i]), FL_OK);
        }
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
        fl_status ignored = fl_fail(FL_EINVAL, "something else went wrong meanwhile");
        (void)ignored;
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &last), FL_EIO);
        assert_string_equal(fl_errmsg(), "the disk under sample 77 is gone");
        assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &last), FL_OK);
        loader_assert(&t, &r[0]);
        loader_assert(&last, &r[2]);
        fl_loader_release(loader);
        fl_loader_release(loader);
    }
    fl_loader_destroy(&loader);
}

/* A data set that breaks its promise must not write beyond the slot. */
static void test_take__refuses_a_sample_larger_than_promised(void **state)
{
    loader_toy.liar_id = 8;
    fl_loader *loader = loader_make(state, 1, 1);
    int64_t id = 8;
    fl_load_request r = loader_request(&id, 1);
    fl_tensor t;
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "training sample 8 has 5 tokens of width 3, the data set (toy) promised "
                        "at most 4 of width 3 and the same type");
    fl_loader_destroy(&loader);
}

static void test_loader__refuses_impossible_requests(void **state)
{
    fl_loader *loader = NULL;
    assert_int_equal(loader_create(*state, 0, 1, &loader), FL_EINVAL);
    assert_int_equal(loader_create(*state, 1, 0, &loader), FL_EINVAL);
    assert_int_equal(loader_create(*state, INT64_MAX, 1, &loader), FL_EINVAL);
    assert_int_equal(loader_create(*state, INT32_MAX, 1, &loader), FL_EINVAL);
    assert_null(loader);
    loader = loader_make(state, 2, 1);
    int64_t ids[3] = {1, 2, 3};
    fl_tensor t;
    fl_load_request r = loader_request(ids, 3);
    assert_int_equal(fl_loader_request(loader, &r), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "a request of 3 samples found, 0 to 2 allowed");
    assert_int_equal(fl_loader_take(loader, 0, &t), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "nothing was requested of the loader");
    fl_loader_release(loader);
    r = loader_request(ids, 2);
    assert_int_equal(fl_loader_request(loader, &r), FL_OK);
    assert_int_equal(fl_loader_take(loader, LOADER_WAIT_MS, &t), FL_OK);
    loader_assert(&t, &r);
    fl_loader_destroy(&loader);
    fl_loader_destroy(&loader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_loader__hands_out_in_order, loader_set_up),
        cmocka_unit_test_setup(test_loader__reads_two_steps_ahead_in_a_ring_of_their_size,
                               loader_set_up),
        cmocka_unit_test_setup(test_loader__keeps_what_is_taken_until_released, loader_set_up),
        cmocka_unit_test_setup(test_request__waits_for_a_release, loader_set_up),
        cmocka_unit_test_setup(test_take__keeps_its_deadline, loader_set_up),
        cmocka_unit_test_setup(test_take__delivers_the_failure_of_a_read, loader_set_up),
        cmocka_unit_test_setup(test_take__refuses_a_sample_larger_than_promised, loader_set_up),
        cmocka_unit_test_setup(test_loader__refuses_impossible_requests, loader_set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
