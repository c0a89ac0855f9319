/* The units of a cache and the tables that manage them, in memory that processes share: which units
 * are free, where each value lies, which value is evicted first. Every function here but
 * fl_pool_find is called under the lock.
 *
 * A value's first unit is its head. One fact decides whether a value is there and whole: the head's
 * sequence number is even. It becomes odd before anything is touched, and even after everything was
 * written. Free lists, index and order can be derived from it. So a process that finds the lock of
 * a dead one rebuilds them (fl_pool_recover), and only the value that was being written is lost. */
#ifndef FL_CACHE_POOL_H
#define FL_CACHE_POOL_H

#include "cache/cache.h"
#include "cache/order.h"

#include "device/random/random.h"

#include <pthread.h>
#include <stdatomic.h>

#define FL_POOL_NONE UINT32_MAX
enum { FL_POOL_TIERS = 2 };

/* One cache line per unit. All fields but seq, next and checksum are valid for heads only. */
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
    int64_t clock; /* the order accounts for uses up to this time */
    uint32_t n_ordered;
    uint32_t free_first[FL_POOL_TIERS], n_free[FL_POOL_TIERS];
    bool disk_failed; /* it refused a write; nothing is written to it from then on */
    int64_t n_values, n_put, n_evicted, n_refused, n_recovered;
    _Atomic int64_t n_damaged, n_disk_errors;
} fl_pool_header;

struct fl_cache {
    fl_cache_options o;
    size_t unit_bytes;
    size_t element_bytes, value_bytes; /* of an element as it is stored, and as callers have it */
    bool tables_only;                  /* the units' bytes lie elsewhere: cache/tier.c */
    uint32_t n_memory, n_units; /* units below n_memory are in memory, the others in the file */
    void *mapping;
    size_t mapping_bytes;
    fl_pool_header *header;
    fl_cell *unit;           /* [n_units] */
    _Atomic uint32_t *index; /* [n_keys] head + 1 of each key's value; 0: none */
    fl_order order;
    unsigned char *memory;      /* [n_memory][unit_bytes] */
    _Atomic int64_t patient_us; /* until then, do not wait for a lock that is held */
    int fd;                     /* of the disk tier; -1: none */
    bool own_fd;                /* fl_cache_attach has opened it */
    unsigned char *staging;     /* [unit_bytes] what goes to the file; under the lock */
};

/* As fl_cache_create, without memory for the units, of which memory_bytes alone says how many there
 * are: the tables of a tier whose values lie elsewhere. FL_EBUDGET for less than one value. */
fl_status fl_cache_create_tables(const fl_cache_options *options, fl_cache **out) FL_MUST_CHECK;

/* Take the lock. Gives up after a tenth of a second, and for the second after that at once, because
 * its holder may be a stopped process. Rebuilds the tables if the holder has died. */
bool fl_pool_lock(fl_cache *cache);
void fl_pool_unlock(fl_cache *cache);

/* Make everything free. */
void fl_pool_init(fl_cache *cache);

/* Units for a value of n elements whose next use is at `when`, chained, in one tier. Evicts values
 * that are used later. FL_POOL_NONE: all stored values are used sooner. */
uint32_t fl_pool_take(fl_cache *cache, int64_t n_elements, int64_t when, int64_t now);

/* Make the value that was written to these units visible to readers. */
void fl_pool_publish(fl_cache *cache, uint32_t head, int64_t when);

/* Free units that were taken and not published. */
void fl_pool_give(fl_cache *cache, uint32_t head, int64_t n_elements);

/* Drop the value and free its units. */
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

/* The seed of a unit's checksum: it binds the bytes to this key, these weights, and the part of the
 * value that begins with the element `first`. */
static inline uint64_t fl_pool_seed(int64_t key, uint64_t print, int64_t first)
{
    return fl_mix64(fl_mix64((uint64_t)key, print), (uint64_t)first);
}

static inline bool fl_pool_accepts(const fl_cache_prints *prints, int level, uint64_t print)
{
    return level >= 0 && level < prints->n_levels && print != 0 && prints->print[level] == print;
}

/* The head of the key's value; FL_POOL_NONE: there is none. It may change at any moment. */
static inline uint32_t fl_pool_find(const fl_cache *cache, int64_t key)
{
    return atomic_load_explicit(&cache->index[key], memory_order_acquire) - 1;
}

#endif
