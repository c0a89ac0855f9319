/* The store alone: how fast values are read, beside a plain copy of the same bytes.
 *
 *     bench_cache [workers [values [folder]]]
 *
 * Workers (2) read values of a ViT's size (17 x 128) in random order, each its own part, at once,
 * into a ring of buffers as large as a step's; and the same bytes by memcpy from shared memory, in
 * turn. Then from the disk tier in `folder` (/var/tmp), beside sequential reads of the same file;
 * both from the page cache, and after it was dropped. Medians over rounds. */
#include "cache/pool.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/random.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMENTS = 17 * 128, RING = 256, ROUNDS = 9, WORKERS_MAX = 64 };

static int64_t n_values = 20000;
static int n_workers = 2;

static int64_t never(const void *context, int64_t key, int64_t now)
{
    (void)context;
    return now + key;
}

static int64_t any_key(const void *context, int64_t time)
{
    (void)context;
    return time % n_values;
}

static void must(bool sound, const char *what)
{
    if (!sound) {
        fprintf(stderr, "bench_cache: %s: %s\n", what, fl_errmsg());
        exit(1);
    }
}

static fl_cache *create(fl_dtype dtype, const char *folder)
{
    fl_cache *c = NULL;
    int64_t all = n_values * (ELEMENTS * 4 + 256) + (1 << 20);
    fl_cache_options o = {.n_keys = n_values,
                          .unit_elements = ELEMENTS,
                          .value_elements = ELEMENTS,
                          .dtype = dtype,
                          .memory_bytes = folder == NULL ? all : 100 * n_values + (1 << 20),
                          .disk_bytes = folder == NULL ? 0 : all,
                          .path = folder,
                          .future = {.next_use = never, .key_at = any_key}};
    must(fl_cache_create(&o, &c) == FL_OK, "create");
    return c;
}

static const uint64_t print[] = {0, 7};
static const fl_cache_prints prints = {.n_levels = 2, .print = print};

static void fill(fl_cache *c)
{
    static float values[ELEMENTS];
    int64_t begun = fl_now_us();
    for (int64_t key = 0; key < n_values; key++) {
        for (int i = 0; i < ELEMENTS; i++) {
            values[i] = (float)(key + i);
        }
        must(fl_cache_put(c, key, 1, print[1], values, ELEMENTS, 0), "put");
    }
    printf("  filled at %.2f us a value\n", (double)(fl_now_us() - begun) / (double)n_values);
}

/* ---- what a worker does ---- */

typedef enum way { COPY, CACHE, SEQUENTIAL } way;

typedef struct shared {
    _Atomic int ready, go;
    int64_t took_us[WORKERS_MAX];
    uint64_t allocations;
} shared;

static float ring[RING][ELEMENTS];

static void one(fl_cache *c, way how, int64_t key, int64_t turn)
{
    float *to = ring[turn % RING];
    size_t bytes = (size_t)ELEMENTS * c->element_bytes;
    int level;
    int64_t n;
    if (how == CACHE) {
        must(fl_cache_get(c, &prints, key, to, ELEMENTS, &level, &n) != FL_CACHE_MISS, "get");
    } else if (how == COPY) {
        memcpy(to, c->memory + (size_t)key * c->unit_bytes, bytes);
    } else {
        int64_t unit = key % (int64_t)(c->n_units - c->n_memory);
        must(pread(c->fd, to, bytes, unit * (int64_t)c->unit_bytes) == (ssize_t)bytes, "pread");
    }
}

static void work(fl_cache *c, way how, int worker, shared *s)
{
    int64_t each = n_values / n_workers, first = worker * each;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)worker % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
    for (int64_t i = 0; i < RING; i++) {
        one(c, how, first + i % each, i);
    }
    s->ready++;
    while (s->go == 0) {
        sched_yield();
    }
    uint64_t before = fl_alloc_count();
    int64_t begun = fl_now_us();
    for (int64_t i = 0; i < each; i++) {
        int64_t at = how == SEQUENTIAL ? i : (int64_t)(fl_mix64(1, (uint64_t)i) % (uint64_t)each);
        one(c, how, first + at, i);
    }
    s->took_us[worker] = fl_now_us() - begun;
    s->allocations += fl_alloc_count() - before;
}

/* GB/s of all workers together, of stored bytes. */
static double round_of(fl_cache *c, way how)
{
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    must(s != MAP_FAILED, "mmap");
    for (int worker = 0; worker < n_workers; worker++) {
        if (fork() == 0) {
            work(c, how, worker, s);
            _exit(0);
        }
    }
    while (s->ready < n_workers) {
        sched_yield();
    }
    s->go = 1;
    int64_t longest = 1;
    for (int worker = 0; worker < n_workers; worker++) {
        int status;
        must(wait(&status) > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0, "worker");
    }
    for (int worker = 0; worker < n_workers; worker++) {
        longest = s->took_us[worker] > longest ? s->took_us[worker] : longest;
    }
    must(s->allocations == 0, "a hit allocated memory");
    munmap(s, sizeof *s);
    int64_t n_read = n_values / n_workers * n_workers;
    return (double)n_read * ELEMENTS * (double)c->element_bytes / (double)longest * 1e-3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void side_by_side(fl_cache *c, way plain, bool drop, const char *what)
{
    double a[ROUNDS] = {0}, b[ROUNDS] = {0};
    for (int i = 0; i < ROUNDS; i++) {
        way ways[2] = {plain, CACHE};
        for (int j = 0; j < 2; j++) {
            if (drop) {
                fdatasync(c->fd);
                posix_fadvise(c->fd, 0, 0, POSIX_FADV_DONTNEED);
            }
            (j == 0 ? a : b)[i] = round_of(c, ways[j]);
        }
    }
    qsort(a, ROUNDS, sizeof *a, compare);
    qsort(b, ROUNDS, sizeof *b, compare);
    printf("  %-34s %6.2f GB/s, from the cache %6.2f GB/s: %3.0f %%\n", what, a[ROUNDS / 2],
           b[ROUNDS / 2], 100.0 * b[ROUNDS / 2] / a[ROUNDS / 2]);
}

int main(int argc, char **argv)
{
    n_workers = argc > 1 ? atoi(argv[1]) : n_workers;
    n_values = argc > 2 ? atoll(argv[2]) : n_values;
    const char *folder = argc > 3 ? argv[3] : "/var/tmp";
    const fl_dtype dtypes[] = {FL_F32, FL_BF16};
    if (n_workers < 1 || n_workers > WORKERS_MAX || n_values < n_workers) {
        fprintf(stderr, "bench_cache: 1 to %d workers, a value for each\n", WORKERS_MAX);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 0; i < 2; i++) {
        printf("%s, %d workers, %lld values\n", i == 0 ? "fp32" : "bf16", n_workers,
               (long long)n_values);
        fl_cache *c = create(dtypes[i], NULL);
        fill(c);
        side_by_side(c, COPY, false, "memory: plain copy");
        fl_cache_destroy(&c);
        c = create(dtypes[i], folder);
        fill(c);
        side_by_side(c, SEQUENTIAL, false, "disk, in the page cache: in order");
        side_by_side(c, SEQUENTIAL, true, "disk, cold: in order");
        fl_cache_destroy(&c);
    }
    return 0;
}
