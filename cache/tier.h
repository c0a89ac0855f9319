/* A tier of the cache that one worker has for itself, in front of the store: values in pinned host
 * memory, or in memory of the worker's device. They come from the device and go back to it by
 * copies that are queued in a stream; the host never reads them, so that they need no checksum.
 *
 * A value is kept under the fingerprint of the layers that computed it, and found under this
 * fingerprint alone. Units, index and eviction are those of the store (cache/pool.h), without its
 * memory.
 *
 *     fl_cache_tier_has ①    the reader's thread: the value need not be read from the store
 *     fl_cache_tier_fetch ②  queue copies of the value into device memory
 *     fl_cache_tier_keep ③   queue copies of a value from device memory into the tier
 *
 * The caller orders the streams of ② and ③: copies of ② that were queued before a ③ must be done
 * when those of ③ begin, and those of ③ before a later ② begins.
 * Threads: any. */
#ifndef FL_CACHE_TIER_H
#define FL_CACHE_TIER_H

#include "cache/cache.h"
#include "device/device.h"

typedef struct fl_cache_tier fl_cache_tier;

typedef enum fl_cache_tier_kind { FL_CACHE_TIER_PINNED, FL_CACHE_TIER_DEVICE } fl_cache_tier_kind;

typedef struct fl_cache_tier_options {
    fl_cache_tier_kind kind;
    fl_device *device;            /* borrowed; one that does not compute in host memory */
    int64_t budget_bytes;         /* of the values; the tables lie in ordinary host memory */
    const fl_cache_options *like; /* the store's: keys, sizes of values, order of future uses */
} fl_cache_tier_options;

/* All memory is taken here; that of the device against its budget. FL_EBUDGET if budget_bytes has
 * no room for the largest value, or the device has none for budget_bytes; FL_ENOMEM */
fl_status fl_cache_tier_create(const fl_cache_tier_options *options,
                               fl_cache_tier **out) FL_MUST_CHECK;

/* All copies must be done. *tier becomes NULL; NULL is fine. */
void fl_cache_tier_destroy(fl_cache_tier **tier);

/* Whether the tier has the value; a NULL tier has none. */
bool fl_cache_tier_has(fl_cache_tier *tier, int64_t key, uint64_t print);

/* Queue copies of the value to `to`, device memory of max_elements. *n: its elements; 0 if the tier
 * does not have it (any more), or if it is larger. */
fl_status fl_cache_tier_fetch(fl_cache_tier *tier, fl_stream *stream, int64_t key, uint64_t print,
                              void *to, int64_t max_elements, int64_t *n) FL_MUST_CHECK;

/* Queue copies of the value [n] at `from`, device memory, if the tier has room for it: values whose
 * next use from `now` on is farther away are evicted. *kept: the tier has it, perhaps since
 * earlier. */
fl_status fl_cache_tier_keep(fl_cache_tier *tier, fl_stream *stream, int64_t key, uint64_t print,
                             const void *from, int64_t n, int64_t now, bool *kept) FL_MUST_CHECK;

/* Drop every value with another fingerprint. */
void fl_cache_tier_drop_others(fl_cache_tier *tier, uint64_t print);

/* Bytes that values may take, and that they take now. A NULL tier: 0. */
int64_t fl_cache_tier_bytes(const fl_cache_tier *tier);
int64_t fl_cache_tier_used_bytes(fl_cache_tier *tier);

#endif
