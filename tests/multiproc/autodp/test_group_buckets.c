/* Buckets of the training group where nothing fails: over 1 to 5 ranks and odd sizes; over the
 * transport that FL_TEST_TRANSPORT names. */
#include "device/system/alloc.h"
#include "support/ranks/group_data.h"
#include "support/ranks/group_open.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static bool sharing; /* set before forking: the data lies in shared memory */

static void run_bucket(fl_bucket *bucket, fl_bucket_op op, const group_data *data)
{
    group_data_put(data);
    RANK_OK(fl_bucket_start(bucket, op, NULL));
    RANK_OK(fl_bucket_wait(bucket, NULL, group_soon()));
    group_data_get(data);
}

static const int64_t bucket_sizes[] = {0, 1, 2, 3, 7, 64, 4097, 65536, 131073, 1000003};
enum { N_BUCKETS = sizeof bucket_sizes / sizeof *bucket_sizes };

static void sum_buckets(const rank_env *env)
{
    fl_group *group = group_open(env, 1);
    int owners[GROUP_RANKS];
    fl_bucket *buckets[N_BUCKETS];
    group_data data[N_BUCKETS] = {{0}};
    fl_shared *shared[N_BUCKETS] = {NULL};
    enum { APART = 1000 }; /* so that no page begins with the data */
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = (rank + 1) % env->size; /* not in the order of the members */
    }
    for (int b = 0; b < N_BUCKETS; b++) {
        size_t n = (size_t)bucket_sizes[b];
        if (sharing) {
            RANK_OK(fl_shared_create((APART + n) * sizeof(float), &shared[b]));
            data[b].host = data[b].device = (float *)fl_shared_data(shared[b]) + APART;
        } else {
            data[b] = group_data_take(n * sizeof(float));
        }
        const fl_bucket_options options = {.id = (uint32_t)b,
                                           .owners = owners,
                                           .n_owners = env->size,
                                           .data = data[b].device,
                                           .dtype = FL_F32,
                                           .n = bucket_sizes[b],
                                           .shared = shared[b],
                                           .offset_bytes = APART * sizeof(float)};
        RANK_OK(fl_bucket_create(group, &options, &buckets[b]));
    }
    uint64_t allocations = fl_alloc_count();
    for (int step = 0; step < 3; step++) {
        for (int b = N_BUCKETS - 1; b >= 0; b--) {
            for (int64_t i = 0; i < bucket_sizes[b]; i++) {
                ((float *)data[b].host)[i] = group_value(env->rank, i + step);
            }
            group_data_put(&data[b]);
            RANK_OK(fl_bucket_start(buckets[b], FL_ALL_REDUCE, NULL));
        }
        for (int b = 0; b < N_BUCKETS; b++) {
            RANK_OK(fl_bucket_wait(buckets[b], NULL, group_soon()));
            group_data_get(&data[b]);
            for (int64_t i = 0; i < bucket_sizes[b]; i++) {
                float sum = 0;
                for (int rank = 0; rank < env->size; rank++) {
                    sum += group_value(rank, i + step);
                }
                RANK_CHECK(((float *)data[b].host)[i] == sum);
            }
        }
    }
    group_check_allocations(allocations);
    for (int b = 0; b < N_BUCKETS; b++) {
        fl_bucket_destroy(&buckets[b]);
        if (shared[b] == NULL) {
            group_data_give(&data[b]);
        }
        fl_shared_destroy(&shared[b]);
    }
    fl_group_close(&group);
}

/* Catches a wrong segment or chunk at sizes that do not divide, buckets that mix when several are
 * under way, and an allocation in a step. */
static void test_bucket__sums_over_all_owners(void **state)
{
    (void)state;
    for (int way = 0; way < group_n_ways(4); way++) {
        group_way.sockets_only = way == 1;
        sharing = way == 2;
        group_way.hosts = way == 3;
        group_for_sizes(sum_buckets, NULL);
    }
    group_way.sockets_only = sharing = group_way.hosts = false;
}

/* Sums that depend on the order of additions: bits that agree are no accident. */
static float rough_value(int rank, int64_t i)
{
    return 1.0f / (float)(1 + (i * 31 + rank * 17) % 997) - 0.3f * (float)rank;
}

/* A reduce-scatter, then an all-gather of nothing but the parts. */
static void scatter_and_gather(fl_bucket *bucket, const group_data *all, int64_t n,
                               const rank_env *env, int my_place)
{
    float *data = all->host;
    int64_t covered = 0, first, count;
    for (int place = 0; place < env->size; place++) {
        fl_bucket_part(bucket, place, &first, &count);
        RANK_CHECK(first >= 0 && count >= 0 && first + count <= n);
        covered += count;
    }
    RANK_CHECK(covered == n);
    fl_bucket_part(bucket, my_place, &first, &count);
    run_bucket(bucket, FL_REDUCE_SCATTER, all);
    for (int64_t i = 0; i < n; i++) {
        data[i] = i >= first && i < first + count ? data[i] : -1e30f;
    }
    run_bucket(bucket, FL_ALL_GATHER, all);
}

static void compare_operations(const rank_env *env)
{
    static const int64_t sizes[] = {1, 2, 5, 4097, 1000003};
    fl_group *group = group_open(env, 1);
    int owners[GROUP_RANKS];
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = (rank + 1) % env->size;
    }
    int my_place = (env->rank + env->size - 1) % env->size;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        group_data all = group_data_take((size_t)n * sizeof(float));
        float *data = all.host, *reduced = NULL;
        RANK_OK(fl_alloc_array((size_t)n, sizeof *reduced, (void **)&reduced));
        fl_bucket *bucket = group_bucket(group, (uint32_t)s, owners, env->size, &all, n);
        for (int64_t i = 0; i < n; i++) {
            data[i] = rough_value(env->rank, i);
        }
        run_bucket(bucket, FL_ALL_REDUCE, &all);
        for (int64_t i = 0; i < n; i++) {
            reduced[i] = data[i];
            data[i] = rough_value(env->rank, i);
        }
        scatter_and_gather(bucket, &all, n, env, my_place);
        RANK_CHECK(memcmp(data, reduced, (size_t)n * sizeof *data) == 0);
        fl_bucket_destroy(&bucket);
        group_data_give(&all);
        fl_free(reduced);
    }
    fl_group_close(&group);
}

/* Catches a part that its owner does not have complete after the reduce-scatter, one that the
 * all-gather takes from another owner, and sums in another order than those of the all-reduce. */
static void test_bucket__reduce_scatter_and_all_gather_are_an_all_reduce(void **state)
{
    (void)state;
    for (int way = 0; way < group_n_ways(3); way++) {
        group_way.sockets_only = way == 1;
        group_way.hosts = way == 2;
        group_for_sizes(compare_operations, NULL);
    }
    group_way.sockets_only = group_way.hosts = false;
}

/* How many bytes of sums a group sends between its hosts: all that its members send, without what
 * they read in the memory of their host. */
static void count_crossing(const rank_env *env)
{
    enum { N = 1 << 20 };
    static const int owners[] = {0, 1, 2, 3};
    fl_group *group = group_open(env, 1);
    group_data all = group_data_take(N * sizeof(float));
    fl_bucket *bucket = group_bucket(group, 0, owners, env->size, &all, N);
    run_bucket(bucket, FL_ALL_REDUCE, &all);
    fl_group_stats stats;
    fl_group_stats_get(group, &stats);
    double sent[] = {(double)stats.sent_bytes};
    RANK_OK(fl_group_all_reduce(group, sent, 1, group_soon()));
    /* In memory: half of the data of the other one, once to add and once to copy. Between hosts:
     * half of the half, twice. */
    double bytes = (double)(N * sizeof(float)), memory = 4 * bytes, between = 2 * bytes;
    RANK_CHECK(sent[0] == memory + between);
    fl_bucket_destroy(&bucket);
    group_data_give(&all);
    fl_group_close(&group);
}

/* Catches a sum that crosses between two hosts of two members as often as it has members: in one
 * ring of all four, each of the two ways between the hosts takes 1.5 times the data, not once. */
static void test_bucket__crosses_between_hosts_once(void **state)
{
    (void)state;
    group_way.hosts = group_n_ways(2) == 2;
    assert_int_equal(group_way.hosts ? ranks_run(4, count_crossing, NULL, 3 * GROUP_MS) : 0, 0);
    group_way.hosts = false;
}

/* Two replicas of two stages: members 0, 2 own bucket 1, members 1, 3 own bucket 2. */
static void sum_by_stage(const rank_env *env)
{
    enum { N = 50000 };
    fl_group *group = group_open(env, 1);
    int owners[] = {env->rank % 2, env->rank % 2 + 2};
    group_data all = group_data_take(N * sizeof(float));
    float *data = all.host;
    for (int64_t i = 0; i < N; i++) {
        data[i] = group_value(env->rank, i);
    }
    fl_bucket *bucket = group_bucket(group, (uint32_t)env->rank % 2, owners, 2, &all, N);
    run_bucket(bucket, FL_ALL_REDUCE, &all);
    for (int64_t i = 0; i < N; i++) {
        RANK_CHECK(data[i] == group_value(owners[0], i) + group_value(owners[1], i));
    }
    fl_bucket_destroy(&bucket);
    fl_group_close(&group);
    group_data_give(&all);
}

/* Catches a bucket that reaches beyond its owners. */
static void test_bucket__belongs_to_its_owners(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(4, sum_by_stage, NULL, 2 * GROUP_MS), 0);
}

static void misuse_bucket(const rank_env *env)
{
    fl_group *group = group_open(env, 1);
    group_data data = group_data_take(4 * sizeof(float));
    int me = 0, nobody = 1;
    const fl_bucket_options good = {
        .id = 1, .owners = &me, .n_owners = 1, .data = data.device, .dtype = FL_F32, .n = 4};
    fl_bucket_options bad = good;
    fl_bucket *bucket = NULL;
    bad.owners = &nobody;
    RANK_CHECK(fl_bucket_create(group, &bad, &bucket) == FL_EINVAL);
    bad = good;
    bad.n = -1;
    RANK_CHECK(fl_bucket_create(group, &bad, &bucket) == FL_EINVAL);
    bad = good;
    bad.dtype = FL_BF16;
    RANK_CHECK(fl_bucket_create(group, &bad, &bucket) == FL_ENOTSUP);
    RANK_CHECK(strstr(fl_errmsg(), "bfloat16") != NULL);
    RANK_CHECK(bucket == NULL);
    RANK_OK(fl_bucket_create(group, &good, &bucket));
    run_bucket(bucket, FL_ALL_REDUCE, &data);
    fl_bucket_destroy(&bucket);
    fl_group_close(&group);
    group_data_give(&data);
}

static void test_bucket__refuses_owners_and_types_that_it_has_not(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(1, misuse_bucket, NULL, GROUP_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket__sums_over_all_owners),
        cmocka_unit_test(test_bucket__reduce_scatter_and_all_gather_are_an_all_reduce),
        cmocka_unit_test(test_bucket__crosses_between_hosts_once),
        cmocka_unit_test(test_bucket__belongs_to_its_owners),
        cmocka_unit_test(test_bucket__refuses_owners_and_types_that_it_has_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
