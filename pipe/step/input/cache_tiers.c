#include "pipe/step/input/cache_tiers.h"

#include "device/errors/log.h"
#include "device/system/alloc.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

struct fl_cache_tiers {
    const fl_job *job;
    fl_device *device;
    const fl_cache_options *like; /* the store's */
    fl_stream *copies;
    fl_event *fetched; /* recorded in `copies`: the window has what was fetched last */
    fl_event *left;    /* recorded in a stage's stream: the window may be written again */
    unsigned char *window;
    size_t window_bytes;
    pthread_mutex_t lock;              /* of the next line, for the reader of an earlier plan */
    fl_cache_tier *pinned, *on_device; /* NULL: none */
    _Atomic int64_t device_bytes;      /* of the latter */
    uint64_t print;                    /* of the values that are kept and fetched */
    bool opened;                       /* the tiers were asked for their memory */
    bool to_report;
    fl_cache_tiers_report report;
};

/* ---- creation ---- */

static fl_status fill_tiers(fl_cache_tiers *t)
{
    fl_device *d = t->device;
    FL_TRY(d->ops->stream_create(d, &t->copies));
    FL_TRY(d->ops->event_create(d, &t->fetched));
    return d->ops->event_create(d, &t->left);
}

fl_status fl_cache_tiers_create(const fl_job *job, fl_device *device,
                                const fl_activations *activations, fl_cache_tiers **out)
{
    fl_cache_tiers *t = NULL;
    *out = NULL;
    if (activations == NULL || device->ops->host_memory) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *t, (void **)&t));
    t->job = job;
    t->device = device;
    t->like = &activations->values;
    pthread_mutex_init(&t->lock, NULL);
    fl_status status = fill_tiers(t);
    if (status != FL_OK) {
        fl_cache_tiers_destroy(&t);
        return status;
    }
    *out = t;
    return FL_OK;
}

static void give_window(fl_cache_tiers *t)
{
    if (t->window != NULL) {
        fl_device_free(t->device, t->window, t->window_bytes);
        t->window = NULL;
        t->window_bytes = 0;
    }
}

static void give_tiers(fl_cache_tiers *t)
{
    pthread_mutex_lock(&t->lock);
    fl_cache_tier_destroy(&t->pinned);
    fl_cache_tier_destroy(&t->on_device);
    atomic_store(&t->device_bytes, 0);
    t->opened = false;
    pthread_mutex_unlock(&t->lock);
}

/* Destroying the stream waits for its copies. */
void fl_cache_tiers_destroy(fl_cache_tiers **tiers)
{
    fl_cache_tiers *t = *tiers;
    if (t == NULL) {
        return;
    }
    t->device->ops->stream_destroy(t->device, &t->copies);
    fl_device_event_destroy(t->device, &t->fetched);
    fl_device_event_destroy(t->device, &t->left);
    give_tiers(t);
    give_window(t);
    pthread_mutex_destroy(&t->lock);
    fl_free(t);
    *tiers = NULL;
}

/* ---- memory ---- */

/* Without this memory, values come from the store. */
static void explain_lack(fl_cache_tiers *t, const char *what)
{
    char *text = t->report.why_not;
    if (text[0] == '\0') {
        snprintf(text, sizeof t->report.why_not, "%s: %s", what, fl_errmsg());
    }
    fl_log(FL_LOG_WARN, "%s: %s; the cache does without it", what, fl_errmsg());
    t->to_report = true;
}

static void open_tier(fl_cache_tiers *t, fl_cache_tier_kind kind, int64_t budget_bytes,
                      fl_cache_tier **out)
{
    const char *field = kind == FL_CACHE_TIER_PINNED ? "cache.pinned" : "cache.device";
    const fl_cache_tier_options options = {
        .kind = kind, .device = t->device, .budget_bytes = budget_bytes, .like = t->like};
    if (budget_bytes > 0 && fl_cache_tier_create(&options, out) != FL_OK) {
        explain_lack(t, field);
    }
}

static void open_tiers(fl_cache_tiers *t)
{
    fl_cache_tier *pinned = NULL, *on_device = NULL;
    open_tier(t, FL_CACHE_TIER_DEVICE, t->job->cache.device_bytes, &on_device);
    open_tier(t, FL_CACHE_TIER_PINNED, t->job->cache.pinned_bytes, &pinned);
    pthread_mutex_lock(&t->lock);
    t->on_device = on_device;
    t->pinned = pinned;
    t->opened = true;
    pthread_mutex_unlock(&t->lock);
    t->report.device_bytes = fl_cache_tier_bytes(t->on_device);
    t->report.pinned_bytes = fl_cache_tier_bytes(t->pinned);
    atomic_store(&t->device_bytes, t->report.device_bytes);
    t->to_report = t->to_report || t->on_device != NULL || t->pinned != NULL;
}

static void open_window(fl_cache_tiers *t, size_t window_bytes)
{
    void *memory = NULL;
    give_window(t);
    if (fl_device_alloc(t->device, window_bytes, "cached rows", &memory) != FL_OK) {
        explain_lack(t, "device memory for cached rows");
        return;
    }
    t->window = memory;
    t->window_bytes = window_bytes;
}

bool fl_cache_tiers_begin(fl_cache_tiers *t, uint64_t print, size_t window_bytes)
{
    if (t == NULL) {
        return false;
    }
    if (t->window_bytes != window_bytes) {
        open_window(t, window_bytes);
    }
    if (t->window == NULL) {
        return false;
    }
    if (!t->opened) {
        open_tiers(t);
    }
    t->print = print;
    if (t->on_device != NULL) {
        fl_cache_tier_drop_others(t->on_device, print);
    }
    if (t->pinned != NULL) {
        fl_cache_tier_drop_others(t->pinned, print);
    }
    return true;
}

void fl_cache_tiers_fit(fl_cache_tiers *t, bool keep)
{
    if (t == NULL) {
        return;
    }
    fl_cache_tiers_settle(t);
    give_window(t);
    if (!keep) {
        give_tiers(t);
    }
}

int64_t fl_cache_tiers_device_bytes(const fl_cache_tiers *t)
{
    return t == NULL ? 0 : atomic_load(&t->device_bytes);
}

bool fl_cache_tiers_report_take(fl_cache_tiers *t, fl_cache_tiers_report *report)
{
    if (t == NULL || !t->to_report) {
        return false;
    }
    *report = t->report;
    t->to_report = false;
    return true;
}

/* ---- fetching ---- */

fl_cache_place fl_cache_tiers_find(fl_cache_tiers *t, int64_t key, uint64_t print)
{
    pthread_mutex_lock(&t->lock);
    fl_cache_place place = fl_cache_tier_has(t->on_device, key, print) ? FL_CACHE_PLACE_DEVICE
                           : fl_cache_tier_has(t->pinned, key, print)  ? FL_CACHE_PLACE_PINNED
                                                                       : FL_CACHE_PLACE_NONE;
    pthread_mutex_unlock(&t->lock);
    return place;
}

/* A value of at most `most` elements; *n: those that were found, 0: none */
static fl_status fetch_row(fl_cache_tiers *t, const fl_cached_rows *rows, int64_t i, void *to,
                           int64_t most, int64_t *n)
{
    const fl_cached_row *row = &rows->row[i];
    fl_cache_tier *tier = row->place == FL_CACHE_PLACE_DEVICE ? t->on_device : t->pinned;
    *n = 0;
    if (row->place != FL_CACHE_PLACE_STORE) {
        return tier == NULL ? FL_OK
                            : fl_cache_tier_fetch(tier, t->copies, row->key, t->print, to, most, n);
    }
    *n = row->n <= most ? row->n : 0;
    return t->device->ops->copy_in(t->device, t->copies, to, rows->host + rows->place[i],
                                   (size_t)*n * fl_dtype_size(t->like->values));
}

fl_status fl_cache_tiers_fetch(fl_cache_tiers *t, const fl_cached_rows *rows, size_t *at)
{
    fl_device *d = t->device;
    size_t used = 0, element = fl_dtype_size(t->like->values);
    FL_TRY(d->ops->stream_wait(d, t->copies, t->left));
    for (int64_t i = 0; i < rows->n; i++) {
        int64_t n = 0, most = (int64_t)((t->window_bytes - used) / element);
        at[i] = used;
        if (rows->row[i].place != FL_CACHE_PLACE_NONE) {
            FL_TRY(fetch_row(t, rows, i, t->window + used, most, &n));
            rows->row[i].place = n > 0 ? rows->row[i].place : FL_CACHE_PLACE_NONE;
            used += (size_t)n * element;
        }
    }
    return d->ops->event_record(d, t->fetched, t->copies);
}

fl_status fl_cache_tiers_arrive(fl_cache_tiers *t, fl_stream *stream, unsigned char **window)
{
    *window = t->window;
    return t->device->ops->stream_wait(t->device, stream, t->fetched);
}

void fl_cache_tiers_settle(fl_cache_tiers *t)
{
    if (t != NULL && t->device->ops->sync(t->device, t->copies) != FL_OK) {
        fl_log(FL_LOG_WARN, "copies of cached values failed: %s", fl_errmsg());
    }
}

/* ---- keeping ---- */

fl_status fl_cache_tiers_offer(fl_cache_tiers *t, fl_stream *stream, int64_t key, const void *from,
                               int64_t n, int64_t now)
{
    fl_cache_tier *const order[] = {t->on_device, t->pinned};
    bool kept = false;
    for (int i = 0; i < 2 && !kept; i++) {
        if (order[i] != NULL) {
            FL_TRY(fl_cache_tier_keep(order[i], stream, key, t->print, from, n, now, &kept));
        }
    }
    return FL_OK;
}

fl_status fl_cache_tiers_leave(fl_cache_tiers *t, fl_stream *stream)
{
    return t->device->ops->event_record(t->device, t->left, stream);
}
