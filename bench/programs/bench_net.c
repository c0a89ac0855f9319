/* What messages between two workers cost over each transport of a net: Gloo's sockets, in plain,
 * and TLS. Both are open at the same time and take turns, so that the machine's other work meets
 * both.
 *
 *   build/release/bench/bench_net [ROUNDS [ADDRESS [WAY [BYTES]]]]       5 rounds, over 127.0.0.1
 *
 * WAY gloo or tls, and BYTES of a message: only this one, for a profile.
 *
 * For each size of messages: the time of a message and its answer, halved; how fast messages go in
 * one direction, three of them under way; the same in both directions at once; and the processor
 * time of both workers for a gigabyte in one direction. Each is the median of the rounds. */
#include "autodp/tls/tls.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <string.h>
#include <sys/resource.h>

enum { TIMEOUT_MS = 120000, WINDOW = 3, MOST_ROUNDS = 100, TAG = 1, N_WAYS = 2 };

static const size_t sizes[] = {64, 4096, 65536, 1 << 20, 16 << 20};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

typedef struct bench_options {
    int rounds;
    const char *address;
    const char *way;   /* NULL: both */
    size_t size_bytes; /* 0: all of `sizes` */
} bench_options;

/* One transport, and memory for messages. */
typedef struct way {
    const char *name;
    fl_net *net;
    unsigned char *data[2];
    fl_net_buffer *in[WINDOW], *out[WINDOW];
} way;

typedef struct measure {
    double latency_us, one_way, both_ways, cpu_s; /* GB/s; of a GB */
} measure;

static int64_t soon(void)
{
    return fl_deadline_us(TIMEOUT_MS);
}

static void open_way(const rank_env *env, way *w, const char *name, const fl_net_transport *t)
{
    const bench_options *o = env->context;
    const size_t most = sizes[N_SIZES - 1];
    const fl_net_options options = {.rank = env->rank,
                                    .size = 2,
                                    .name = name,
                                    .kv = env->kv,
                                    .host = o->address,
                                    .sockets_only = true,
                                    .open_timeout_ms = TIMEOUT_MS,
                                    .wait_timeout_ms = TIMEOUT_MS,
                                    .transport = t};
    w->name = name;
    RANK_OK(fl_net_open(&options, &w->net));
    for (int i = 0; i < 2; i++) {
        RANK_OK(fl_alloc(WINDOW * most, (void **)&w->data[i]));
    }
    for (int i = 0; i < WINDOW; i++) {
        RANK_OK(fl_net_buffer_create(w->net, w->data[0] + (size_t)i * most, most, &w->in[i]));
        RANK_OK(fl_net_buffer_create(w->net, w->data[1] + (size_t)i * most, most, &w->out[i]));
    }
}

static void close_way(way *w)
{
    for (int i = 0; i < WINDOW; i++) {
        fl_net_buffer_destroy(&w->in[i]);
        fl_net_buffer_destroy(&w->out[i]);
    }
    fl_net_close(&w->net);
    fl_free(w->data[0]);
    fl_free(w->data[1]);
}

static void send_one(way *w, int rank, size_t size_bytes)
{
    RANK_OK(fl_net_send(w->out[0], 1 - rank, TAG, 0, size_bytes));
    RANK_OK(fl_net_wait_send(w->out[0], soon()));
}

static double ping_pong_us(way *w, int rank, size_t size_bytes, int n)
{
    int64_t start_us = fl_now_us();
    RANK_OK(fl_net_recv(w->in[0], 1 - rank, TAG, 0, size_bytes));
    for (int i = 0; i < n; i++) {
        if (rank == 0) {
            send_one(w, rank, size_bytes);
        }
        RANK_OK(fl_net_wait_recv(w->in[0], soon()));
        if (i + 1 < n) {
            RANK_OK(fl_net_recv(w->in[0], 1 - rank, TAG, 0, size_bytes));
        }
        if (rank == 1) {
            send_one(w, rank, size_bytes);
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
            RANK_OK(fl_net_wait_recv(w->in[i % WINDOW], soon()));
        }
        if (receives && i < n) {
            RANK_OK(fl_net_recv(w->in[i % WINDOW], 1 - rank, TAG, 0, size_bytes));
        }
        if (sends && i >= WINDOW) {
            RANK_OK(fl_net_wait_send(w->out[i % WINDOW], soon()));
        }
        if (sends && i < n) {
            RANK_OK(fl_net_send(w->out[i % WINDOW], 1 - rank, TAG, 0, size_bytes));
        }
    }
    ping_pong_us(w, rank, 1, 1); /* all has arrived */
    return (double)(fl_now_us() - start_us);
}

static double cpu_us(void)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return 1e6 * (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
}

/* The sum over both workers. */
static double sum_of(way *w, int rank, double mine)
{
    double theirs;
    RANK_OK(fl_net_recv(w->in[0], 1 - rank, TAG, 0, sizeof theirs));
    memcpy(w->data[1], &mine, sizeof mine);
    send_one(w, rank, sizeof mine);
    RANK_OK(fl_net_wait_recv(w->in[0], soon()));
    memcpy(&theirs, w->data[0], sizeof theirs);
    return mine + theirs;
}

static measure measure_way(way *w, int rank, size_t size_bytes)
{
    int n = (int)((64u << 20) / size_bytes), n_pings = n < 4 ? 4 : n > 500 ? 500 : n;
    n = n < 8 ? 8 : n > 4000 ? 4000 : n;
    double bytes = (double)size_bytes * n;
    measure m = {.latency_us = ping_pong_us(w, rank, size_bytes, n_pings)};
    double before_us = cpu_us();
    m.one_way = bytes / stream_us(w, rank, rank == 0, rank == 1, size_bytes, n) / 1e3;
    m.cpu_s = sum_of(w, rank, cpu_us() - before_us) / bytes * 1e3;
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

/* The ways that are asked for; returns how many. */
static int open_ways(const rank_env *env, way *ways)
{
    const bench_options *o = env->context;
    fl_net_transport tls;
    const struct {
        const char *name;
        const fl_net_transport *transport;
    } all[N_WAYS] = {{"gloo", NULL}, {"tls", &tls}};
    int n = 0;
    RANK_OK(fl_tls_transport("bench", &tls));
    for (int i = 0; i < N_WAYS; i++) {
        if (o->way == NULL || strcmp(o->way, all[i].name) == 0) {
            open_way(env, &ways[n++], all[i].name, all[i].transport);
        }
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
    way ways[N_WAYS] = {{0}, {0}};
    int n_ways = open_ways(env, ways);
    for (size_t s = 0; s < N_SIZES; s++) {
        if (o->size_bytes == 0 || o->size_bytes == sizes[s]) {
            bench_size(env, ways, n_ways, sizes[s]);
        }
    }
    for (int i = 0; i < n_ways; i++) {
        close_way(&ways[i]);
    }
}

int main(int argc, char **argv)
{
    bench_options o = {.rounds = argc > 1 ? atoi(argv[1]) : 5,
                       .address = argc > 2 ? argv[2] : "127.0.0.1",
                       .way = argc > 3 ? argv[3] : NULL,
                       .size_bytes = argc > 4 ? (size_t)atol(argv[4]) : 0};
    if (o.rounds < 1 || o.rounds > MOST_ROUNDS) {
        fprintf(stderr, "bench_net: found %s rounds, allowed: 1 to %d\n", argv[1], MOST_ROUNDS);
        return 2;
    }
    printf("%10s  %-8s %13s %13s %13s %13s\n", "bytes", "way", "latency", "one way", "both ways",
           "processors");
    fflush(stdout);
    return ranks_run(2, bench, &o, 10 * TIMEOUT_MS) == 0 ? 0 : 3;
}
