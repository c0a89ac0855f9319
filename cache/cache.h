/* The frozen-activation cache: what the frozen blocks make of a sample, kept, so that no frozen
 * layer runs twice on the same sample. One store a host, shared by all its workers.
 *
 * A value is a sample's activation behind the first `level` layers, [n] fp32 elements, all rows. It
 * is right for as long as those layers' weights stay as they are, which a fingerprint tells: a
 * reader says which fingerprint it expects at each level, and takes what lies there or nothing.
 *
 *     fl_cache_create ①  by the controller, before it forks: memory that every process inherits,
 * without a name in any file system; and a file without a name for the disk tier fl_cache_get ②
 * without a lock: copy, and check afterwards that nobody changed it, and that its checksum is right
 * (a sequence lock) fl_cache_put ③     under one lock for all processes, which says so when its
 * holder died fl_cache_keep ④    when weights changed: what they made is dropped
 *
 * Values lie in units of one size, one or several for each. Units 0 .. n_memory - 1 are in shared
 * memory, the others in the file; otherwise they are all alike. When none is free, the value goes
 * that is used last in the sampler's known future (Belady), and it may be the one that was about to
 * come in. All that lasts as long as a run; when its last process ends, however it ends, the kernel
 * takes memory and file back.
 *
 * Threads: any number may get; put and keep may be called by several threads and processes, too.
 * Fork: only the process that created it before any fork shares it. */
#ifndef FL_CACHE_CACHE_H
#define FL_CACHE_CACHE_H

#include <frostline/status.h>
#include <frostline/tensor.h>

typedef struct fl_cache fl_cache;

/* What comes when. Time counts uses of samples since the run began. Pure functions.
 * next_use  the first time >= now at which `key` is used; INT64_MAX: never again
 * key_at    the key that is used at `time` */
typedef struct fl_cache_next_use {
    const void *context;
    int64_t (*next_use)(const void *context, int64_t key, int64_t now);
    int64_t (*key_at)(const void *context, int64_t time);
} fl_cache_next_use;

typedef struct fl_cache_options {
    int64_t n_keys;         /* keys are 0 .. n_keys - 1 */
    int64_t unit_elements;  /* of a unit: the size of a value when all have the same */
    int64_t value_elements; /* of the largest value */
    fl_dtype dtype;         /* how values are stored: FL_F32 or FL_BF16 */
    int64_t memory_bytes;   /* budget of the memory tier, with everything that manages it */
    int64_t disk_bytes;     /* budget of the disk tier; 0: none */
    const char *path;       /* the folder for it; copied nowhere, used at creation only */
    fl_cache_next_use future;
} fl_cache_options;

/* Bytes of shared memory without which there can be no cache of this kind: what manages n units. */
int64_t fl_cache_least_bytes(const fl_cache_options *options);

/* FL_EBUDGET when memory_bytes holds not one value beside what manages it; FL_EIO with the path
 * when the disk's budget cannot be had there. */
fl_status fl_cache_create(const fl_cache_options *options, fl_cache **out) FL_MUST_CHECK;

/* This process's part; the others keep theirs. *cache becomes NULL; NULL is fine. */
void fl_cache_destroy(fl_cache **cache);

/* In a process that was forked since, before its first read: its own way into the file. Processes
 * that share one get in each other's way (twice the time a read, where the file is in memory). */
void fl_cache_attach(fl_cache *cache);

/* What a reader accepts: print [n_levels], the fingerprint of the layers below each level, 0 where
 * nothing is accepted. The highest level that lies there is what it gets. Borrowed for the call. */
typedef struct fl_cache_prints {
    int n_levels;
    const uint64_t *print;
} fl_cache_prints;

typedef enum fl_cache_found {
    FL_CACHE_MISS = 0,
    FL_CACHE_MEMORY = 1,
    FL_CACHE_DISK = 2,
} fl_cache_found;

/* Copy the value of `key` to out [at most max_elements], if there is one that prints accept.
 * *level says how many layers it has behind it, *n how many elements it has. What is damaged is
 * dropped, and a miss. No allocation, no lock, no wait. */
fl_cache_found fl_cache_get(fl_cache *cache, const fl_cache_prints *prints, int64_t key, float *out,
                            int64_t max_elements, int *level, int64_t *n);

/* A value that is wanted. The reader says key and out [max_elements of the call]; the rest is told,
 * level and n for what was found. */
typedef struct fl_cache_want {
    int64_t key;
    float *out;
    fl_cache_found found;
    int level;
    int64_t n;
} fl_cache_want;

/* Get many at once, each as fl_cache_get does. That is faster: the disk reads several at a time,
 * while what lies in memory is copied. */
void fl_cache_get_all(fl_cache *cache, const fl_cache_prints *prints, fl_cache_want *wants,
                      int64_t n_wants, int64_t max_elements);

/* Keep values [n] of `key`, replacing what it had. now: the time after the batch at hand; the
 * next_use that counts is the first from then on. Returns whether it is kept: not if everything in
 * the store is used sooner, if n is 0 or larger than value_elements, or if the disk refused. */
bool fl_cache_put(fl_cache *cache, int64_t key, int level, uint64_t print, const float *values,
                  int64_t n, int64_t now);

/* Drop everything that prints do not accept. */
void fl_cache_keep(fl_cache *cache, const fl_cache_prints *prints);

/* Counted over all processes since creation, but for the first four, which are as of now. */
typedef struct fl_cache_stats {
    int64_t n_values;
    int64_t used_bytes; /* of units that hold values, both tiers */
    int64_t
        memory_bytes; /* of the whole memory tier, management included: never above its budget */
    int64_t disk_bytes;
    int64_t n_put, n_evicted, n_refused;
    int64_t n_damaged;   /* checksums that were wrong */
    int64_t n_recovered; /* times that a writer's death was found */
    int64_t n_disk_errors;
} fl_cache_stats;

void fl_cache_get_stats(const fl_cache *cache, fl_cache_stats *stats);

#endif
