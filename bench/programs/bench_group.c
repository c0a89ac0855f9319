/* The training group: how fast its operations are compared with Gloo's own, and how much of the
 * processor they take from compute.
 *
 *   bench_group [N]     N ranks on this machine (default 2), rank i pinned to processor i mod all
 *   FL_BENCH_SOCKETS=1  no looking into each other's memory
 *   FL_BENCH_FLOAT=1    not pinned
 *
 * Medians over rounds; ours and Gloo's in turn. GB/s is the bucket's size over the time. */
#include "autodp/group/group.h"
#include "bench/peers/gloo_peer.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "tests/support/ranks/ranks.h"

#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TIMEOUT_MS = 60000, ROUNDS_MAX = 2000 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

static void barrier(fl_group *group)
{
    double one = 1.0;
    RANK_OK(fl_group_all_reduce(group, &one, 1, soon()));
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* As a run has its gradients: in memory that others can look into. */
static fl_bucket *share_bucket(const rank_env *env, fl_group *group, uint32_t id, int64_t n,
                               fl_shared **shared)
{
    int owners[RANKS_MAX];
    for (int i = 0; i < env->size; i++) {
        owners[i] = i;
    }
    fl_bucket *bucket = NULL;
    RANK_OK(fl_shared_create((size_t)n * sizeof(float), shared));
    const fl_bucket_options options = {.id = id,
                                       .owners = owners,
                                       .n_owners = env->size,
                                       .data = fl_shared_data(*shared),
                                       .dtype = FL_F32,
                                       .n = n,
                                       .shared = *shared};
    RANK_OK(fl_bucket_create(group, &options, &bucket));
    return bucket;
}

static void bench_reduce(const rank_env *env, fl_group *group, gloo_peer *peer, int64_t n)
{
    static double ours[ROUNDS_MAX], theirs[ROUNDS_MAX];
    fl_shared *shared = NULL;
    fl_bucket *bucket = share_bucket(env, group, (uint32_t)n, n, &shared);
    float *data = fl_shared_data(shared);
    int n_rounds = (int)(300000000 / (n * env->size + 1000000));
    double ours_cpu = 0, theirs_cpu = 0;
    for (int round = 0; round < n_rounds + 2; round++) {
        int i = round < 2 ? 0 : round - 2;
        barrier(group);
        double cpu = cpu_seconds();
        int64_t start_us = fl_now_us();
        RANK_OK(fl_bucket_start(bucket, FL_ALL_REDUCE, NULL));
        RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
        ours[i] = (double)(fl_now_us() - start_us);
        ours_cpu += round < 2 ? 0 : cpu_seconds() - cpu;
        barrier(group);
        cpu = cpu_seconds();
        start_us = fl_now_us();
        gloo_peer_allreduce(peer, data, (size_t)n);
        theirs[i] = (double)(fl_now_us() - start_us);
        theirs_cpu += round < 2 ? 0 : cpu_seconds() - cpu;
    }
    double bytes = 4.0 * (double)n;
    if (env->rank == 0) {
        double a = median(ours, n_rounds), b = median(theirs, n_rounds);
        printf("all-reduce %9.0f B   ours %9.0f us %6.2f GB/s cpu %5.2f s/GB   "
               "gloo %9.0f us %6.2f GB/s cpu %5.2f s/GB\n",
               bytes, a, bytes / a * 1e-3, ours_cpu / n_rounds / bytes * 1e9, b, bytes / b * 1e-3,
               theirs_cpu / n_rounds / bytes * 1e9);
    }
    fl_bucket_destroy(&bucket);
    fl_shared_destroy(&shared);
}

static void bench_sum(const rank_env *env, fl_group *group, int n)
{
    static double times[ROUNDS_MAX];
    double values[FL_GROUP_ALL_REDUCE_MAX];
    for (int round = 0; round < ROUNDS_MAX; round++) {
        for (int i = 0; i < n; i++) {
            values[i] = i;
        }
        int64_t start_us = fl_now_us();
        RANK_OK(fl_group_all_reduce(group, values, n, soon()));
        times[round] = (double)(fl_now_us() - start_us);
    }
    if (env->rank == 0) {
        printf("sum of %4d           %9.0f us\n", n, median(times, ROUNDS_MAX));
    }
}

/* There and back between ranks 0 and 1. The message is sent from the place that the channel has for
 * it, as a stage does on a CPU, or from other memory. */
static void bench_channel(const rank_env *env, fl_group *group, size_t size_bytes, bool in_place)
{
    static double times[ROUNDS_MAX];
    barrier(group);
    if (env->rank > 1) {
        return;
    }
    fl_channel *to = NULL, *from = NULL;
    void *payload = NULL;
    RANK_OK(fl_alloc(size_bytes, &payload));
    int peer = 1 - env->rank;
    uint32_t id = 2 * (uint32_t)size_bytes + in_place;
    RANK_OK(fl_channel_open(group, true, peer, id * 2 + (uint32_t)env->rank, size_bytes, 2, &to));
    RANK_OK(fl_channel_open(group, false, peer, id * 2 + (uint32_t)peer, size_bytes, 2, &from));
    int n_rounds = size_bytes > 100000 ? 200 : ROUNDS_MAX;
    RANK_OK(fl_channel_post(from, size_bytes));
    for (int n = 0; n < n_rounds; n++) {
        int64_t start_us = fl_now_us();
        if (env->rank == 1) {
            RANK_OK(fl_channel_receive_to(from, payload, size_bytes, NULL, soon()));
        }
        if (n + 1 < n_rounds) {
            RANK_OK(fl_channel_post(from, size_bytes));
        }
        const void *place = in_place ? fl_channel_place(to) : payload;
        RANK_OK(fl_channel_send_from(to, place, size_bytes, NULL, soon()));
        if (env->rank == 0) {
            RANK_OK(fl_channel_receive_to(from, payload, size_bytes, NULL, soon()));
        }
        times[n] = (double)(fl_now_us() - start_us);
    }
    RANK_OK(fl_channel_flush(to, soon()));
    if (env->rank == 0) {
        double t = median(times, n_rounds) / 2;
        printf("send/receive %9zu B %s %9.1f us %6.2f GB/s\n", size_bytes,
               in_place ? "in place" : "copied  ", t, (double)size_bytes / t * 1e-3);
    }
    fl_channel_close(&to);
    fl_channel_close(&from);
    fl_free(payload);
}

static double thread_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Products that live in the second-level cache, as the blocks of a real one do. */
static int64_t compute(int64_t for_us)
{
    enum { N = 192 };
    static float a[N][N], b[N][N], c[N][N];
    int64_t end_us = fl_now_us() + for_us, n_done = 0;
    for (; fl_now_us() < end_us; n_done++) {
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < N; k++) {
                for (int j = 0; j < N; j++) {
                    c[i][j] += a[i][k] * b[k][j];
                }
            }
        }
        b[0][0] = c[1][1] * 1e-9f;
    }
    return n_done;
}

/* A step computes for 40 ms while one bucket is summed. What that costs is counted in processor
 * time, so that others' load on the machine does not show: the time of the threads that
 * communicate, and the compute that takes longer because its cache is disturbed. */
static void bench_beside(const rank_env *env, fl_group *group, int64_t n)
{
    enum { STEPS = 40, STEP_US = 40000 };
    fl_shared *shared = NULL;
    fl_bucket *bucket = share_bucket(env, group, 77, n, &shared);
    barrier(group);
    double start = thread_seconds();
    int64_t n_alone = compute(STEPS * STEP_US);
    double each_alone = (thread_seconds() - start) / (double)n_alone;
    barrier(group);
    double start_cpu = cpu_seconds(), computing = 0;
    int64_t n_beside = 0;
    fl_group_stats before, after;
    fl_group_stats_get(group, &before);
    for (int step = 0; step < STEPS; step++) {
        RANK_OK(fl_bucket_start(bucket, FL_ALL_REDUCE, NULL));
        double s = thread_seconds();
        n_beside += compute(STEP_US);
        computing += thread_seconds() - s;
        RANK_OK(fl_bucket_wait(bucket, NULL, soon()));
    }
    double all = cpu_seconds() - start_cpu;
    fl_group_stats_get(group, &after);
    double useful = each_alone * (double)n_beside;
    double gigabytes = 4e-9 * (double)(n * STEPS);
    if (env->rank == 0) {
        printf("during compute, %4.1f MB: %.2f s/GB communicating, %.2f s/GB by disturbance; "
               "waited for %.2f ms a step\n",
               4e-6 * (double)n, (all - computing) / gigabytes, (computing - useful) / gigabytes,
               1e-3 * (double)(after.reduce_wait_us - before.reduce_wait_us) / STEPS);
    }
    fl_bucket_destroy(&bucket);
    fl_shared_destroy(&shared);
}

static void pin(int rank)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)rank % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static void bench(const rank_env *env)
{
    if (getenv("FL_BENCH_FLOAT") == NULL) {
        pin(env->rank);
    }
    fl_device *device = NULL;
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 34, &device));
    const fl_group_options options = {.device = device,
                                      .generation = 1,
                                      .index = env->rank,
                                      .size = env->size,
                                      .kv = env->kv,
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = TIMEOUT_MS,
                                      .sockets_only = getenv("FL_BENCH_SOCKETS") != NULL};
    fl_group *group = NULL;
    int64_t start_us = fl_now_us();
    RANK_OK(fl_group_open(&options, &group));
    if (env->rank == 0) {
        printf("%d ranks: opened in %.1f ms\n", env->size, 1e-3 * (double)(fl_now_us() - start_us));
    }
    gloo_peer *peer = gloo_peer_open(env->rank, env->size, env->kv);
    static const int64_t sizes[] = {1, 4096, 65536, 262144, 1048576, 4194304, 25000000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bench_reduce(env, group, peer, sizes[i]);
    }
    bench_sum(env, group, 4);
    bench_sum(env, group, FL_GROUP_ALL_REDUCE_MAX);
    static const size_t messages[] = {4, 557056, 4 << 20};
    for (size_t i = 0; i < 2 * sizeof messages / sizeof *messages; i++) {
        bench_channel(env, group, messages[i / 2], i % 2 == 1);
    }
    bench_beside(env, group, 1048576);
    bench_beside(env, group, 2500000);
    barrier(group);
    gloo_peer_close(peer);
    fl_group_close(&group);
    fl_device_destroy(&device);
}

int main(int argc, char **argv)
{
    int size = argc > 1 ? atoi(argv[1]) : 2;
    return ranks_run(size, bench, NULL, 10 * TIMEOUT_MS) == 0 ? 0 : 3;
}
