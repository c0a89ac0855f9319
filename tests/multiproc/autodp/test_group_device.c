/* The training group on a device whose memory the host cannot touch and whose work is asynchronous:
 * channels and buckets stage, wait for the right work, and give the results of a device that
 * computes in host memory. Every device is destroyed in the end, which fails if a stream, an event
 * or memory was left behind. */
#include "autodp/group/group.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/nap.h"
#include "support/ranks/ranks.h"
#include "support/ranks/transport.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { TIMEOUT_MS = 40000, BEYOND_MS = 600000, MOST_RANKS = 4 };

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

/* Set before forking. */
static bool sockets_only;

static fl_device *create_device(const rank_env *env)
{
    fl_device *d = NULL;
    const fl_async_options options = {.n_threads = 1,
                                      .budget_bytes = (size_t)1 << 30,
                                      .seed = (uint64_t)env->rank,
                                      .max_delay_us = 200};
    RANK_OK(fl_device_async_create(&options, &d));
    return d;
}

static fl_group *open_group(const rank_env *env, fl_device *d, uint32_t generation)
{
    const fl_group_ops *backend = d->ops->host_memory ? NULL : test_backend();
    const fl_group_options options = {.device = d,
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = BEYOND_MS,
                                      .sockets_only = sockets_only,
                                      .backend = backend,
                                      .every_pair = backend != NULL};
    fl_group *group = NULL;
    RANK_OK(fl_group_open(&options, &group));
    return group;
}

static void run_both_ways(int size, rank_body *body, void *context)
{
    for (int way = 0; way < 2; way++) {
        sockets_only = way == 1;
        assert_int_equal(ranks_run(size, body, context, 2 * TIMEOUT_MS), 0);
    }
    sockets_only = false;
}

/* ---- channels ---- */

enum { N_MESSAGES = 40, MESSAGE_MAX = 200 * 1024 };

static size_t message_size(int64_t n)
{
    return n % 5 == 0 ? MESSAGE_MAX : (size_t)(n * 977 % 5000); /* 0 bytes too */
}

static void fill_message(unsigned char *to, int sender, int64_t n)
{
    for (size_t i = 0; i < message_size(n); i++) {
        to[i] = (unsigned char)(i + (size_t)n * 3 + (size_t)sender * 101);
    }
}

typedef struct ends {
    fl_device *d;
    fl_stream *stream;
    fl_channel *to, *from;
    void *out, *in; /* device memory [MESSAGE_MAX] */
} ends;

/* The stream overwrites the memory as soon as the message is sent; the host waits for nothing. */
static void send_message(ends *e, const rank_env *env, int64_t n)
{
    static unsigned char host[MESSAGE_MAX];
    RANK_OK(e->d->ops->sync(e->d, e->stream)); /* the copy of the last message from `host` */
    fill_message(host, env->rank, n);
    RANK_OK(e->d->ops->copy_in(e->d, e->stream, e->out, host, message_size(n)));
    RANK_OK(fl_channel_send_from(e->to, e->out, message_size(n), e->stream, soon()));
    RANK_OK(e->d->ops->fill_zero(e->d, e->stream, e->out, MESSAGE_MAX));
}

static void receive_message(ends *e, const rank_env *env, int64_t n)
{
    static unsigned char host[MESSAGE_MAX], expected[MESSAGE_MAX];
    RANK_OK(fl_channel_receive_to(e->from, e->in, message_size(n), e->stream, soon()));
    RANK_OK(e->d->ops->copy_out(e->d, e->stream, host, e->in, message_size(n)));
    RANK_OK(e->d->ops->sync(e->d, e->stream));
    fill_message(expected, 1 - env->rank, n);
    RANK_CHECK(memcmp(host, expected, message_size(n)) == 0);
}

static void talk_both_ways(const rank_env *env)
{
    int depth = *(const int *)env->context;
    ends e = {.d = create_device(env)};
    fl_group *group = open_group(env, e.d, 1);
    int peer = 1 - env->rank;
    RANK_OK(e.d->ops->stream_create(e.d, &e.stream));
    RANK_OK(fl_device_alloc(e.d, MESSAGE_MAX, "message", &e.out));
    RANK_OK(fl_device_alloc(e.d, MESSAGE_MAX, "message", &e.in));
    RANK_OK(fl_channel_open(group, true, peer, (uint32_t)env->rank, MESSAGE_MAX, depth, &e.to));
    RANK_OK(fl_channel_open(group, false, peer, (uint32_t)peer, MESSAGE_MAX, depth, &e.from));
    RANK_CHECK(fl_channel_place(e.to) == NULL);
    RANK_OK(fl_channel_post(e.from, message_size(0)));
    for (int64_t n = 0; n < N_MESSAGES; n++) {
        send_message(&e, env, n);
        receive_message(&e, env, n);
        if (n + 1 < N_MESSAGES && n % 2 == 0) {
            RANK_OK(fl_channel_post(e.from, message_size(n + 1)));
        }
    }
    RANK_OK(fl_channel_flush(e.to, soon()));
    fl_channel_close(&e.to);
    fl_channel_close(&e.from);
    fl_group_close(&group);
    fl_device_free(e.d, e.out, MESSAGE_MAX);
    fl_device_free(e.d, e.in, MESSAGE_MAX);
    e.d->ops->stream_destroy(e.d, &e.stream);
    fl_device_destroy(&e.d);
}

/* Catches a message that is sent before the device has copied it, a buffer that is used again while
 * a copy reads it, and a receiver that releases a buffer too early. */
static void test_channel__carries_device_memory_in_the_order_of_a_stream(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 3; depth++) {
        run_both_ways(2, talk_both_ways, &depth);
    }
}

/* ---- buckets ---- */

enum { N_BUCKETS = 5 };

static const int64_t bucket_sizes[N_BUCKETS] = {0, 1, 4097, 1000003, 131073};

/* Sums that depend on the order of additions: bits that agree are no accident. */
static float rough_value(int rank, int64_t i)
{
    return 1.0f / (float)(1 + (i * 31 + rank * 17) % 997) - 0.3f * (float)rank;
}

static float *drawn_values(int rank, int64_t n)
{
    float *values = NULL;
    RANK_OK(fl_alloc_array((size_t)n, sizeof *values, (void **)&values));
    for (int64_t i = 0; i < n; i++) {
        values[i] = rough_value(rank, i);
    }
    return values;
}

typedef struct buckets {
    fl_device *d;
    fl_stream *stream;
    fl_bucket *bucket[N_BUCKETS];
    void *data[N_BUCKETS];
} buckets;

static size_t bytes_of(int b)
{
    return (size_t)bucket_sizes[b] * sizeof(float);
}

static void create_buckets(buckets *s, const rank_env *env, fl_group *group)
{
    int owners[MOST_RANKS];
    for (int rank = 0; rank < env->size; rank++) {
        owners[rank] = (rank + 1) % env->size;
    }
    RANK_OK(s->d->ops->stream_create(s->d, &s->stream));
    for (int b = 0; b < N_BUCKETS; b++) {
        RANK_OK(fl_device_alloc(s->d, bytes_of(b), "bucket", &s->data[b]));
        const fl_bucket_options options = {.id = (uint32_t)b,
                                           .owners = owners,
                                           .n_owners = env->size,
                                           .data = s->data[b],
                                           .dtype = FL_F32,
                                           .n = bucket_sizes[b]};
        RANK_OK(fl_bucket_create(group, &options, &s->bucket[b]));
    }
}

static void destroy_buckets(buckets *s)
{
    for (int b = 0; b < N_BUCKETS; b++) {
        fl_bucket_destroy(&s->bucket[b]);
        fl_device_free(s->d, s->data[b], bytes_of(b));
    }
    s->d->ops->stream_destroy(s->d, &s->stream);
}

/* All buckets at once, as backward starts them; the host waits for nothing but the buckets. */
static void sum_buckets(buckets *s, const rank_env *env, bool in_two, float **out)
{
    float *values[N_BUCKETS];
    for (int b = 0; b < N_BUCKETS; b++) {
        values[b] = drawn_values(env->rank, bucket_sizes[b]);
        RANK_OK(s->d->ops->copy_in(s->d, s->stream, s->data[b], values[b], bytes_of(b)));
        RANK_OK(
            fl_bucket_start(s->bucket[b], in_two ? FL_REDUCE_SCATTER : FL_ALL_REDUCE, s->stream));
    }
    for (int b = 0; b < N_BUCKETS && in_two; b++) {
        RANK_OK(fl_bucket_wait(s->bucket[b], s->stream, soon()));
        RANK_OK(fl_bucket_start(s->bucket[b], FL_ALL_GATHER, s->stream));
    }
    for (int b = 0; b < N_BUCKETS; b++) {
        RANK_OK(fl_alloc(bytes_of(b), (void **)&out[b]));
        RANK_OK(fl_bucket_wait(s->bucket[b], s->stream, soon()));
        RANK_OK(s->d->ops->copy_out(s->d, s->stream, out[b], s->data[b], bytes_of(b)));
    }
    RANK_OK(s->d->ops->sync(s->d, s->stream));
    for (int b = 0; b < N_BUCKETS; b++) {
        fl_free(values[b]);
    }
}

static void run_buckets(const rank_env *env, fl_device *d, uint32_t generation, bool in_two,
                        float **out)
{
    buckets s = {.d = d};
    fl_group *group = open_group(env, d, generation);
    create_buckets(&s, env, group);
    for (int step = 0; step < 3; step++) {
        sum_buckets(&s, env, in_two, out);
        for (int b = 0; b < N_BUCKETS && step < 2; b++) {
            fl_free(out[b]);
        }
    }
    destroy_buckets(&s);
    fl_group_close(&group);
    fl_device_destroy(&d);
}

/* NCCL adds in an order of its own. */
static bool are_close(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        if (!(fabsf(a[i] - b[i]) <= 1e-6f * (1 + fabsf(a[i])))) {
            return false;
        }
    }
    return true;
}

static void compare_devices(const rank_env *env)
{
    float *wanted[N_BUCKETS], *at_once[N_BUCKETS], *in_two[N_BUCKETS];
    fl_device *cpu = NULL;
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 30, &cpu));
    run_buckets(env, cpu, 1, false, wanted);
    run_buckets(env, create_device(env), 2, false, at_once);
    run_buckets(env, create_device(env), 3, true, in_two);
    for (int b = 0; b < N_BUCKETS; b++) {
        RANK_CHECK(test_backend() != NULL ? are_close(wanted[b], at_once[b], bucket_sizes[b])
                                          : memcmp(wanted[b], at_once[b], bytes_of(b)) == 0);
        RANK_CHECK(memcmp(at_once[b], in_two[b], bytes_of(b)) == 0);
        fl_free(wanted[b]);
        fl_free(at_once[b]);
        fl_free(in_two[b]);
    }
}

/* Catches sums of gradients that the device has not finished, a stream that goes on before the sums
 * are back, staging memory that a bucket takes from another one, and other bits than the CPU's. */
static void test_bucket__gives_the_bits_of_the_cpu(void **state)
{
    (void)state;
    for (int size = 1; size <= MOST_RANKS; size++) {
        run_both_ways(size, compare_devices, NULL);
    }
}

/* ---- failures ---- */

/* Over NCCL data stays on the device: what is copied to and from the host otherwise is copied on
 * the device, by channels, or waited for, by buckets. */
static fl_async_fault fault_of(const fl_async_fault *host, bool bucket)
{
    fl_async_fault fault = *host;
    if (test_backend() != NULL) {
        bool records = strcmp(host->entry, "copy_in") == 0 || strncmp(host->entry, "event", 5) == 0;
        fault.entry = records ? "event_record" : bucket ? "stream_wait" : "copy";
    }
    return fault;
}

/* Rank 0's device fails while a message or a bucket is copied; rank 1 is only told by the loss. */
typedef struct failure {
    fl_async_fault fault;
    bool sends; /* rank 0 sends, and rank 1 receives, or the other way around */
} failure;

static fl_status pass_messages(const rank_env *env, fl_group *group, fl_device *d)
{
    const failure *f = env->context;
    bool sending = (env->rank == 0) == f->sends;
    fl_channel *c = NULL;
    void *data = NULL;
    fl_status status = FL_OK;
    RANK_OK(fl_device_alloc(d, 4096, "message", &data));
    RANK_OK(fl_channel_open(group, sending, 1 - env->rank, 1, 4096, 2, &c));
    const fl_async_fault fault = fault_of(&f->fault, false);
    RANK_OK(env->rank == 0 ? fl_device_async_fail(d, &fault) : FL_OK);
    while (status == FL_OK) {
        status = sending ? fl_channel_send_from(c, data, 4096, NULL, fl_deadline_us(BEYOND_MS))
                         : fl_channel_receive_to(c, data, 4096, NULL, fl_deadline_us(BEYOND_MS));
    }
    fl_channel_close(&c);
    fl_device_free(d, data, 4096);
    return status;
}

static void fail_in_channel(const rank_env *env)
{
    fl_device *d = create_device(env);
    fl_group *group = open_group(env, d, 1);
    fl_status status = pass_messages(env, group, d);
    RANK_CHECK(env->rank == 0 ? status == FL_EIO : fl_status_is_regroup(status));
    fl_group_close(&group);
    fl_device_destroy(&d);
}

/* The deadlines are beyond the time that the test has. Catches a wait that goes on although the
 * device has failed, and a failure that is reported as the loss of another worker. */
static void test_channel__ends_when_the_device_fails(void **state)
{
    (void)state;
    failure failures[] = {{{"copy_out", 5, true}, true},     {{"copy_in", 5, true}, false},
                          {{"copy_out", 5, false}, true},    {{"copy_in", 5, false}, false},
                          {{"event_wait", 5, false}, true},  {{"event_wait", 5, false}, false},
                          {{"event_record", 5, true}, true}, {{"event_record", 5, true}, false}};
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        run_both_ways(2, fail_in_channel, &failures[i]);
    }
}

static void fail_in_bucket(const rank_env *env)
{
    const failure *f = env->context;
    buckets s = {.d = create_device(env)};
    fl_group *group = open_group(env, s.d, 1);
    fl_status status = FL_OK;
    create_buckets(&s, env, group);
    const fl_async_fault fault = fault_of(&f->fault, true);
    RANK_OK(env->rank == 0 ? fl_device_async_fail(s.d, &fault) : FL_OK);
    while (status == FL_OK) {
        status = fl_bucket_start(s.bucket[3], FL_ALL_REDUCE, s.stream);
        if (status == FL_OK) {
            status = fl_bucket_wait(s.bucket[3], s.stream, fl_deadline_us(BEYOND_MS));
        }
    }
    RANK_CHECK(env->rank == 0 ? status == FL_EIO : fl_status_is_regroup(status));
    if (env->rank == 0) {
        fl_group_abort(group, FL_ESTALE); /* as a worker that ends */
    }
    destroy_buckets(&s);
    fl_group_close(&group);
    fl_device_destroy(&s.d);
}

static void test_bucket__ends_when_the_device_fails(void **state)
{
    (void)state;
    failure failures[] = {{{"copy_out", 3, true}, true},
                          {{"copy_in", 3, true}, true},
                          {{"copy_out", 3, false}, true},
                          {{"stream_wait", 5, false}, true},
                          {{"event_record", 7, true}, true}};
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        run_both_ways(2, fail_in_bucket, &failures[i]);
    }
}

/* ---- a device that does not get on ---- */

typedef struct aborter {
    fl_group *group;
    fl_device *d;
} aborter;

static void *abort_later(void *argument)
{
    aborter *a = argument;
    nap(100 * 1000);
    fl_group_abort(a->group, FL_ESTALE);
    return NULL;
}

/* The device begins no work, so no message leaves it, and the second send waits for the first. */
static void wait_for_held_device(const rank_env *env)
{
    bool aborts = *(const bool *)env->context;
    fl_device *d = create_device(env);
    fl_group *group = open_group(env, d, 1);
    fl_channel *c = NULL;
    void *data = NULL;
    pthread_t thread;
    aborter a = {group, d};
    RANK_OK(fl_device_alloc(d, 64, "message", &data));
    RANK_OK(fl_channel_open(group, env->rank == 0, 1 - env->rank, 1, 64, 1, &c));
    fl_status status = FL_OK;
    if (env->rank == 0) {
        fl_device_async_hold(d, true);
        RANK_CHECK(!aborts || pthread_create(&thread, NULL, abort_later, &a) == 0);
        while (status == FL_OK) {
            status =
                fl_channel_send_from(c, data, 64, NULL, fl_deadline_us(aborts ? BEYOND_MS : 100));
        }
        RANK_CHECK(status == (aborts ? FL_ESTALE : FL_EDEADLINE));
        RANK_CHECK(!aborts || pthread_join(thread, NULL) == 0);
        fl_device_async_hold(d, false);
    } else {
        while (status == FL_OK) {
            status = fl_channel_receive_to(c, data, 64, NULL, fl_deadline_us(BEYOND_MS));
        }
        RANK_CHECK(fl_status_is_regroup(status));
    }
    fl_channel_close(&c);
    fl_device_free(d, data, 64);
    fl_group_close(&group);
    fl_device_destroy(&d);
}

static void test_channel__a_wait_for_the_device_can_be_aborted(void **state)
{
    (void)state;
    for (int aborts = 0; aborts < 2; aborts++) {
        bool context = aborts == 1;
        run_both_ways(2, wait_for_held_device, &context);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_channel__carries_device_memory_in_the_order_of_a_stream),
        cmocka_unit_test(test_bucket__gives_the_bits_of_the_cpu),
        cmocka_unit_test(test_channel__ends_when_the_device_fails),
        cmocka_unit_test(test_bucket__ends_when_the_device_fails),
        cmocka_unit_test(test_channel__a_wait_for_the_device_can_be_aborted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
