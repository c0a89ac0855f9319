/* The units of a cache and what manages them, in memory that processes share: which are free, which
 * value lies where, who goes first. Everything here but fl_pool_find is called under the lock.
 *
 * A value's first unit is its head. Whether the head's sequence number is even is the one fact that
 * says that the value is there and whole: it becomes even after everything was written, and odd
 * before anything is touched. Free lists, index and order follow from that, so that whoever finds
 * the lock of a dead process makes them anew (fl_pool_recover) and loses nothing but what the dead
 * one was writing. */
#ifndef FL_CACHE_POOL_H
#define FL_CACHE_POOL_H

#include "cache/cache.h"
#include "cache/order.h"

#include "device/random.h"

#include <pthread.h>
#include <stdatomic.h>

#define FL_POOL_NONE UINT32_MAX
enum { FL_POOL_TIERS = 2 };

/* One cache line a unit. All but seq, next and checksum hold for heads only. */
typedef struct fl_cell {
    _Atomic uint32_t seq;  /* even: a whole value begins here */
    _Atomic uint32_t next; /* of this value, or of the free list */
    _Atomic uint32_t n_elements;
    _Atomic uint32_t level;
    _Atomic int64_t key;
    _Atomic uint64_t print;
    _Atomic uint64_t checksum; /* of what lies in this unit */
    uint32_t used;             /* scratch of recovery */
    uint32_t padding[5];
} fl_cell;
_Static_assert(sizeof(fl_cell) == 64, "a unit's record is one cache line");

typedef struct fl_pool_header {
    pthread_mutex_t lock;
    int64_t clock; /* up to here, the order knows what was used */
    uint32_t n_ordered;
    uint32_t free_first[FL_POOL_TIERS], n_free[FL_POOL_TIERS];
    bool disk_failed; /* it refused a write: nothing more goes there */
    int64_t n_values, n_put, n_evicted, n_refused, n_recovered;
    _Atomic int64_t n_damaged, n_disk_errors;
} fl_pool_header;

struct fl_cache {
    fl_cache_options o;
    size_t unit_bytes;
    size_t element_bytes;
    uint32_t n_memory, n_units; /* units below n_memory are in memory, the others in the file */
    void *mapping;
    size_t mapping_bytes;
    fl_pool_header *header;
    fl_cell *unit;           /* [n_units] */
    _Atomic uint32_t *index; /* [n_keys] head + 1 of each key's value; 0: none */
    fl_order order;
    unsigned char *memory;      /* [n_memory][unit_bytes] */
    _Atomic int64_t patient_us; /* until then, a lock that is held is not waited for */
    int fd;                     /* of the disk tier; -1: none */
    bool own_fd;                /* fl_cache_attach was here */
    unsigned char *staging;     /* [unit_bytes] what goes to the file; under the lock */
};

/* Take the lock; false after a tenth of a second, and then, for a second, at once: its holder may
 * be a stopped process. Recovers what a dead holder left. */
bool fl_pool_lock(fl_cache *cache);
void fl_pool_unlock(fl_cache *cache);

/* Make everything free. */
void fl_pool_init(fl_cache *cache);

/* Units for a value of n elements that is next used at `when`, chained, in one tier; values that
 * are used later are evicted for it. FL_POOL_NONE: everything there is used sooner. */
uint32_t fl_pool_take(fl_cache *cache, int64_t n_elements, int64_t when, int64_t now);

/* The value written to these units is there, from now on. */
void fl_pool_publish(fl_cache *cache, uint32_t head, int64_t when);

/* Units that were taken and not published are free again. */
void fl_pool_give(fl_cache *cache, uint32_t head, int64_t n_elements);

/* The value is gone, its units are free. */
void fl_pool_drop(fl_cache *cache, uint32_t head);

static inline bool fl_pool_is_whole(uint32_t seq)
{
    return seq % 2 == 0;
}

static inline uint32_t fl_pool_units_of(const fl_cache *cache, int64_t n_elements)
{
    return (uint32_t)((n_elements + cache->o.unit_elements - 1) / cache->o.unit_elements);
}

/* ---- a unit's bytes ---- */

static inline size_t fl_pool_stored_bytes(const fl_cache *cache, int64_t n_elements)
{
    return (size_t)n_elements * cache->element_bytes;
}

/* Where a unit of the disk tier lies in the file. */
static inline int64_t fl_pool_file_at(const fl_cache *cache, uint32_t unit)
{
    return (int64_t)(unit - cache->n_memory) * (int64_t)cache->unit_bytes;
}

/* Of the checksum: what lies there is for this key, these weights, and the part of the value that
 * begins with the element `first`. Nothing else fits. */
static inline uint64_t fl_pool_seed(int64_t key, uint64_t print, int64_t first)
{
    return fl_mix64(fl_mix64((uint64_t)key, print), (uint64_t)first);
}

static inline bool fl_pool_accepts(const fl_cache_prints *prints, int level, uint64_t print)
{
    return level >= 0 && level < prints->n_levels && print != 0 && prints->print[level] == print;
}

/* FL_POOL_NONE: there is no value of this key. It may change at any moment. */
static inline uint32_t fl_pool_find(const fl_cache *cache, int64_t key)
{
    return atomic_load_explicit(&cache->index[key], memory_order_acquire) - 1;
}

#endif
