#include "cache/cache.h"

#include "cache/file.h"
#include "cache/pool.h"
#include "cache/value.h"
#include "device/cpu/bf16.h"

#include <string.h>

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

static bool write_unit(fl_cache *c, uint32_t unit, const void *values, int64_t n, uint64_t seed)
{
    bool in_memory = unit < c->n_memory;
    size_t bytes = fl_pool_stored_bytes(c, n);
    unsigned char *to = in_memory ? c->memory + (size_t)unit * c->unit_bytes : c->staging;
    if (c->o.values != c->o.dtype) {
        fl_bf16_narrow(values, n, (uint16_t *)(void *)to);
    } else {
        memcpy(to, values, bytes);
    }
    SET(c->unit[unit].checksum, fl_checksum(to, bytes, seed));
    if (!in_memory && !fl_cache_file_write(c->fd, to, bytes, fl_pool_file_at(c, unit))) {
        atomic_fetch_add(&c->header->n_disk_errors, 1);
        c->header->disk_failed = true;
        return false;
    }
    return true;
}

/* ---- put ---- */

static bool fits(const fl_cache *c, int64_t n)
{
    uint32_t n_disk = c->n_units - c->n_memory;
    uint32_t most = c->n_memory > n_disk ? c->n_memory : n_disk;
    return n > 0 && n <= c->o.value_elements && fl_pool_units_of(c, n) <= most;
}

static bool write_value(fl_cache *c, uint32_t head, int64_t key, uint64_t print,
                        const unsigned char *values, int64_t n)
{
    uint32_t unit = head;
    for (int64_t first = 0; first < n; first += c->o.unit_elements) {
        int64_t left = n - first, m = left < c->o.unit_elements ? left : c->o.unit_elements;
        if (!write_unit(c, unit, values + (size_t)first * c->value_bytes, m,
                        fl_pool_seed(key, print, first))) {
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

static bool put_value(fl_cache *c, int64_t key, int level, uint64_t print, const void *values,
                      int64_t n, int64_t now)
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

bool fl_cache_put(fl_cache *c, int64_t key, int level, uint64_t print, const void *values,
                  int64_t n, int64_t now)
{
    if (!fits(c, n) || !fl_pool_lock(c)) {
        return false;
    }
    bool kept = put_value(c, key, level, print, values, n, now);
    c->header->n_refused += !kept;
    fl_pool_unlock(c);
    return kept;
}

void fl_cache_keep(fl_cache *c, const fl_cache_prints *prints)
{
    if (!fl_pool_lock(c)) {
        return; /* readers do not accept the remaining values, and new ones evict them */
    }
    for (uint32_t i = 0; i < c->n_units; i++) {
        const fl_cell *unit = &c->unit[i];
        if (fl_pool_is_whole(GET(unit->seq)) &&
            !fl_pool_accepts(prints, (int)GET(unit->level), GET(unit->print))) {
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
