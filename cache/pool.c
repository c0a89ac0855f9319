#include "cache/pool.h"

#include "device/system/clock.h"
#include "device/system/sanitizer.h"

#include <errno.h>
#include <time.h>

enum { LOCK_TIMEOUT_MS = 100, LOCK_RETRY_MS = 1000 };

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

static int tier_of(const fl_cache *c, uint32_t unit)
{
    return unit >= c->n_memory;
}

static void put_free(fl_cache *c, uint32_t unit)
{
    fl_pool_header *h = c->header;
    int tier = tier_of(c, unit);
    SET(c->unit[unit].next, h->free_first[tier]);
    h->free_first[tier] = unit;
    h->n_free[tier]++;
}

static void clear_lists(fl_cache *c)
{
    fl_pool_header *h = c->header;
    h->n_values = 0;
    h->n_ordered = 0;
    for (int tier = 0; tier < FL_POOL_TIERS; tier++) {
        h->free_first[tier] = FL_POOL_NONE;
        h->n_free[tier] = 0;
    }
}

void fl_pool_init(fl_cache *c)
{
    clear_lists(c);
    for (uint32_t i = c->n_units; i-- > 0;) {
        SET(c->unit[i].seq, 1);
        c->order.at[i] = FL_ORDER_NONE;
        put_free(c, i);
    }
}

/* ---- recovery after the death of a writer ---- */

/* Of two values of one key, the index names the valid one. */
static void adopt(fl_cache *c, uint32_t head)
{
    int64_t key = GET(c->unit[head].key);
    uint32_t other = fl_pool_find(c, key);
    bool taken = other != head && other != FL_POOL_NONE &&
                 fl_pool_is_whole(GET(c->unit[other].seq)) && GET(c->unit[other].key) == key;
    if (taken) {
        SET(c->unit[head].seq, GET(c->unit[head].seq) + 1);
        return;
    }
    SET(c->index[key], head + 1);
    uint32_t unit = head;
    for (uint32_t n = fl_pool_units_of(c, GET(c->unit[head].n_elements)); n > 0; n--) {
        c->unit[unit].used = 1;
        unit = GET(c->unit[unit].next);
    }
    fl_order_push(&c->order, head,
                  c->o.future.next_use(c->o.future.context, key, c->header->clock));
    c->header->n_values++;
}

static void recover(fl_cache *c)
{
    clear_lists(c);
    for (uint32_t i = 0; i < c->n_units; i++) {
        c->unit[i].used = 0;
        c->order.at[i] = FL_ORDER_NONE;
    }
    for (uint32_t i = 0; i < c->n_units; i++) {
        if (fl_pool_is_whole(GET(c->unit[i].seq))) {
            adopt(c, i);
        }
    }
    for (int64_t key = 0; key < c->o.n_keys; key++) {
        uint32_t head = fl_pool_find(c, key);
        if (head != FL_POOL_NONE &&
            (!fl_pool_is_whole(GET(c->unit[head].seq)) || GET(c->unit[head].key) != key)) {
            SET(c->index[key], 0);
        }
    }
    for (uint32_t i = c->n_units; i-- > 0;) {
        if (!c->unit[i].used) {
            put_free(c, i);
        }
    }
    c->header->n_recovered++;
}

static int wait_for_lock(fl_cache *c)
{
    struct timespec until;
    int64_t deadline_us = fl_deadline_us(LOCK_TIMEOUT_MS);
    until.tv_sec = deadline_us / 1000000;
    until.tv_nsec = deadline_us % 1000000 * 1000;
    int error = fl_sanitizer_clocklock(&c->header->lock, CLOCK_MONOTONIC, &until);
    if (error == ETIMEDOUT) {
        c->patient_us = fl_deadline_us(LOCK_RETRY_MS);
    }
    return error;
}

bool fl_pool_lock(fl_cache *c)
{
    int error = pthread_mutex_trylock(&c->header->lock);
    if (error == EBUSY && fl_now_us() >= c->patient_us) {
        error = wait_for_lock(c);
    }
    if (error == EOWNERDEAD) {
        /* If this process dies here, too, the next one starts over. */
        recover(c);
        error = pthread_mutex_consistent(&c->header->lock);
    }
    return error == 0;
}

void fl_pool_unlock(fl_cache *c)
{
    pthread_mutex_unlock(&c->header->lock);
}

/* ---- eviction ---- */

static int64_t next_use(const fl_cache *c, int64_t key, int64_t now)
{
    return c->o.future.next_use(c->o.future.context, key, now);
}

/* Move the values that were used since the last look to the time of their next use. */
static void catch_up(fl_cache *c, int64_t now)
{
    fl_pool_header *h = c->header;
    if (now - h->clock <= (int64_t)h->n_ordered) {
        for (int64_t t = h->clock; t < now; t++) {
            uint32_t head = fl_pool_find(c, c->o.future.key_at(c->o.future.context, t));
            if (head != FL_POOL_NONE) {
                fl_order_move(&c->order, head, next_use(c, GET(c->unit[head].key), now));
            }
        }
    } else {
        uint32_t n = h->n_ordered;
        h->n_ordered = 0;
        for (uint32_t i = 0; i < n; i++) {
            /* The heap is rebuilt in place: it overwrites only entries that were read already. */
            uint32_t head = c->order.heap[i];
            fl_order_push(&c->order, head, next_use(c, GET(c->unit[head].key), now));
        }
    }
    h->clock = now > h->clock ? now : h->clock;
}

/* ---- units ---- */

void fl_pool_drop(fl_cache *c, uint32_t head)
{
    fl_cell *unit = &c->unit[head];
    SET(unit->seq, GET(unit->seq) + 1);
    fl_sanitizer_fence(memory_order_release);
    SET(c->index[GET(unit->key)], 0);
    fl_order_remove(&c->order, head);
    c->header->n_values--;
    fl_pool_give(c, head, GET(unit->n_elements));
}

void fl_pool_give(fl_cache *c, uint32_t head, int64_t n_elements)
{
    uint32_t unit = head;
    for (uint32_t n = fl_pool_units_of(c, n_elements); n > 0; n--) {
        uint32_t next = GET(c->unit[unit].next);
        put_free(c, unit);
        unit = next;
    }
}

static uint32_t take_from(fl_cache *c, int tier, uint32_t n)
{
    fl_pool_header *h = c->header;
    uint32_t head = h->free_first[tier], last = head;
    for (uint32_t i = 1; i < n; i++) {
        last = GET(c->unit[last].next);
    }
    h->free_first[tier] = GET(c->unit[last].next);
    h->n_free[tier] -= n;
    return head;
}

static bool evict_one(fl_cache *c, int64_t when)
{
    uint32_t last = fl_order_last(&c->order);
    if (last == FL_ORDER_NONE || c->order.when[last] <= when) {
        return false;
    }
    fl_pool_drop(c, last);
    c->header->n_evicted++;
    return true;
}

uint32_t fl_pool_take(fl_cache *c, int64_t n_elements, int64_t when, int64_t now)
{
    fl_pool_header *h = c->header;
    uint32_t n = fl_pool_units_of(c, n_elements);
    bool looked = false;
    for (;;) {
        for (int tier = 0; tier < FL_POOL_TIERS; tier++) {
            if (h->n_free[tier] >= n && !(tier == 1 && h->disk_failed)) {
                return take_from(c, tier, n);
            }
        }
        if (!looked) {
            catch_up(c, now);
            looked = true;
        }
        if (!evict_one(c, when)) {
            return FL_POOL_NONE;
        }
    }
}

void fl_pool_publish(fl_cache *c, uint32_t head, int64_t when)
{
    fl_cell *unit = &c->unit[head];
    atomic_store_explicit(&unit->seq, GET(unit->seq) + 1, memory_order_release);
    atomic_store_explicit(&c->index[GET(unit->key)], head + 1, memory_order_release);
    fl_order_push(&c->order, head, when);
    c->header->n_values++;
    c->header->n_put++;
}
