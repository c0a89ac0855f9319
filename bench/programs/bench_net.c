/* What messages between two workers cost on one host, through shared memory, and on two hosts, over
 * Gloo's sockets in plain and over TLS: over the channels of a run. All are open at the same time
 * and take turns, so that the machine's other work meets all of them.
 *
 *   build/release/bench/bench_net [ROUNDS [PLACE PLACE [WAY [BYTES]]]]
 *
 * ROUNDS: 3. PLACE of each worker: an address, or SPACE@ADDRESS for one in this network name space,
 * as bench/net_cost.sh makes them; 127.0.0.1. WAY memory, plain or tls, and BYTES of a message:
 * only this one, for a profile. Each worker has a processor, as each host there has.
 *
 * For each size of messages: the time of a message and its answer, halved; how fast messages go in
 * one direction, three of them under way; the same in both directions at once; and the processor
 * time of both workers for a gigabyte in one direction. Each is the median of the rounds. */
#include "autodp/group/group.h"
#include "autodp/tls/tls.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { TIMEOUT_MS = 120000, WINDOW = 3, MOST_ROUNDS = 100, N_WAYS = 3 };

static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 16 << 20};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct bench_options {
    int rounds;
    const char *place[2];
    const char *way;   /* NULL: all */
    size_t size_bytes; /* 0: all of `sizes` */
} bench_options;

/* One transport. */
typedef struct way {
    const char *name;
    fl_group *group;
    fl_channel *in, *out;
    void *data;
} way;

typedef struct measure {
    double latency_us, one_way, both_ways, cpu_s; /* GB/s; of a GB */
} measure;

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

static void pin(int rank)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)rank % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

/* Go to the name space of the place, if it has one. Returns its address. */
static const char *enter(const char *place)
{
    char path[256];
    const char *at = strchr(place, '@');
    if (at == NULL) {
        return place;
    }
    snprintf(path, sizeof path, "/run/netns/%.*s", (int)(at - place), place);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    RANK_CHECK(fd >= 0 && setns(fd, CLONE_NEWNET) == 0);
    close(fd);
    return at + 1;
}

/* host NULL: both workers are on one. */
static void open_way(const rank_env *env, way *w, fl_device *device, const char *host,
                     const fl_net_transport *t)
{
    const size_t most = sizes[N_SIZES - 1];
    static uint32_t generation = 0;
    const fl_group_options options = {.device = device,
                                      .generation = generation,
                                      .index = env->rank,
                                      .size = 2,
                                      .kv = env->kv,
                                      .host = host,
                                      .sockets_only = host != NULL,
                                      .open_timeout_ms = TIMEOUT_MS,
                                      .wait_timeout_ms = TIMEOUT_MS,
                                      .transport = t};
    uint32_t rank = (uint32_t)env->rank;
    generation++;
    RANK_OK(fl_group_open(&options, &w->group));
    RANK_OK(fl_channel_open(w->group, true, 1 - env->rank, rank, most, WINDOW, &w->out));
    RANK_OK(fl_channel_open(w->group, false, 1 - env->rank, 1 - rank, most, WINDOW, &w->in));
    RANK_OK(fl_group_connect(w->group, soon()));
    RANK_OK(fl_alloc(most, &w->data));
}

static void close_way(way *w)
{
    RANK_OK(fl_channel_flush(w->out, soon()));
    fl_channel_close(&w->in);
    fl_channel_close(&w->out);
    fl_group_close(&w->group);
    fl_free(w->data);
}

/* From the place of the channel, as a stage does. */
static void send_one(way *w, size_t size_bytes)
{
    void *place = fl_channel_place(w->out);
    RANK_OK(fl_channel_send_from(w->out, place, size_bytes, NULL, soon()));
}

static void receive_one(way *w, size_t size_bytes)
{
    RANK_OK(fl_channel_receive_to(w->in, w->data, size_bytes, NULL, soon()));
}

static double ping_pong_us(way *w, int rank, size_t size_bytes, int n)
{
    int64_t start_us = fl_now_us();
    for (int i = 0; i < n; i++) {
        RANK_OK(fl_channel_post(w->in, size_bytes));
        if (rank == 0) {
            send_one(w, size_bytes);
        }
        receive_one(w, size_bytes);
        if (rank == 1) {
            send_one(w, size_bytes);
        }
    }
    return (double)(fl_now_us() - start_us) / n / 2;
}

/* n messages, WINDOW of them under way. */
static double stream_us(way *w, int rank, bool sends, bool receives, size_t size_bytes, int n)
{
    int64_t start_us = fl_now_us();
    for (int i = 0; i < n + WINDOW; i++) {
        if (receives && i >= WINDOW) {
            receive_one(w, size_bytes);
        }
        if (receives && i < n) {
            RANK_OK(fl_channel_post(w->in, size_bytes));
        }
        if (sends && i < n) {
            send_one(w, size_bytes);
        }
    }
    ping_pong_us(w, rank, 8, 1); /* all has arrived */
    return (double)(fl_now_us() - start_us);
}

static double cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return 1e6 * (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

static measure measure_way(way *w, int rank, size_t size_bytes)
{
    int n = (int)((64u << 20) / size_bytes), n_pings = n < 4 ? 4 : n > 500 ? 500 : n;
    n = n < 8 ? 8 : n > 4000 ? 4000 : n;
    double bytes = (double)size_bytes * n;
    measure m = {.latency_us = ping_pong_us(w, rank, size_bytes, n_pings)};
    double before_us = cpu_us();
    m.one_way = bytes / stream_us(w, rank, rank == 0, rank == 1, size_bytes, n) / 1e3;
    double used_us = cpu_us() - before_us;
    RANK_OK(fl_group_all_reduce(w->group, &used_us, 1, soon()));
    m.cpu_s = used_us / bytes * 1e3;
    m.both_ways = 2 * bytes / stream_us(w, rank, true, true, size_bytes, n) / 1e3;
    return m;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const measure *all, int n, size_t offset)
{
    double values[MOST_ROUNDS];
    for (int i = 0; i < n; i++) {
        memcpy(&values[i], (const char *)&all[i] + offset, sizeof values[i]);
    }
    qsort(values, (size_t)n, sizeof *values, ascending);
    return values[n / 2];
}

static void print_row(size_t size_bytes, const way *w, const measure *all, int n)
{
    printf("%10zu  %-8s %10.1f us %8.2f GB/s %8.2f GB/s %8.2f s/GB\n", size_bytes, w->name,
           median(all, n, offsetof(measure, latency_us)),
           median(all, n, offsetof(measure, one_way)), median(all, n, offsetof(measure, both_ways)),
           median(all, n, offsetof(measure, cpu_s)));
}

static bool is_asked_for(const bench_options *o, const char *name)
{
    return o->way == NULL || strcmp(o->way, name) == 0;
}

/* The ways that are asked for; returns how many. That of one host opens before the workers part. */
static int open_ways(const rank_env *env, fl_device *device, way *ways)
{
    const bench_options *o = env->context;
    fl_net_transport tls;
    int n = 0;
    RANK_OK(fl_tls_transport("bench", &tls));
    if (is_asked_for(o, "memory")) {
        ways[n].name = "memory";
        open_way(env, &ways[n++], device, NULL, NULL);
    }
    const char *host = enter(o->place[env->rank]);
    if (is_asked_for(o, "plain")) {
        ways[n].name = "plain";
        open_way(env, &ways[n++], device, host, NULL);
    }
    if (is_asked_for(o, "tls")) {
        ways[n].name = "tls";
        open_way(env, &ways[n++], device, host, &tls);
    }
    return n;
}

static void bench_size(const rank_env *env, way *ways, int n_ways, size_t size_bytes)
{
    static measure measured[N_WAYS][MOST_ROUNDS];
    const bench_options *o = env->context;
    for (int round = 0; round < o->rounds * n_ways; round++) {
        int which = round % n_ways;
        measured[which][round / n_ways] = measure_way(&ways[which], env->rank, size_bytes);
    }
    for (int i = 0; i < n_ways && env->rank == 0; i++) {
        print_row(size_bytes, &ways[i], measured[i], o->rounds);
    }
    fflush(stdout);
}

static void bench(const rank_env *env)
{
    const bench_options *o = env->context;
    way ways[N_WAYS] = {{0}, {0}, {0}};
    fl_device *device = NULL;
    pin(env->rank);
    RANK_OK(fl_device_cpu_create(1, NULL, (size_t)1 << 34, &device));
    int n_ways = open_ways(env, device, ways);
    for (size_t s = 0; s < N_SIZES; s++) {
        if (o->size_bytes == 0 || o->size_bytes == sizes[s]) {
            bench_size(env, ways, n_ways, sizes[s]);
        }
    }
    for (int i = 0; i < n_ways; i++) {
        close_way(&ways[i]);
    }
    fl_device_destroy(&device);
}

int main(int argc, char **argv)
{
    bench_options o = {
        .rounds = argc > 1 ? atoi(argv[1]) : 3,
        .place = {argc > 3 ? argv[2] : "127.0.0.1", argc > 3 ? argv[3] : "127.0.0.1"},
        .way = argc > 4 ? argv[4] : NULL,
        .size_bytes = argc > 5 ? (size_t)atol(argv[5]) : 0};
    if (o.rounds < 1 || o.rounds > MOST_ROUNDS) {
        fprintf(stderr, "bench_net: found %s rounds, allowed: 1 to %d\n", argv[1], MOST_ROUNDS);
        return 2;
    }
    printf("%10s  %-8s %13s %13s %13s %13s\n", "bytes", "way", "latency", "one way", "both ways",
           "processors");
    fflush(stdout);
    return ranks_run(2, bench, &o, 10 * TIMEOUT_MS) == 0 ? 0 : 3;
}
