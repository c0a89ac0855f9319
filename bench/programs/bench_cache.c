/* The store alone: how fast values are read, compared with a plain copy of the same bytes.
 *
 *     bench_cache [workers [elements [folder [MiB]]]]
 *
 * Workers (2) read values of a ViT's size (17 x 128 elements) in random order, each its own part,
 * at once, 64 at a time as a step wants them, into a ring of buffers; and the same bytes by memcpy
 * from shared memory, in turn. Then from the disk tier in `folder` (/var/tmp), and reads of the
 * same file, a value each, by descriptors of their own: in order, and in the cache's order with as
 * many asked for ahead; all from the page cache, and after it was dropped. There are as many values
 * as fill MiB (166) mebibytes in fp32. Medians over rounds. */
#include "cache/file.h"
#include "cache/pool.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 64, RING = 4 * BATCH, ROUNDS = 9, WORKERS_MAX = 64, MIB = 1 << 20 };

static int64_t n_elements = 17 * 128, n_values;
static int n_workers = 2;
static float *ring; /* [RING][n_elements] what a worker reads into */

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
    int64_t all = n_values * (n_elements * 4 + 256) + (1 << 20);
    fl_cache_options o = {.n_keys = n_values,
                          .unit_elements = n_elements,
                          .value_elements = n_elements,
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
    float *values = ring;
    int64_t begun = fl_now_us();
    for (int64_t key = 0; key < n_values; key++) {
        for (int64_t i = 0; i < n_elements; i++) {
            values[i] = (float)(key + i);
        }
        must(fl_cache_put(c, key, 1, print[1], values, n_elements, 0), "put");
    }
    printf("  filled at %.2f us a value\n", (double)(fl_now_us() - begun) / (double)n_values);
}

/* ---- what a worker does ---- */

typedef enum way { COPY, IN_ORDER, AHEAD, CACHE } way;

typedef struct shared {
    _Atomic int ready, go;
    int64_t took_us[WORKERS_MAX];
    uint64_t allocations;
} shared;

static float *buffer(int64_t turn)
{
    return ring + turn % RING * n_elements;
}

static void copy_one(const fl_cache *c, int fd, way how, int64_t key, float *to)
{
    size_t bytes = fl_pool_stored_bytes(c, n_elements);
    if (how == COPY) {
        memcpy(to, c->memory + (size_t)key * c->unit_bytes, bytes);
        return;
    }
    int64_t unit = key % (int64_t)(c->n_units - c->n_memory);
    must(pread(fd, to, bytes, unit * (int64_t)c->unit_bytes) == (ssize_t)bytes, "pread");
}

static void ask_one(const fl_cache *c, int fd, int64_t key)
{
    int64_t unit = key % (int64_t)(c->n_units - c->n_memory);
    fl_cache_file_ask(fd, c->unit_bytes, unit * (int64_t)c->unit_bytes);
}

static void batch(fl_cache *c, int fd, way how, const int64_t *keys, int64_t n, int64_t turn)
{
    fl_cache_want wants[BATCH];
    for (int64_t i = 0; i < n; i++) {
        wants[i] =
            (fl_cache_want){.key = keys[i], .out = buffer(turn + i), .max_elements = n_elements};
        if (how == AHEAD) {
            ask_one(c, fd, keys[i]);
        }
    }
    if (how == CACHE) {
        fl_cache_get_all(c, &prints, wants, n);
    }
    for (int64_t i = 0; i < n; i++) {
        if (how == CACHE) {
            must(wants[i].found != FL_CACHE_MISS, "get");
        } else {
            copy_one(c, fd, how, keys[i], wants[i].out);
        }
    }
}

static void pin(int worker)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)worker % (size_t)sysconf(_SC_NPROCESSORS_ONLN), &set);
    sched_setaffinity(0, sizeof set, &set);
}

static int64_t read_all(fl_cache *c, int fd, way how, int64_t first, int64_t each)
{
    int64_t keys[BATCH], begun = fl_now_us();
    for (int64_t i = 0; i < each; i += BATCH) {
        int64_t n = each - i < BATCH ? each - i : BATCH;
        for (int64_t j = 0; j < n; j++) {
            bool ordered = how == IN_ORDER;
            keys[j] =
                first +
                (ordered ? i + j : (int64_t)(fl_mix64(1, (uint64_t)(i + j)) % (uint64_t)each));
        }
        batch(c, fd, how, keys, n, i);
    }
    return fl_now_us() - begun;
}

static void work(fl_cache *c, way how, int worker, shared *s)
{
    int64_t each = n_values / n_workers;
    int fd = c->fd >= 0 ? fl_cache_file_reopen(c->fd) : -1;
    if (how == IN_ORDER) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_NORMAL);
    }
    pin(worker);
    fl_cache_attach(c);
    memset(ring, 1, (size_t)(RING * n_elements) * sizeof *ring);
    s->ready++;
    while (s->go == 0) {
        sched_yield();
    }
    uint64_t before = fl_alloc_count();
    s->took_us[worker] = read_all(c, fd, how, worker * each, each);
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
    return (double)n_read * (double)n_elements * (double)c->element_bytes / (double)longest * 1e-3;
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
    printf("  %-40s %6.2f GB/s, from the cache %6.2f GB/s: %3.0f %%\n", what, a[ROUNDS / 2],
           b[ROUNDS / 2], 100.0 * b[ROUNDS / 2] / a[ROUNDS / 2]);
}

static void memory_tier(fl_dtype dtype)
{
    fl_cache *c = create(dtype, NULL);
    fill(c);
    side_by_side(c, COPY, false, "memory: plain copy");
    fl_cache_destroy(&c);
}

static void disk_tier(fl_dtype dtype, const char *folder)
{
    fl_cache *c = create(dtype, folder);
    fill(c);
    side_by_side(c, IN_ORDER, false, "disk, in the page cache: in order");
    side_by_side(c, AHEAD, false, "disk, in the page cache: in its order");
    side_by_side(c, IN_ORDER, true, "disk, cold: in order");
    side_by_side(c, AHEAD, true, "disk, cold: in its order");
    fl_cache_destroy(&c);
}

int main(int argc, char **argv)
{
    n_workers = argc > 1 ? atoi(argv[1]) : n_workers;
    n_elements = argc > 2 ? atoll(argv[2]) : n_elements;
    const char *folder = argc > 3 ? argv[3] : "/var/tmp";
    int64_t mib = argc > 4 ? atoll(argv[4]) : 166;
    const fl_dtype dtypes[] = {FL_F32, FL_BF16};
    n_values = n_elements > 0 ? mib * MIB / (4 * n_elements) : 0;
    if (n_workers < 1 || n_workers > WORKERS_MAX || n_values < n_workers) {
        fprintf(stderr, "bench_cache: 1 to %d workers, a value for each\n", WORKERS_MAX);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    void *memory = NULL;
    must(fl_alloc_array((size_t)(RING * n_elements), sizeof *ring, &memory) == FL_OK, "memory");
    ring = memory;
    for (int i = 0; i < 2; i++) {
        printf("%s, %d workers, %lld values of %lld elements\n", i == 0 ? "fp32" : "bf16",
               n_workers, (long long)n_values, (long long)n_elements);
        memory_tier(dtypes[i]);
        disk_tier(dtypes[i], folder);
    }
    fl_free(memory);
    return 0;
}
