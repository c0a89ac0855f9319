/* Which store a sample belongs to, and which replica takes it: pure functions. */
#include "autodp/affinity.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SAMPLES = 20000, BATCH = 128 };

static void start(fl_affinity *h, const int *stores, int n)
{
    assert_int_equal(fl_affinity_init(h, stores, n), FL_OK);
}

/* Each store is home to as many as it has replicas, about. */
static void test_affinity__follow_the_replicas(void **state)
{
    (void)state;
    const int stores[] = {7, 7, 7, 3};
    fl_affinity h;
    int n = 0;
    start(&h, stores, 4);
    assert_false(h.one);
    for (int64_t id = 0; id < SAMPLES; id++) {
        int home = fl_affinity_store_of(&h, id);
        assert_true(home == 7 || home == 3);
        n += home == 7;
    }
    assert_in_range(n, SAMPLES * 73 / 100, SAMPLES * 77 / 100);
    fl_affinity_fini(&h);
}

/* A replica that comes takes samples to its store and moves no others; in which order replicas
 * stand does not matter. */
static void test_affinity__move_only_where_they_must(void **state)
{
    (void)state;
    const int before[] = {0, 0, 1}, after[] = {1, 0, 1, 0};
    fl_affinity a, b;
    int moved = 0;
    start(&a, before, 3);
    start(&b, after, 4);
    for (int64_t id = 0; id < SAMPLES; id++) {
        int from = fl_affinity_store_of(&a, id), to = fl_affinity_store_of(&b, id);
        moved += from != to;
        assert_true(from == to || to == 1);
    }
    /* The store was home to a third, and is to half. */
    assert_in_range(moved, SAMPLES / 6 * 9 / 10, SAMPLES / 6 * 11 / 10);
    fl_affinity_fini(&a);
    fl_affinity_fini(&b);
}

/* As many replicas in each store as in the others before and after: everything stays. */
static void test_affinity__stay_where_shares_do(void **state)
{
    (void)state;
    const int before[] = {0, 0, 1, 1, 2, 2}, after[] = {2, 0, 1};
    fl_affinity a, b;
    start(&a, before, 6);
    start(&b, after, 3);
    for (int64_t id = 0; id < SAMPLES; id++) {
        assert_int_equal(fl_affinity_store_of(&a, id), fl_affinity_store_of(&b, id));
    }
    fl_affinity_fini(&a);
    fl_affinity_fini(&b);
}

static void test_affinity__one_store_is_everybodys(void **state)
{
    (void)state;
    const int stores[] = {4, 4, 4};
    fl_affinity h;
    start(&h, stores, 3);
    assert_true(h.one);
    for (int64_t id = 0; id < 100; id++) {
        assert_int_equal(fl_affinity_store_of(&h, id), 4);
    }
    fl_affinity_fini(&h);
}

/* Equal samples: every replica gets as many as it has room for, and as many as possible are at
 * home, which is, for each store, the smaller of its samples and its room. */
static void test_affinity__deal_fills_every_room(void **state)
{
    (void)state;
    const int stores[] = {0, 1, 0, 2, 1, 0, 2, 2};
    enum { R = 8, STORES = 3 };
    fl_affinity h;
    start(&h, stores, R);
    for (int64_t batch = 0; batch < 50; batch++) {
        int64_t ids[BATCH], room[R], n[R] = {0}, of[STORES] = {0}, at_home = 0, most = 0;
        int replica[BATCH];
        for (int i = 0; i < BATCH; i++) {
            ids[i] = batch * BATCH + i;
            of[fl_affinity_store_of(&h, ids[i])]++;
        }
        for (int r = 0; r < R; r++) {
            room[r] = BATCH / R;
        }
        fl_affinity_assign(&h, ids, NULL, BATCH, room, replica);
        for (int i = 0; i < BATCH; i++) {
            assert_in_range(replica[i], 0, R - 1);
            n[replica[i]]++;
            at_home += stores[replica[i]] == fl_affinity_store_of(&h, ids[i]);
        }
        for (int store = 0; store < STORES; store++) {
            int64_t its = store == 1 ? 2 * BATCH / R : 3 * BATCH / R;
            most += of[store] < its ? of[store] : its;
        }
        for (int r = 0; r < R; r++) {
            assert_int_equal(n[r], BATCH / R);
            assert_int_equal(room[r], 0);
        }
        assert_int_equal(at_home, most);
    }
    fl_affinity_fini(&h);
}

/* Samples of different work: nobody gets more than its room and the largest sample. */
static void test_affinity__deal_weighs_work(void **state)
{
    (void)state;
    const int stores[] = {0, 1, 1};
    enum { R = 3 };
    fl_affinity h;
    int64_t ids[BATCH], room[R] = {0}, at_home = 0;
    int32_t work[BATCH];
    int replica[BATCH];
    start(&h, stores, R);
    for (int i = 0; i < BATCH; i++) {
        ids[i] = 3 * i;
        work[i] = 1 + (int32_t)(i * 37 % 50);
        room[i % R] += work[i];
    }
    fl_affinity_assign(&h, ids, work, BATCH, room, replica);
    for (int r = 0; r < R; r++) {
        assert_in_range(room[r] + 50, 0, 100);
    }
    for (int i = 0; i < BATCH; i++) {
        at_home += stores[replica[i]] == fl_affinity_store_of(&h, ids[i]);
    }
    assert_in_range(at_home, BATCH * 8 / 10, BATCH);
    fl_affinity_fini(&h);
}

static void test_affinity__nothing_to_deal(void **state)
{
    (void)state;
    const int stores[] = {0, 1};
    int64_t room[2] = {0, 0};
    const int64_t id = 5;
    const int32_t none = -3;
    int replica = -1;
    fl_affinity h;
    start(&h, stores, 2);
    fl_affinity_assign(&h, NULL, NULL, 0, room, NULL);
    fl_affinity_assign(&h, &id, &none, 1, room, &replica);
    assert_in_range(replica, 0, 1);
    fl_affinity_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_affinity__follow_the_replicas),
        cmocka_unit_test(test_affinity__move_only_where_they_must),
        cmocka_unit_test(test_affinity__stay_where_shares_do),
        cmocka_unit_test(test_affinity__one_store_is_everybodys),
        cmocka_unit_test(test_affinity__deal_fills_every_room),
        cmocka_unit_test(test_affinity__deal_weighs_work),
        cmocka_unit_test(test_affinity__nothing_to_deal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
