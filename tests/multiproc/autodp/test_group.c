/* The training group where nothing fails: sums over all members, several groups at once, and failed
 * allocations; over the transport that FL_TEST_TRANSPORT names. */
#include "autodp/group/backend.h"
#include "device/system/alloc.h"
#include "support/ranks/group_data.h"
#include "support/ranks/group_open.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Catches a backend of another build that is called all the same. */
static void test_group_ops__are_refused_unless_of_this_build(void **state)
{
    (void)state;
    fl_group_ops ops = fl_host_group_ops;
    char its_version[64];
    assert_int_equal(fl_group_ops_check(&ops), FL_OK);
    ops.version++;
    snprintf(its_version, sizeof its_version, "version %u of the group interface", ops.version);
    assert_int_equal(fl_group_ops_check(&ops), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), its_version));
    ops = fl_host_group_ops;
    ops.size_bytes -= 8;
    assert_int_equal(fl_group_ops_check(&ops), FL_ENOTSUP);
    ops = fl_host_group_ops;
    ops.bucket_wait = NULL;
    assert_int_equal(fl_group_ops_check(&ops), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "transport host lacks function 22"));
}

static void sum_doubles(const rank_env *env)
{
    static const int sizes[] = {0, 1, 5, FL_GROUP_ALL_REDUCE_MAX};
    fl_group *group = group_open(env, 1);
    uint64_t allocations = fl_alloc_count();
    for (int round = 0; round < 40; round++) {
        double values[FL_GROUP_ALL_REDUCE_MAX], expected[FL_GROUP_ALL_REDUCE_MAX];
        int n = sizes[round % 4];
        for (int i = 0; i < n; i++) {
            values[i] = 1.0 / (3 + i + env->rank + round);
            expected[i] = 0.0;
            for (int rank = 0; rank < env->size; rank++) {
                expected[i] += 1.0 / (3 + i + rank + round);
            }
        }
        RANK_OK(fl_group_all_reduce(group, values, n, group_soon()));
        RANK_CHECK(memcmp(values, expected, (size_t)n * sizeof *values) == 0);
    }
    group_check_allocations(allocations);
    double one = 1.0;
    RANK_CHECK(fl_group_all_reduce(group, &one, FL_GROUP_ALL_REDUCE_MAX + 1, group_soon()) ==
               FL_EINVAL);
    fl_group_close(&group);
}

/* Catches sums in another order than the members', which would differ in the last bits, and a
 * round that takes the numbers of the round before. */
static void test_group_sum__gives_everybody_the_same_bits(void **state)
{
    (void)state;
    for (int way = 0; way < group_n_ways(2); way++) {
        group_way.sockets_only = way == 1;
        group_for_sizes(sum_doubles, NULL);
    }
    group_way.sockets_only = false;
}

static void check_sums(const float *data, int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int rank = 0; rank < size; rank++) {
            sum += group_value(rank, i);
        }
        RANK_CHECK(data[i] == sum);
    }
}

static void use_group(fl_group *group, const rank_env *env, int64_t shift)
{
    enum { N = 70001 };
    static group_data data[2];
    int owners[GROUP_RANKS];
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = rank;
    }
    if (data[shift % 2].host == NULL) {
        data[shift % 2] = group_data_take(N * sizeof(float));
    }
    const group_data *there = &data[shift % 2];
    float *mine = there->host;
    fl_bucket *bucket = group_bucket(group, 1, owners, env->size, there, N);
    for (int64_t i = 0; i < N; i++) {
        mine[i] = group_value(env->rank, i);
    }
    group_data_put(there);
    RANK_OK(fl_bucket_start(bucket, FL_ALL_REDUCE, NULL));
    double sum = 1.0;
    RANK_OK(fl_group_all_reduce(group, &sum, 1, group_soon()));
    RANK_CHECK(sum == env->size);
    RANK_OK(fl_bucket_wait(bucket, NULL, group_soon()));
    group_data_get(there);
    check_sums(mine, N, env->size);
    fl_bucket_destroy(&bucket);
}

/* The new generation opens while the old one works, and the old one closes while the new works. */
static void overlap_generations(const rank_env *env)
{
    fl_group *running = group_open(env, 1);
    for (uint32_t generation = 2; generation < 6; generation++) {
        use_group(running, env, generation);
        fl_group *next = group_open(env, generation);
        use_group(running, env, generation);
        use_group(next, env, generation + 1);
        fl_group_close(&running);
        use_group(next, env, generation);
        running = next;
    }
    fl_group_close(&running);
}

static void test_group__opens_beside_a_running_one(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(3, overlap_generations, NULL, 2 * GROUP_MS), 0);
}

static void open_and_close(const rank_env *env)
{
    enum { CYCLES = 50 };
    int descriptors = 0, threads = 0;
    for (uint32_t generation = 1; generation <= CYCLES; generation++) {
        fl_group *group = group_open(env, generation);
        use_group(group, env, generation);
        fl_group_close(&group);
        if (generation == 2) {
            descriptors = count_descriptors();
            threads = count_threads();
        }
    }
    RANK_CHECK(count_descriptors() == descriptors);
    RANK_CHECK(threads_fall_to(threads));
}

/* Catches a descriptor or a thread that a generation leaves behind. */
static void test_group__leaves_nothing_behind(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, open_and_close, NULL, 4 * GROUP_MS), 0);
}

static void run_short_of_memory(const rank_env *env)
{
    enum { N = 100000 };
    static float data[N];
    const int owners[] = {0, 1};
    const fl_bucket_options options = {
        .id = 1, .owners = owners, .n_owners = 2, .data = data, .dtype = FL_F32, .n = N};
    fl_group *group = group_open(env, 1);
    fl_status status = FL_ENOMEM;
    uint64_t n = 1;
    for (; status != FL_OK; n++) {
        fl_bucket *bucket = NULL;
        fl_channel *channel = NULL;
        fl_alloc_fail_at(n);
        status = fl_bucket_create(group, &options, &bucket);
        RANK_CHECK((status == FL_OK) == (bucket != NULL));
        if (status == FL_OK) {
            status = fl_channel_open(group, true, 1 - env->rank, 2, 100, 3, &channel);
            RANK_CHECK((status == FL_OK) == (channel != NULL));
        }
        fl_alloc_fail_at(0);
        RANK_CHECK(status == FL_OK || status == FL_ENOMEM);
        fl_channel_close(&channel);
        fl_bucket_destroy(&bucket);
    }
    RANK_CHECK(n > 10);
    double one = 1.0;
    RANK_OK(fl_group_all_reduce(group, &one, 1, group_soon()));
    fl_group_close(&group);
}

static void open_short_of_memory(const rank_env *env)
{
    fl_status status = FL_ENOMEM;
    uint64_t n = 1;
    for (; status != FL_OK; n++) {
        const fl_group_options options = {.transport = test_net_transport(),
                                          .device = the_device(),
                                          .generation = (uint32_t)n,
                                          .size = 1,
                                          .kv = env->kv,
                                          .open_timeout_ms = GROUP_MS,
                                          .wait_timeout_ms = GROUP_MS};
        fl_group *group = NULL;
        fl_alloc_fail_at(n);
        status = fl_group_open(&options, &group);
        fl_alloc_fail_at(0);
        RANK_CHECK((status == FL_OK) == (group != NULL));
        RANK_CHECK(status == FL_OK || status == FL_ENOMEM);
        fl_group_close(&group);
    }
    RANK_CHECK(n > 5);
}

/* Every allocation fails in turn; with the sanitizers, nothing is leaked or freed twice. */
static void test_group__survives_each_failed_allocation(void **state)
{
    (void)state;
    if (test_backend() != NULL) {
        skip(); /* its threads take memory too, and the ends would open different communicators */
    }
    assert_int_equal(ranks_run(1, open_short_of_memory, NULL, GROUP_MS), 0);
    assert_int_equal(ranks_run(2, run_short_of_memory, NULL, GROUP_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_ops__are_refused_unless_of_this_build),
        cmocka_unit_test(test_group_sum__gives_everybody_the_same_bits),
        cmocka_unit_test(test_group__opens_beside_a_running_one),
        cmocka_unit_test(test_group__leaves_nothing_behind),
        cmocka_unit_test(test_group__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
