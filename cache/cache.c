#include "cache/cache.h"

#include "cache/file.h"
#include "cache/pool.h"
#include "cache/value.h"
#include "device/random.h"

#include <string.h>

enum { READ_TRIES = 2 };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

/* ---- one unit's bytes ---- */

static size_t stored_bytes(const fl_cache *c, int64_t n)
{
    return (size_t)n * c->element_bytes;
}

/* What lies there is for this key, these weights, and this part of the value: nothing else fits. */
static uint64_t seed_of(int64_t key, uint64_t print, int64_t first)
{
    return fl_mix64(fl_mix64((uint64_t)key, print), (uint64_t)first);
}

static int64_t file_at(const fl_cache *c, uint32_t unit)
{
    return (int64_t)(unit - c->n_memory) * (int64_t)c->unit_bytes;
}

/* Elements of one unit, whatever lies there at the moment; *checksum is theirs. False when the file
 * does not give them. */
static bool read_unit(fl_cache *c, uint32_t unit, int64_t n, uint64_t seed, float *out,
                      uint64_t *checksum)
{
    bool narrow = c->o.dtype == FL_BF16;
    size_t bytes = stored_bytes(c, n);
    const unsigned char *from;
    if (unit < c->n_memory) {
        from = c->memory + (size_t)unit * c->unit_bytes;
        if (!narrow) {
            memcpy(out, from, bytes);
            from = (const unsigned char *)out;
        }
    } else {
        unsigned char *to = (unsigned char *)out + (narrow ? bytes : 0);
        if (!fl_cache_file_read(c->fd, to, bytes, file_at(c, unit))) {
            atomic_fetch_add(&c->header->n_disk_errors, 1);
            return false;
        }
        from = to;
    }
    *checksum = fl_checksum(from, bytes, seed);
    if (narrow) {
        fl_widen(from, n, out);
    }
    return true;
}

static bool write_unit(fl_cache *c, uint32_t unit, const float *values, int64_t n, uint64_t seed)
{
    bool in_memory = unit < c->n_memory;
    size_t bytes = stored_bytes(c, n);
    unsigned char *to = in_memory ? c->memory + (size_t)unit * c->unit_bytes : c->staging;
    if (c->o.dtype == FL_BF16) {
        fl_narrow(values, n, (uint16_t *)(void *)to);
    } else {
        memcpy(to, values, bytes);
    }
    SET(c->unit[unit].checksum, fl_checksum(to, bytes, seed));
    if (!in_memory && !fl_cache_file_write(c->fd, to, bytes, file_at(c, unit))) {
        atomic_fetch_add(&c->header->n_disk_errors, 1);
        c->header->disk_failed = true;
        return false;
    }
    return true;
}

/* ---- get ---- */

/* A value as its head describes it. */
typedef struct found {
    uint32_t head, seq;
    int level;
    uint64_t print;
    int64_t n;
} found;

static bool accepts(const fl_cache_prints *prints, int level, uint64_t print)
{
    return level >= 0 && level < prints->n_levels && print != 0 && prints->print[level] == print;
}

static bool look_up(const fl_cache *c, const fl_cache_prints *prints, int64_t key, found *f)
{
    f->head = fl_pool_find(c, key);
    if (f->head == FL_POOL_NONE) {
        return false;
    }
    fl_cell *unit = &c->unit[f->head];
    f->seq = atomic_load_explicit(&unit->seq, memory_order_acquire);
    f->level = (int)GET(unit->level);
    f->print = GET(unit->print);
    f->n = GET(unit->n_elements);
    return fl_pool_is_whole(f->seq) && GET(unit->key) == key && accepts(prints, f->level, f->print);
}

typedef enum copied { COPIED, CHANGED, DAMAGED } copied;

/* All units of the value. Whether it stayed what it was is known only at the end: until then,
 * anything may be read, and nothing is believed. */
static copied copy_value(fl_cache *c, int64_t key, const found *f, float *out)
{
    uint32_t unit = f->head;
    bool right = true;
    for (int64_t first = 0; first < f->n && right; first += c->o.unit_elements) {
        int64_t left = f->n - first, n = left < c->o.unit_elements ? left : c->o.unit_elements;
        uint64_t checksum = 0;
        right = unit < c->n_units &&
                read_unit(c, unit, n, seed_of(key, f->print, first), out + first, &checksum) &&
                checksum == GET(c->unit[unit].checksum);
        unit = right ? GET(c->unit[unit].next) : unit;
    }
    atomic_thread_fence(memory_order_acquire);
    if (GET(c->unit[f->head].seq) != f->seq) {
        return CHANGED;
    }
    return right ? COPIED : DAMAGED;
}

static void drop_damaged(fl_cache *c, const found *f)
{
    atomic_fetch_add(&c->header->n_damaged, 1);
    if (fl_pool_lock(c)) {
        if (GET(c->unit[f->head].seq) == f->seq) {
            fl_pool_drop(c, f->head);
        }
        fl_pool_unlock(c);
    }
}

fl_cache_found fl_cache_get(fl_cache *c, const fl_cache_prints *prints, int64_t key, float *out,
                            int64_t max_elements, int *level, int64_t *n)
{
    for (int i = 0; i < READ_TRIES; i++) {
        found f;
        if (!look_up(c, prints, key, &f) || f.n > max_elements) {
            return FL_CACHE_MISS;
        }
        switch (copy_value(c, key, &f, out)) {
        case COPIED:
            *level = f.level;
            *n = f.n;
            return f.head < c->n_memory ? FL_CACHE_MEMORY : FL_CACHE_DISK;
        case CHANGED:
            break;
        case DAMAGED:
            drop_damaged(c, &f);
            return FL_CACHE_MISS;
        }
    }
    return FL_CACHE_MISS;
}

/* ---- put ---- */

static bool fits(const fl_cache *c, int64_t n)
{
    uint32_t n_disk = c->n_units - c->n_memory;
    uint32_t most = c->n_memory > n_disk ? c->n_memory : n_disk;
    return n > 0 && n <= c->o.value_elements && fl_pool_units_of(c, n) <= most;
}

static bool write_value(fl_cache *c, uint32_t head, int64_t key, uint64_t print,
                        const float *values, int64_t n)
{
    uint32_t unit = head;
    for (int64_t first = 0; first < n; first += c->o.unit_elements) {
        int64_t left = n - first, m = left < c->o.unit_elements ? left : c->o.unit_elements;
        if (!write_unit(c, unit, values + first, m, seed_of(key, print, first))) {
            return false;
        }
        unit = GET(c->unit[unit].next);
    }
    return true;
}

static bool is_same(const fl_cell *unit, int level, uint64_t print, int64_t n)
{
    return (int)GET(unit->level) == level && GET(unit->print) == print &&
           GET(unit->n_elements) == n;
}

static bool put(fl_cache *c, int64_t key, int level, uint64_t print, const float *values, int64_t n,
                int64_t now)
{
    int64_t when = c->o.future.next_use(c->o.future.context, key, now);
    uint32_t old = fl_pool_find(c, key);
    if (old != FL_POOL_NONE) {
        if (is_same(&c->unit[old], level, print, n)) {
            return true;
        }
        fl_pool_drop(c, old);
    }
    uint32_t head = when == INT64_MAX ? FL_POOL_NONE : fl_pool_take(c, n, when, now);
    if (head == FL_POOL_NONE) {
        return false;
    }
    fl_cell *unit = &c->unit[head];
    SET(unit->n_elements, (uint32_t)n);
    SET(unit->level, (uint32_t)level);
    SET(unit->key, key);
    SET(unit->print, print);
    if (!write_value(c, head, key, print, values, n)) {
        fl_pool_give(c, head, n);
        return false;
    }
    fl_pool_publish(c, head, when);
    return true;
}

bool fl_cache_put(fl_cache *c, int64_t key, int level, uint64_t print, const float *values,
                  int64_t n, int64_t now)
{
    if (!fits(c, n) || !fl_pool_lock(c)) {
        return false;
    }
    bool kept = put(c, key, level, print, values, n, now);
    c->header->n_refused += !kept;
    fl_pool_unlock(c);
    return kept;
}

void fl_cache_keep(fl_cache *c, const fl_cache_prints *prints)
{
    if (!fl_pool_lock(c)) {
        return; /* readers do not accept what is left; it goes when its place is wanted */
    }
    for (uint32_t i = 0; i < c->n_units; i++) {
        const fl_cell *unit = &c->unit[i];
        if (fl_pool_is_whole(GET(unit->seq)) &&
            !accepts(prints, (int)GET(unit->level), GET(unit->print))) {
            fl_pool_drop(c, i);
        }
    }
    fl_pool_unlock(c);
}

void fl_cache_get_stats(const fl_cache *c, fl_cache_stats *stats)
{
    const fl_pool_header *h = c->header;
    uint32_t n_free = h->n_free[0] + h->n_free[1];
    *stats =
        (fl_cache_stats){.n_values = h->n_values,
                         .used_bytes = (int64_t)(c->n_units - n_free) * (int64_t)c->unit_bytes,
                         .memory_bytes = (int64_t)c->mapping_bytes,
                         .disk_bytes = (int64_t)(c->n_units - c->n_memory) * (int64_t)c->unit_bytes,
                         .n_put = h->n_put,
                         .n_evicted = h->n_evicted,
                         .n_refused = h->n_refused,
                         .n_damaged = h->n_damaged,
                         .n_recovered = h->n_recovered,
                         .n_disk_errors = h->n_disk_errors};
}
