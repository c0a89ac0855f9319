/* The frozen-activation cache: it stores what the frozen blocks compute for a sample, so that no
 * frozen layer runs twice on the same sample. All workers of a host share one store.
 *
 * A value is a sample's activation behind the first `level` layers, [n] elements, all rows. It is
 * valid as long as the weights of those layers do not change. A fingerprint identifies them: a
 * reader names the fingerprint that it expects at each level and accepts no other value.
 *
 *     fl_cache_create ①  the controller, before it forks: anonymous memory that every process
 *                        inherits, and an unlinked file for the disk tier
 *     fl_cache_get ②     without a lock: copy, then check that no writer changed the value (a
 *                        sequence lock) and that its checksum is right
 *     fl_cache_put ③     under one lock for all processes; it reports when its holder has died
 *     fl_cache_keep ④    after weights changed: drops the values that they produced
 *
 * Values lie in units of one size, one or several for each. Units 0 .. n_memory - 1 are in shared
 * memory, the others in the file; otherwise they are all alike. When no unit is free, the value
 * whose next use is farthest away is evicted (Belady); that may be the incoming value itself.
 * Everything lasts as long as the run: when its last process ends, however it ends, the kernel
 * frees memory and file.
 *
 * Threads: any number may get; put and keep may be called by several threads and processes, too.
 * Fork: only processes that were forked after the creation share the cache. */
#ifndef FL_CACHE_CACHE_H
#define FL_CACHE_CACHE_H

#include <frostline/status.h>
#include <frostline/tensor.h>

typedef struct fl_cache fl_cache;

/* The order of future uses. Time counts uses of samples since the run began. Pure functions.
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
    fl_dtype values;        /* the type of values as callers have them: FL_F32 or FL_BF16 */
    fl_dtype dtype;         /* how they are stored: alike, or FL_F32 as FL_BF16 */
    int64_t memory_bytes;   /* budget of the memory tier, its own tables included */
    int64_t disk_bytes;     /* budget of the disk tier; 0: none */
    const char *path;       /* the folder for it; copied nowhere, used at creation only */
    fl_cache_next_use future;
} fl_cache_options;

/* The least shared memory with which such a cache can exist: its tables and one value. */
int64_t fl_cache_least_bytes(const fl_cache_options *options);

/* FL_EBUDGET when memory_bytes has no room for one value beside the tables; FL_EIO with the path
 * when the disk's budget cannot be reserved there. */
fl_status fl_cache_create(const fl_cache_options *options, fl_cache **out) FL_MUST_CHECK;

/* This process's part; the others keep theirs. *cache becomes NULL; NULL is fine. */
void fl_cache_destroy(fl_cache **cache);

/* In a forked process, before its first read: open a file descriptor of its own. Processes that
 * share one descriptor slow each other down (twice the time per read where the file is in memory).
 */
void fl_cache_attach(fl_cache *cache);

/* What a reader accepts: print [n_levels], the fingerprint of the layers below each level, 0 where
 * nothing is accepted. It gets the highest accepted level that is stored. Borrowed for the call. */
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
 * *level is the number of layers below it, *n its number of elements. A damaged value is dropped
 * and counts as a miss. No allocation, no lock, no wait. */
fl_cache_found fl_cache_get(fl_cache *cache, const fl_cache_prints *prints, int64_t key, void *out,
                            int64_t max_elements, int *level, int64_t *n);

/* A requested value. The reader sets key and out [max_elements]; the call sets the rest, level and
 * n only if a value was found. */
typedef struct fl_cache_want {
    int64_t key;
    void *out;
    int64_t max_elements;
    fl_cache_found found;
    int level;
    int64_t n;
} fl_cache_want;

/* Get many at once, each as fl_cache_get does. This is faster: the disk reads several at a time
 * while values in memory are copied. */
void fl_cache_get_all(fl_cache *cache, const fl_cache_prints *prints, fl_cache_want *wants,
                      int64_t n_wants);

/* Store values [n] of `key` in place of its old value. now: the time after the current batch; the
 * next use that counts is the first from then on. Returns whether the value was stored: false if
 * all stored values are used sooner, if n is 0 or larger than value_elements, or if the disk
 * refused. */
bool fl_cache_put(fl_cache *cache, int64_t key, int level, uint64_t print, const void *values,
                  int64_t n, int64_t now);

/* Drop every value that prints do not accept. */
void fl_cache_keep(fl_cache *cache, const fl_cache_prints *prints);

/* Counted over all processes since creation; the first four are current values. */
typedef struct fl_cache_stats {
    int64_t n_values;
    int64_t used_bytes;   /* of units that hold values, both tiers */
    int64_t memory_bytes; /* of the whole memory tier with its tables; never above its budget */
    int64_t disk_bytes;
    int64_t n_put, n_evicted, n_refused;
    int64_t n_damaged;   /* checksums that were wrong */
    int64_t n_recovered; /* times that a writer was found dead */
    int64_t n_disk_errors;
} fl_cache_stats;

void fl_cache_get_stats(const fl_cache *cache, fl_cache_stats *stats);

#endif
