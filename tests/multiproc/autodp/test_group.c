/* The training group where nothing fails: each collective over 1 to 5 ranks and odd sizes; over the
 * transport that FL_TEST_TRANSPORT names. */
#include "autodp/group/backend.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "support/ranks/group_data.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 40000, MOST_RANKS = 5 };

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

/* Set before forking. hosts: two members on each but the last, which may have one. */
static bool sockets_only, sharing, hosts;

/* The addresses of this machine are hosts to a group. */
static const char *address_of(int rank)
{
    static const char *const address[] = {"127.0.0.1", "127.0.0.2", "127.0.0.3"};
    return hosts ? address[rank / 2] : NULL;
}

/* How many ways there are to go through host memory; NCCL has one. */
static int n_ways(int through_host)
{
    return test_backend() == NULL ? through_host : 1;
}

/* NCCL's stand-in and its device take memory for each operation. */
static void check_allocations(uint64_t before)
{
    RANK_CHECK(test_backend() != NULL || fl_alloc_count() == before);
}

static fl_group *open_group(const rank_env *env, uint32_t generation)
{
    const fl_group_options options = {.transport = test_net_transport(),
                                      .device = the_device(),
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .host = address_of(env->rank),
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = TIMEOUT_MS,
                                      .sockets_only = sockets_only,
                                      .backend = test_backend(),
                                      .every_pair = test_backend() != NULL};
    fl_group *group = NULL;
    RANK_OK(fl_group_open(&options, &group));
    return group;
}

static void for_sizes(rank_body *body, void *context)
{
    for (int size = 1; size <= MOST_RANKS; size++) {
        assert_int_equal(ranks_run(size, body, context, 3 * TIMEOUT_MS), 0);
    }
}

/* Exact in float for every sum of five of them. */
static float value_of(int rank, int64_t i)
{
    return (float)((i * 7 + rank * 13 + 1) % 1000);
}

static void check_sums(const float *data, int64_t n, int size)
{
    for (int64_t i = 0; i < n; i++) {
        float sum = 0;
        for (int rank = 0; rank < size; rank++) {
            sum += value_of(rank, i);
        }
        RANK_CHECK(data[i] == sum);
    }
}

/* ---- buckets ---- */

static fl_bucket *create_bucket(fl_group *group, uint32_t id, const int *owners, int n_owners,
                                const group_data *data, int64_t n)
{
    const fl_bucket_options options = {.id = id,
                                       .owners = owners,
                                       .n_owners = n_owners,
                                       .data = data->device,
                                       .dtype = FL_F32,
                                       .n = n};
    fl_bucket *bucket = NULL;
    RANK_OK(fl_bucket_create(group, &options, &bucket));
    return bucket;
}

static void run_bucket(fl_bucket *bucket, fl_bucket_op op, const group_data *data)
{
    group_data_put(data);
    RANK_OK(fl_bucket_start(bucket, op, NULL));
    RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
    group_data_get(data);
}

static const int64_t bucket_sizes[] = {0, 1, 2, 3, 7, 64, 4097, 65536, 131073, 1000003};
enum { N_BUCKETS = sizeof bucket_sizes / sizeof *bucket_sizes };

static void sum_buckets(const rank_env *env)
{
    fl_group *group = open_group(env, 1);
    int owners[MOST_RANKS];
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
                ((float *)data[b].host)[i] = value_of(env->rank, i + step);
            }
            group_data_put(&data[b]);
            RANK_OK(fl_bucket_start(buckets[b], FL_ALL_REDUCE, NULL));
        }
        for (int b = 0; b < N_BUCKETS; b++) {
            RANK_OK(fl_bucket_wait(buckets[b], NULL, soon()));
            group_data_get(&data[b]);
            for (int64_t i = 0; i < bucket_sizes[b]; i++) {
                float sum = 0;
                for (int rank = 0; rank < env->size; rank++) {
                    sum += value_of(rank, i + step);
                }
                RANK_CHECK(((float *)data[b].host)[i] == sum);
            }
        }
    }
    check_allocations(allocations);
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
    for (int way = 0; way < n_ways(4); way++) {
        sockets_only = way == 1;
        sharing = way == 2;
        hosts = way == 3;
        for_sizes(sum_buckets, NULL);
    }
    sockets_only = sharing = hosts = false;
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
    fl_group *group = open_group(env, 1);
    int owners[MOST_RANKS];
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = (rank + 1) % env->size;
    }
    int my_place = (env->rank + env->size - 1) % env->size;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s];
        group_data all = group_data_take((size_t)n * sizeof(float));
        float *data = all.host, *reduced = NULL;
        RANK_OK(fl_alloc_array((size_t)n, sizeof *reduced, (void **)&reduced));
        fl_bucket *bucket = create_bucket(group, (uint32_t)s, owners, env->size, &all, n);
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
    for (int way = 0; way < n_ways(3); way++) {
        sockets_only = way == 1;
        hosts = way == 2;
        for_sizes(compare_operations, NULL);
    }
    sockets_only = hosts = false;
}

/* How many bytes of sums a group sends between its hosts: all that its members send, without what
 * they read in the memory of their host. */
static void count_crossing(const rank_env *env)
{
    enum { N = 1 << 20 };
    static const int owners[] = {0, 1, 2, 3};
    fl_group *group = open_group(env, 1);
    group_data all = group_data_take(N * sizeof(float));
    fl_bucket *bucket = create_bucket(group, 0, owners, env->size, &all, N);
    run_bucket(bucket, FL_ALL_REDUCE, &all);
    fl_group_stats stats;
    fl_group_stats_get(group, &stats);
    double sent[] = {(double)stats.sent_bytes};
    RANK_OK(fl_group_all_reduce(group, sent, 1, soon()));
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
    hosts = n_ways(2) == 2;
    assert_int_equal(hosts ? ranks_run(4, count_crossing, NULL, 3 * TIMEOUT_MS) : 0, 0);
    hosts = false;
}

/* Two replicas of two stages: members 0, 2 own bucket 1, members 1, 3 own bucket 2. */
static void sum_by_stage(const rank_env *env)
{
    enum { N = 50000 };
    fl_group *group = open_group(env, 1);
    int owners[] = {env->rank % 2, env->rank % 2 + 2};
    group_data all = group_data_take(N * sizeof(float));
    float *data = all.host;
    for (int64_t i = 0; i < N; i++) {
        data[i] = value_of(env->rank, i);
    }
    fl_bucket *bucket = create_bucket(group, (uint32_t)env->rank % 2, owners, 2, &all, N);
    run_bucket(bucket, FL_ALL_REDUCE, &all);
    for (int64_t i = 0; i < N; i++) {
        RANK_CHECK(data[i] == value_of(owners[0], i) + value_of(owners[1], i));
    }
    fl_bucket_destroy(&bucket);
    fl_group_close(&group);
    group_data_give(&all);
}

/* Catches a bucket that reaches beyond its owners. */
static void test_bucket__belongs_to_its_owners(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(4, sum_by_stage, NULL, 2 * TIMEOUT_MS), 0);
}

static void misuse_bucket(const rank_env *env)
{
    fl_group *group = open_group(env, 1);
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
    assert_int_equal(ranks_run(1, misuse_bucket, NULL, TIMEOUT_MS), 0);
}

/* ---- sums ---- */

static void sum_doubles(const rank_env *env)
{
    static const int sizes[] = {0, 1, 5, FL_GROUP_ALL_REDUCE_MAX};
    fl_group *group = open_group(env, 1);
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
        RANK_OK(fl_group_all_reduce(group, values, n, soon()));
        RANK_CHECK(memcmp(values, expected, (size_t)n * sizeof *values) == 0);
    }
    check_allocations(allocations);
    double one = 1.0;
    RANK_CHECK(fl_group_all_reduce(group, &one, FL_GROUP_ALL_REDUCE_MAX + 1, soon()) == FL_EINVAL);
    fl_group_close(&group);
}

/* Catches sums in another order than the members', which would differ in the last bits, and a
 * round that takes the numbers of the round before. */
static void test_group_sum__gives_everybody_the_same_bits(void **state)
{
    (void)state;
    for (int way = 0; way < n_ways(2); way++) {
        sockets_only = way == 1;
        for_sizes(sum_doubles, NULL);
    }
    sockets_only = false;
}

/* ---- backends ---- */

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

/* ---- channels ---- */

enum { N_MESSAGES = 60, MESSAGE_MAX = 300 * 1024 };

static size_t message_size(int64_t n)
{
    return n % 5 == 0 ? MESSAGE_MAX : (size_t)(n * 977 % 5000); /* 0 bytes too */
}

static unsigned char message_byte(int sender, int64_t n, size_t i)
{
    return (unsigned char)(i + (size_t)n * 3 + (size_t)sender * 101);
}

/* Both neighbours at once, as a stage does that sends activations up and gradients down. */
static void talk_both_ways(const rank_env *env)
{
    int depth = *(const int *)env->context;
    fl_group *group = open_group(env, 1);
    int peer = 1 - env->rank;
    fl_channel *to = NULL, *from = NULL;
    RANK_OK(fl_channel_open(group, true, peer, (uint32_t)env->rank, MESSAGE_MAX, depth, &to));
    RANK_OK(fl_channel_open(group, false, peer, (uint32_t)peer, MESSAGE_MAX, depth, &from));
    group_data mine = group_data_take(MESSAGE_MAX), in = group_data_take(MESSAGE_MAX);
    uint64_t allocations = fl_alloc_count();
    for (int64_t n = 0; n < depth; n++) {
        RANK_OK(fl_channel_post(from, message_size(n)));
    }
    for (int64_t n = 0; n < N_MESSAGES; n++) {
        unsigned char *place = fl_channel_place(to);
        bool from_place = n % 3 != 0 && the_device()->ops->host_memory;
        unsigned char *out = from_place ? place : mine.host;
        RANK_CHECK((place != NULL) == the_device()->ops->host_memory);
        for (size_t i = 0; i < message_size(n); i++) {
            out[i] = message_byte(env->rank, n, i);
        }
        group_data_put(&mine);
        RANK_OK(fl_channel_send_from(to, from_place ? place : mine.device, message_size(n), NULL,
                                     soon()));
        memset(mine.host, 0xff, mine.size_bytes);
        group_data_put(&mine);
        RANK_OK(fl_channel_receive_to(from, in.device, message_size(n), NULL, soon()));
        group_data_get(&in);
        for (size_t i = 0; i < message_size(n); i++) {
            RANK_CHECK(((unsigned char *)in.host)[i] == message_byte(peer, n, i));
        }
        if (n + depth < N_MESSAGES && n < N_MESSAGES / 2) {
            RANK_OK(fl_channel_post(from, message_size(n + depth)));
        } else if (n >= N_MESSAGES / 2 + depth) {
            RANK_CHECK(n == N_MESSAGES - 1 || fl_channel_post(from, MESSAGE_MAX + 1) == FL_EINVAL);
        }
    }
    RANK_OK(fl_channel_flush(to, soon()));
    check_allocations(allocations);
    fl_channel_close(&to);
    fl_channel_close(&from);
    fl_group_close(&group);
    group_data_give(&mine);
    group_data_give(&in);
}

/* Messages from the place in the channel and from elsewhere, posted ahead and not. Catches a
 * deadlock when both ends send first, and buffers overwritten while under way. */
static void test_channel__carries_messages_both_ways_at_once(void **state)
{
    (void)state;
    for (int way = 0; way < n_ways(2); way++) {
        sockets_only = way == 1;
        for (int depth = 1; depth <= 4; depth++) {
            assert_int_equal(ranks_run(2, talk_both_ways, &depth, 2 * TIMEOUT_MS), 0);
        }
    }
    sockets_only = false;
}

/* Closed and opened again under the same id, with nothing that keeps the two ends in step but the
 * messages themselves. */
static void talk_again(const rank_env *env)
{
    fl_group *group = open_group(env, 1);
    bool sending = env->rank == 0;
    int64_t n_times = test_backend() == NULL ? 200 : 20; /* each opens a communicator */
    group_data there = group_data_take(sizeof(int64_t));
    int64_t *value = there.host;
    for (int64_t time = 0; time < n_times; time++) {
        fl_channel *c = NULL;
        RANK_OK(fl_channel_open(group, sending, 1 - env->rank, 7, sizeof time, 1, &c));
        for (int64_t n = 0; n < 3; n++) {
            *value = sending ? 3 * time + n : -1;
            group_data_put(&there);
            if (sending) {
                RANK_OK(fl_channel_send_from(c, there.device, sizeof *value, NULL, soon()));
            } else {
                RANK_OK(fl_channel_receive_to(c, there.device, sizeof *value, NULL, soon()));
                group_data_get(&there);
                RANK_CHECK(*value == 3 * time + n);
            }
        }
        if (sending) {
            RANK_OK(fl_channel_flush(c, soon()));
        }
        fl_channel_close(&c);
    }
    fl_group_close(&group);
    group_data_give(&there);
}

/* Catches an end that takes the other's earlier channel for the present one. */
static void test_channel__can_be_opened_again(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, talk_again, NULL, 2 * TIMEOUT_MS), 0);
}

static void misuse_channel(const rank_env *env)
{
    fl_group *group = open_group(env, 1);
    fl_channel *c = NULL;
    RANK_CHECK(fl_channel_open(group, true, env->rank, 1, 8, 1, &c) == FL_EINVAL);
    RANK_CHECK(fl_channel_open(group, true, 2, 1, 8, 1, &c) == FL_EINVAL);
    RANK_CHECK(fl_channel_open(group, true, 1 - env->rank, 1, 8, 0, &c) == FL_EINVAL);
    bool sending = env->rank == 0;
    RANK_OK(fl_channel_open(group, sending, 1 - env->rank, 1, 8, 1, &c));
    group_data there = group_data_take(9);
    void *data = there.device;
    if (sending) {
        RANK_CHECK(fl_channel_send_from(c, data, 9, NULL, soon()) == FL_EINVAL);
        RANK_CHECK(fl_channel_post(c, 8) == FL_EINVAL);
        RANK_CHECK(fl_channel_receive_to(c, data, 8, NULL, soon()) == FL_EINVAL);
        RANK_OK(fl_channel_send_from(c, data, 8, NULL, soon()));
        RANK_OK(fl_channel_flush(c, soon()));
    } else {
        RANK_CHECK(fl_channel_place(c) == NULL);
        RANK_CHECK(fl_channel_send_from(c, data, 8, NULL, soon()) == FL_EINVAL);
        RANK_CHECK(fl_channel_flush(c, soon()) == FL_EINVAL);
        RANK_OK(fl_channel_post(c, 8));
        RANK_CHECK(fl_channel_post(c, 8) == FL_EINVAL);
        RANK_CHECK(fl_channel_receive_to(c, data, 7, NULL, soon()) == FL_EINVAL);
        RANK_OK(fl_channel_receive_to(c, data, 8, NULL, soon()));
        group_data_get(&there);
    }
    fl_channel_close(&c);
    fl_group_close(&group);
    group_data_give(&there);
}

static void test_channel__refuses_what_it_was_not_opened_for(void **state)
{
    (void)state;
    assert_int_equal(ranks_run(2, misuse_channel, NULL, 2 * TIMEOUT_MS), 0);
}

/* ---- several groups ---- */

static void use_group(fl_group *group, const rank_env *env, int64_t shift)
{
    enum { N = 70001 };
    static group_data data[2];
    int owners[MOST_RANKS];
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = rank;
    }
    if (data[shift % 2].host == NULL) {
        data[shift % 2] = group_data_take(N * sizeof(float));
    }
    const group_data *there = &data[shift % 2];
    float *mine = there->host;
    fl_bucket *bucket = create_bucket(group, 1, owners, env->size, there, N);
    for (int64_t i = 0; i < N; i++) {
        mine[i] = value_of(env->rank, i);
    }
    group_data_put(there);
    RANK_OK(fl_bucket_start(bucket, FL_ALL_REDUCE, NULL));
    double sum = 1.0;
    RANK_OK(fl_group_all_reduce(group, &sum, 1, soon()));
    RANK_CHECK(sum == env->size);
    RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
    group_data_get(there);
    check_sums(mine, N, env->size);
    fl_bucket_destroy(&bucket);
}

/* The new generation opens while the old one works, and the old one closes while the new works. */
static void overlap_generations(const rank_env *env)
{
    fl_group *running = open_group(env, 1);
    for (uint32_t generation = 2; generation < 6; generation++) {
        use_group(running, env, generation);
        fl_group *next = open_group(env, generation);
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
    assert_int_equal(ranks_run(3, overlap_generations, NULL, 2 * TIMEOUT_MS), 0);
}

static void open_and_close(const rank_env *env)
{
    enum { CYCLES = 50 };
    int descriptors = 0, threads = 0;
    for (uint32_t generation = 1; generation <= CYCLES; generation++) {
        fl_group *group = open_group(env, generation);
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
    assert_int_equal(ranks_run(2, open_and_close, NULL, 4 * TIMEOUT_MS), 0);
}

/* ---- memory ---- */

static void run_short_of_memory(const rank_env *env)
{
    enum { N = 100000 };
    static float data[N];
    const int owners[] = {0, 1};
    const fl_bucket_options options = {
        .id = 1, .owners = owners, .n_owners = 2, .data = data, .dtype = FL_F32, .n = N};
    fl_group *group = open_group(env, 1);
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
    RANK_OK(fl_group_all_reduce(group, &one, 1, soon()));
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
                                          .open_timeout_ms = TIMEOUT_MS,
                                          .wait_timeout_ms = TIMEOUT_MS};
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
    assert_int_equal(ranks_run(1, open_short_of_memory, NULL, TIMEOUT_MS), 0);
    assert_int_equal(ranks_run(2, run_short_of_memory, NULL, TIMEOUT_MS), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_group_ops__are_refused_unless_of_this_build),
        cmocka_unit_test(test_bucket__sums_over_all_owners),
        cmocka_unit_test(test_bucket__reduce_scatter_and_all_gather_are_an_all_reduce),
        cmocka_unit_test(test_bucket__crosses_between_hosts_once),
        cmocka_unit_test(test_bucket__belongs_to_its_owners),
        cmocka_unit_test(test_bucket__refuses_owners_and_types_that_it_has_not),
        cmocka_unit_test(test_group_sum__gives_everybody_the_same_bits),
        cmocka_unit_test(test_channel__carries_messages_both_ways_at_once),
        cmocka_unit_test(test_channel__can_be_opened_again),
        cmocka_unit_test(test_channel__refuses_what_it_was_not_opened_for),
        cmocka_unit_test(test_group__opens_beside_a_running_one),
        cmocka_unit_test(test_group__leaves_nothing_behind),
        cmocka_unit_test(test_group__survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
