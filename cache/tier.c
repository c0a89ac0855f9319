#include "cache/tier.h"

#include "cache/pool.h"
#include "device/system/alloc.h"

#define GET(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define SET(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)

struct fl_cache_tier {
    fl_cache_tier_kind kind;
    fl_device *device;
    fl_cache *tables;      /* a store without memory */
    pthread_mutex_t lock;  /* of the tables, and of the order in which copies are queued */
    unsigned char *memory; /* [n_units] */
    size_t memory_bytes;
};

/* ---- creation ---- */

static fl_status take_memory(fl_cache_tier *t)
{
    void *memory = NULL;
    FL_TRY(t->kind == FL_CACHE_TIER_PINNED
               ? t->device->ops->host_take(t->device, t->memory_bytes, &memory)
               : fl_device_alloc(t->device, t->memory_bytes, "cache.device", &memory));
    t->memory = memory;
    return FL_OK;
}

static void give_memory(fl_cache_tier *t)
{
    if (t->memory != NULL && t->kind == FL_CACHE_TIER_PINNED) {
        t->device->ops->host_give(t->device, t->memory, t->memory_bytes);
    } else if (t->memory != NULL) {
        fl_device_free(t->device, t->memory, t->memory_bytes);
    }
}

static fl_status fill_tier(fl_cache_tier *t, const fl_cache_tier_options *o)
{
    fl_cache_options tables = *o->like;
    tables.dtype = tables.values; /* as the device computes with them */
    tables.disk_bytes = 0;
    tables.memory_bytes = o->budget_bytes;
    FL_TRY(fl_cache_create_tables(&tables, &t->tables));
    t->memory_bytes = (size_t)t->tables->n_units * t->tables->unit_bytes;
    return take_memory(t);
}

fl_status fl_cache_tier_create(const fl_cache_tier_options *options, fl_cache_tier **out)
{
    fl_cache_tier *t = NULL;
    FL_TRY(fl_alloc(sizeof *t, (void **)&t));
    t->kind = options->kind;
    t->device = options->device;
    pthread_mutex_init(&t->lock, NULL);
    fl_status status = fill_tier(t, options);
    if (status != FL_OK) {
        fl_cache_tier_destroy(&t);
        return status;
    }
    *out = t;
    return FL_OK;
}

void fl_cache_tier_destroy(fl_cache_tier **tier)
{
    fl_cache_tier *t = *tier;
    if (t == NULL) {
        return;
    }
    give_memory(t);
    fl_cache_destroy(&t->tables);
    pthread_mutex_destroy(&t->lock);
    fl_free(t);
    *tier = NULL;
}

/* ---- the copies of one value ---- */

static fl_status copy_unit(fl_cache_tier *t, fl_stream *s, unsigned char *here,
                           unsigned char *there, size_t n, bool in_tier)
{
    const fl_device_ops *ops = t->device->ops;
    void *to = in_tier ? here : there;
    const void *from = in_tier ? there : here;
    if (t->kind == FL_CACHE_TIER_DEVICE) {
        return ops->copy(t->device, s, to, from, n);
    }
    return in_tier ? ops->copy_out(t->device, s, to, from, n)
                   : ops->copy_in(t->device, s, to, from, n);
}

/* Between the units of a value, `head` first, and its n elements in device memory. Units that
 * follow each other are one copy. */
static fl_status copy_value(fl_cache_tier *t, fl_stream *s, uint32_t head, unsigned char *there,
                            int64_t n, bool in_tier)
{
    const fl_cache *c = t->tables;
    uint32_t unit = head;
    for (int64_t first = 0, end; first < n; first = end) {
        uint32_t begin = unit;
        end = first;
        do {
            end += c->o.unit_elements;
            unit = GET(c->unit[unit].next);
        } while (end < n && (size_t)c->o.unit_elements * c->element_bytes == c->unit_bytes &&
                 unit == begin + (uint32_t)((end - first) / c->o.unit_elements));
        end = end < n ? end : n;
        FL_TRY(copy_unit(t, s, t->memory + (size_t)begin * c->unit_bytes,
                         there + (size_t)first * c->element_bytes,
                         fl_pool_stored_bytes(c, end - first), in_tier));
    }
    return FL_OK;
}

/* ---- looking up ---- */

/* The head of the value; FL_POOL_NONE: the tier does not have it. */
static uint32_t find_value(const fl_cache_tier *t, int64_t key, uint64_t print)
{
    uint32_t head = fl_pool_find(t->tables, key);
    bool is_it = head != FL_POOL_NONE && GET(t->tables->unit[head].print) == print;
    return is_it ? head : FL_POOL_NONE;
}

bool fl_cache_tier_has(fl_cache_tier *t, int64_t key, uint64_t print)
{
    if (t == NULL) {
        return false;
    }
    pthread_mutex_lock(&t->lock);
    bool has = find_value(t, key, print) != FL_POOL_NONE;
    pthread_mutex_unlock(&t->lock);
    return has;
}

fl_status fl_cache_tier_fetch(fl_cache_tier *t, fl_stream *stream, int64_t key, uint64_t print,
                              void *to, int64_t max_elements, int64_t *n)
{
    fl_status status = FL_OK;
    *n = 0;
    pthread_mutex_lock(&t->lock);
    uint32_t head = find_value(t, key, print);
    int64_t found = head == FL_POOL_NONE ? 0 : (int64_t)GET(t->tables->unit[head].n_elements);
    if (found > 0 && found <= max_elements) {
        status = copy_value(t, stream, head, to, found, false);
        *n = status == FL_OK ? found : 0;
    }
    pthread_mutex_unlock(&t->lock);
    return status;
}

/* ---- keeping ---- */

static fl_status keep_value(fl_cache_tier *t, fl_stream *stream, int64_t key, uint64_t print,
                            const void *from, int64_t n, int64_t now, bool *kept)
{
    fl_cache *c = t->tables;
    uint32_t old = fl_pool_find(c, key);
    *kept = find_value(t, key, print) != FL_POOL_NONE;
    if (*kept) {
        return FL_OK;
    }
    if (old != FL_POOL_NONE) {
        fl_pool_drop(c, old);
    }
    int64_t when = c->o.future.next_use(c->o.future.context, key, now);
    uint32_t head = when == INT64_MAX ? FL_POOL_NONE : fl_pool_take(c, n, when, now);
    if (head == FL_POOL_NONE) {
        return FL_OK;
    }
    fl_status status = copy_value(t, stream, head, (unsigned char *)from, n, true);
    if (status != FL_OK) {
        fl_pool_give(c, head, n);
        return status;
    }
    SET(c->unit[head].n_elements, (uint32_t)n);
    SET(c->unit[head].key, key);
    SET(c->unit[head].print, print);
    fl_pool_publish(c, head, when);
    *kept = true;
    return FL_OK;
}

fl_status fl_cache_tier_keep(fl_cache_tier *t, fl_stream *stream, int64_t key, uint64_t print,
                             const void *from, int64_t n, int64_t now, bool *kept)
{
    *kept = false;
    if (n < 1 || n > t->tables->o.value_elements) {
        return FL_OK;
    }
    pthread_mutex_lock(&t->lock);
    fl_status status = keep_value(t, stream, key, print, from, n, now, kept);
    pthread_mutex_unlock(&t->lock);
    return status;
}

void fl_cache_tier_drop_others(fl_cache_tier *t, uint64_t print)
{
    const fl_cache *c = t->tables;
    pthread_mutex_lock(&t->lock);
    for (uint32_t i = 0; i < c->n_units; i++) {
        if (fl_pool_is_whole(GET(c->unit[i].seq)) && GET(c->unit[i].print) != print) {
            fl_pool_drop(t->tables, i);
        }
    }
    pthread_mutex_unlock(&t->lock);
}

int64_t fl_cache_tier_bytes(const fl_cache_tier *t)
{
    return t == NULL ? 0 : (int64_t)t->memory_bytes;
}

int64_t fl_cache_tier_used_bytes(fl_cache_tier *t)
{
    if (t == NULL) {
        return 0;
    }
    pthread_mutex_lock(&t->lock);
    uint32_t n_free = t->tables->header->n_free[0];
    pthread_mutex_unlock(&t->lock);
    return (int64_t)(t->tables->n_units - n_free) * (int64_t)t->tables->unit_bytes;
}
