/* Messages and gradients between workers on GPUs, by the stand-in for CUDA: from one device's
 * memory to the other's, or through host memory where that cannot be. Catches a message that
 * differs, a buffer that is written before it was read, and a member that takes another way than
 * its peer. */
#include "autodp/group/backend.h"

#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 40000, N = 1000, MESSAGES = 20, DEPTH = 2, CHANNEL = 7, NOBODY = -1 };

/* How the stand-ins of the ranks fail. */
typedef struct surroundings {
    int rank;                   /* whose stand-in fails; NOBODY */
    const char *fault, *others; /* its, and that of the others' stand-ins; NULL: none */
    bool on_device;             /* which way messages take then */
    bool pageable;              /* copies from and to pageable memory work; else they fail */
} surroundings;

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

static fl_device *open_device(const rank_env *env)
{
    const surroundings *around = env->context;
    fl_device *device = NULL;
    const char *fault = env->rank == around->rank ? around->fault : around->others;
    char options[128];
    snprintf(options, sizeof options, "pageable=%d,%s", around->pageable ? 0 : 1,
             fault != NULL ? fault : "");
    RANK_CHECK(setenv("FROSTLINE_CUDA_PLUGIN", FL_BINARY_DIR "/tests/cuda_standin.so", 1) == 0);
    RANK_CHECK(setenv("FROSTLINE_STANDIN", options, 1) == 0);
    RANK_OK(fl_device_open(
        &(fl_device_options){.kind = FL_DEVICE_CUDA, .n_threads = 1, .budget_bytes = 1 << 20},
        &device));
    return device;
}

static fl_group *open_group(const rank_env *env, fl_device *device)
{
    const fl_group_options options = {.device = device,
                                      .generation = 1,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = TIMEOUT_MS};
    fl_group *group = NULL;
    RANK_OK(fl_group_open(&options, &group));
    return group;
}

static fl_channel *open_channel(fl_group *group, int peer, bool sending)
{
    fl_channel *channel = NULL;
    RANK_OK(fl_channel_open(group, sending, peer, CHANNEL, N * sizeof(int32_t), DEPTH, &channel));
    return channel;
}

static int32_t value_of(int message, int i)
{
    return message * 100003 + i;
}

/* Host memory whose pages are locked. */
static void *take_host(fl_device *d, size_t size_bytes)
{
    void *memory = NULL;
    RANK_OK(d->ops->host_take(d, size_bytes, &memory));
    return memory;
}

/* Message m has N - m values. */
static void send_messages(fl_device *d, fl_channel *channel, int32_t *on_device)
{
    int32_t *values = take_host(d, N * sizeof *values);
    for (int m = 0; m < MESSAGES; m++) {
        for (int i = 0; i < N - m; i++) {
            values[i] = value_of(m, i);
        }
        size_t size_bytes = (size_t)(N - m) * sizeof *values;
        RANK_OK(d->ops->copy_in(d, NULL, on_device, values, size_bytes));
        RANK_OK(d->ops->sync(d, NULL));
        RANK_OK(fl_channel_send_from(channel, on_device, size_bytes, NULL, soon()));
    }
    RANK_OK(fl_channel_flush(channel, soon()));
    d->ops->host_give(d, values, N * sizeof *values);
}

static void receive_messages(fl_device *d, fl_channel *channel, int32_t *on_device)
{
    int32_t *values = take_host(d, N * sizeof *values);
    for (int m = 0; m < MESSAGES; m++) {
        size_t size_bytes = (size_t)(N - m) * sizeof *values;
        RANK_OK(fl_channel_receive_to(channel, on_device, size_bytes, NULL, soon()));
        RANK_OK(d->ops->copy_out(d, NULL, values, on_device, size_bytes));
        RANK_OK(d->ops->sync(d, NULL));
        for (int i = 0; i < N - m; i++) {
            RANK_CHECK(values[i] == value_of(m, i));
        }
    }
    d->ops->host_give(d, values, N * sizeof *values);
}

/* Rank 0 sends to rank 1. */
static void exchange(const rank_env *env)
{
    const surroundings *around = env->context;
    fl_device *d = open_device(env);
    fl_group *group = open_group(env, d);
    void *on_device = NULL;
    RANK_OK(fl_device_alloc(d, N * sizeof(int32_t), "values", &on_device));
    fl_channel *channel = open_channel(group, 1 - env->rank, env->rank == 0);
    (env->rank == 0 ? send_messages : receive_messages)(d, channel, on_device);
    fl_group_stats stats;
    fl_group_stats_get(group, &stats);
    int64_t sent = env->rank == 0 ? stats.sent_bytes : 0;
    RANK_CHECK(stats.device_bytes == (around->on_device ? sent : 0));
    RANK_CHECK(env->rank == 1 || sent > 0);
    fl_channel_close(&channel);
    fl_group_close(&group);
    fl_device_free(d, on_device, N * sizeof(int32_t));
    fl_device_destroy(&d);
}

static void exchange_in(surroundings around)
{
    assert_int_equal(ranks_run(2, exchange, &around, 3 * TIMEOUT_MS), 0);
}

/* ---- gradients ---- */

enum { OWNERS = 3, GRADIENTS = 7001, ROUNDS = 3 };

/* Sums are exact in float. */
static float gradient_of(int rank, int round, int i)
{
    return (float)((i * 7 + rank * 13 + round) % 1000);
}

static void check_sums(const float *values, int round)
{
    for (int i = 0; i < GRADIENTS; i++) {
        float sum = 0.0f;
        for (int rank = 0; rank < OWNERS; rank++) {
            sum += gradient_of(rank, round, i);
        }
        RANK_CHECK(values[i] == sum);
    }
}

static void sum_gradients(const rank_env *env)
{
    enum { SIZE_BYTES = GRADIENTS * sizeof(float) };
    const surroundings *around = env->context;
    const int owners[OWNERS] = {2, 0, 1};
    fl_device *d = open_device(env);
    fl_group *group = open_group(env, d);
    float *values = take_host(d, SIZE_BYTES);
    void *on_device = NULL;
    fl_bucket *bucket = NULL;
    fl_group_stats stats;
    RANK_OK(fl_device_alloc(d, SIZE_BYTES, "gradients", &on_device));
    const fl_bucket_options options = {
        .owners = owners, .n_owners = OWNERS, .data = on_device, .dtype = FL_F32, .n = GRADIENTS};
    RANK_OK(fl_bucket_create(group, &options, &bucket));
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < GRADIENTS; i++) {
            values[i] = gradient_of(env->rank, round, i);
        }
        RANK_OK(d->ops->copy_in(d, NULL, on_device, values, SIZE_BYTES));
        if (round == 1) { /* an all-reduce in two steps */
            RANK_OK(fl_bucket_start(bucket, FL_REDUCE_SCATTER, NULL));
            RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
        }
        RANK_OK(fl_bucket_start(bucket, round == 1 ? FL_ALL_GATHER : FL_ALL_REDUCE, NULL));
        RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
        RANK_OK(d->ops->copy_out(d, NULL, values, on_device, SIZE_BYTES));
        RANK_OK(d->ops->sync(d, NULL));
        check_sums(values, round);
    }
    fl_group_stats_get(group, &stats);
    RANK_CHECK(stats.sent_bytes > 0);
    RANK_CHECK(stats.device_bytes == (around->on_device ? stats.sent_bytes : 0));
    fl_bucket_destroy(&bucket);
    fl_group_close(&group);
    fl_device_free(d, on_device, SIZE_BYTES);
    d->ops->host_give(d, values, SIZE_BYTES);
    fl_device_destroy(&d);
}

static void test_cuda_bucket__is_summed_by_devices_that_read_each_other(void **state)
{
    (void)state;
    surroundings around = {.rank = NOBODY, .on_device = true};
    assert_int_equal(ranks_run(OWNERS, sum_gradients, &around, 3 * TIMEOUT_MS), 0);
}

static void test_cuda_bucket__is_summed_by_the_host_where_a_device_cannot(void **state)
{
    (void)state;
    surroundings around = {.rank = 1, .fault = "fail=ipc_open:2:801"}; /* one of two others */
    assert_int_equal(ranks_run(OWNERS, sum_gradients, &around, 3 * TIMEOUT_MS), 0);
}

static void test_cuda_channel__goes_from_device_to_device(void **state)
{
    (void)state;
    exchange_in((surroundings){.rank = NOBODY, .on_device = true});
}

/* One member's device cannot export memory, or cannot open another's: both take the same way. */
static void test_cuda_channel__goes_through_the_host_where_a_device_cannot(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        exchange_in((surroundings){.rank = rank, .fault = "fail=ipc_export:1:801"});
        exchange_in((surroundings){.rank = rank, .fault = "fail=ipc_open:1:801"});
    }
}

/* The host memory between two devices has its pages locked on both ends (a copy from or to other
 * memory fails here, as in the tests above), unless the system locks none. */
static void test_cuda_channel__needs_no_locked_pages(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        exchange_in((surroundings){.rank = rank,
                                   .fault = "fail=host_pin:1:801",
                                   .others = "fail=ipc_open:1:801",
                                   .pageable = true});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuda_channel__goes_from_device_to_device),
        cmocka_unit_test(test_cuda_channel__goes_through_the_host_where_a_device_cannot),
        cmocka_unit_test(test_cuda_channel__needs_no_locked_pages),
        cmocka_unit_test(test_cuda_bucket__is_summed_by_devices_that_read_each_other),
        cmocka_unit_test(test_cuda_bucket__is_summed_by_the_host_where_a_device_cannot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
