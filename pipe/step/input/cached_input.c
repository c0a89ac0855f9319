#include "pipe/step/input/cached_input.h"

#include "autodp/sampler.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/step/input/cached_input_state.h"

#include <string.h>

enum { PROBED_VALUES = 16, FEW_FOUND = 4 /* a quarter of the samples tells */ };

/* ---- ① ---- */

static fl_status wait_for_device(const fl_cached_input *f)
{
    return f->o.device->ops->sync(f->o.device, f->o.stream);
}

/* A value depends on the data set and on the weights of every layer below it. */
static fl_status make_prints(fl_cached_input *f)
{
    const fl_dataset *d = f->o.dataset;
    uint64_t print = d->ops->fingerprint != NULL ? d->ops->fingerprint(d->self) : 1;
    FL_TRY(fl_weight_prints_get(f->o.activations->prints, fl_stage_params(f->o.stage),
                                f->o.n_frozen, f->o.reader, f->o.n_readers, f->print + 1));
    f->print[0] = 0; /* raw samples are not kept */
    for (int i = 1; i <= f->o.n_frozen; i++) {
        print = fl_mix64(print, f->print[i]);
        f->print[i] = print | 1;
    }
    return FL_OK;
}

fl_status fl_cached_input_request(fl_cached_input *f, const fl_load_request *request)
{
    if (!f->begun) {
        FL_TRY(make_prints(f));
        fl_cache_keep(f->cache, &f->prints);
        f->fetches = fl_cache_tiers_begin(f->o.tiers, f->print[f->o.n_frozen], f->o.window_bytes);
        f->begun = true;
    }
    return fl_loader_request(f->loader, request);
}

/* ---- the decision ---- */

/* The cost of reading one of n samples: the time that the step waited, and at least the processor
 * time of the reader. Reads that a disk serves while the step computes cost nothing. */
static double cost_us(double cpu_ns, double waited_ns, int64_t n)
{
    return n > 0 ? 1e-3 * (cpu_ns > waited_ns ? cpu_ns : waited_ns) / (double)n : 0.0;
}

/* Read back some of what was just kept; the request's own rows are free for it by now. Whether a
 * step would wait for a disk is not known before one does: until then, it does not. */
static void probe(fl_cached_input *f, void *data, const fl_load_request *what)
{
    int64_t begun_ns = fl_thread_ns(), n_read = 0;
    for (int64_t i = 0; i < what->n && i < PROBED_VALUES && !f->choice.probed; i++) {
        int level;
        int64_t n;
        n_read += fl_cache_get(f->cache, &f->prints, fl__cached_key(f, what->split, what->ids[i]),
                               fl__request_rows(data, i), fl__request_most_elements(f, data, i),
                               &level, &n) != FL_CACHE_MISS;
    }
    if (n_read > 0) {
        fl_cache_switch_guess(&f->choice,
                              cost_us((double)(fl_thread_ns() - begun_ns), 0.0, n_read));
    }
}

/* ---- ③ ---- */

/* The time after the current batch, as fl_next_use counts. */
static int64_t time_behind(const fl_cached_input *f, const fl_load_request *what, int64_t step)
{
    const fl_next_use *future = &f->o.activations->future;
    int64_t batch = f->o.activations->batch, n_train = future->n_train;
    if (what->split == FL_TEST) {
        int64_t last = 0;
        for (int64_t i = 0; i < what->n; i++) {
            last = what->ids[i] > last ? what->ids[i] : last;
        }
        return fl_next_use_time(future, f->choice.epoch, n_train + last + 1);
    }
    int64_t end = (step % fl_sampler_steps_per_epoch(n_train, batch) + 1) * batch;
    return fl_next_use_time(future, what->epoch, end < n_train ? end : n_train);
}

static int64_t elements(const fl_tensor *t, int64_t sample)
{
    return (t->offsets[sample + 1] - t->offsets[sample]) * t->width;
}

static void learn_reading(fl_cached_input *f, const fl_request_head *head)
{
    double waited_ns = head->cached_share * (double)f->waited_ns;
    if (head->n_found > 0 && head->n_found * FEW_FOUND >= f->n_samples) {
        fl_cache_switch_read(&f->choice,
                             cost_us((double)head->cached_ns, waited_ns, head->n_found));
    }
}

/* The frozen layers from `level` on, for the samples that have those below behind them. Their
 * output is in the request's rows when this returns. *us: what it took */
static fl_status fill_rows(fl_cached_input *f, int slot, int level, void *data, int64_t n,
                           double *us)
{
    fl_device *d = f->o.device;
    const fl_request_head *head = data;
    FL_TRY(d->ops->event_record(d, f->fill_begun, f->o.stream));
    FL_TRY(fl_stage_fill(f->o.stage, slot, level, f->which, n, data, head->place));
    FL_TRY(d->ops->event_record(d, f->filled, f->o.stream));
    FL_TRY(d->ops->event_wait(d, f->filled));
    return d->ops->event_elapsed(d, f->fill_begun, f->filled, us);
}

static fl_status complete(fl_cached_input *f, int slot, int level, void *data, int64_t n)
{
    const fl_request_head *head = data;
    double us;
    FL_TRY(fill_rows(f, slot, level, data, n, &us));
    us /= (double)n;
    us *= (double)f->o.n_frozen / (double)(f->o.n_frozen - level); /* layers are about alike */
    double waited_ns = (1.0 - head->cached_share) * (double)f->waited_ns;
    us += level == 0 ? cost_us((double)head->raw_ns, waited_ns, n) : 0.0;
    fl_cache_switch_computed(&f->choice, us);
    *(level == 0 ? &f->report.n_misses : &f->report.n_upgrades) += n;
    return FL_OK;
}

static void keep(fl_cached_input *f, const fl_load_request *what, const fl_tensor *input,
                 void *data, int64_t n, int64_t now)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t sample = f->which[i], id = what->ids[sample];
        if (fl_affinity_store_of(f->o.affinity, id) == f->o.store) {
            (void)fl_cache_put(f->cache, fl__cached_key(f, what->split, id), f->o.n_frozen,
                               f->print[f->o.n_frozen], fl__request_rows(data, sample),
                               elements(input, sample), now);
        }
    }
}

static int64_t group_of(const fl_cached_input *f, void *data, int level)
{
    const fl_cached_row *row = fl__request_samples(data);
    int64_t n = 0;
    for (int64_t i = 0; i < f->n_samples; i++) {
        if (row[i].level == level) {
            f->which[n++] = (int32_t)i;
        }
    }
    return n;
}

static fl_status complete_all(fl_cached_input *f, int slot, const fl_load_request *what,
                              const fl_tensor *input, void *data, int64_t now)
{
    int64_t left = f->n_samples - group_of(f, data, f->o.n_frozen);
    for (int level = 0; level < f->o.n_frozen && left > 0; level++) {
        int64_t n = group_of(f, data, level);
        if (n > 0) {
            FL_TRY(complete(f, slot, level, data, n));
            if (f->choice.on) {
                keep(f, what, input, data, n, now);
            }
        }
        left -= n;
    }
    return FL_OK;
}

/* ---- rows on the device, ahead of their step ---- */

/* Copy the cached rows of a request there while the device computes. */
static fl_status fetch_rows(fl_cached_input *f, void *data)
{
    const fl_request_head *head = data;
    const fl_cached_rows rows = {
        .row = fl__request_samples(data), .n = head->n, .host = data, .place = head->place};
    f->fetched = data;
    return fl_cache_tiers_fetch(f->o.tiers, &rows, f->at);
}

static fl_status fetch_next(fl_cached_input *f)
{
    void *next = f->fetches ? fl_loader_peek(f->loader) : NULL;
    f->fetched = NULL;
    return next == NULL ? FL_OK : fetch_rows(f, next);
}

/* The request's cached rows are on the device for what the stage's stream does from now on. */
static fl_status await_rows(fl_cached_input *f, const fl_load_request *what, void *data,
                            unsigned char **window)
{
    const fl_cached_row *row = fl__request_samples(data);
    if (f->fetched != data) {
        FL_TRY(fetch_rows(f, data));
    }
    FL_TRY(fl_cache_tiers_arrive(f->o.tiers, f->o.stream, window));
    for (int64_t i = 0; i < what->n; i++) {
        if (row[i].place == FL_CACHE_PLACE_NONE && row[i].level == f->o.n_frozen) {
            FL_TRY(fl__request_read_again(f, what, data, i));
        }
        f->report.n_device += row[i].place == FL_CACHE_PLACE_DEVICE;
        f->report.n_pinned += row[i].place == FL_CACHE_PLACE_PINNED;
    }
    return FL_OK;
}

static bool is_fetched(const fl_cached_row *row)
{
    return row->place != FL_CACHE_PLACE_NONE;
}

/* All rows into the stage's input; samples that follow each other and come from the same memory
 * together. window NULL: nothing was fetched */
static fl_status put_rows(fl_cached_input *f, const fl_tensor *input, void *data,
                          unsigned char *window)
{
    const fl_request_head *head = data;
    const fl_cached_row *row = fl__request_samples(data);
    for (int64_t i = 0, end; i < head->n; i = end) {
        bool here = window != NULL && is_fetched(&row[i]);
        for (end = i + 1; end < head->n && here == (window != NULL && is_fetched(&row[end]));) {
            end++;
        }
        const fl_stage_rows rows = {.first = i,
                                    .last = end,
                                    .base = here ? window : data,
                                    .place = here ? f->at : head->place,
                                    .on_device = here};
        FL_TRY(fl_stage_put_rows(f->o.stage, input, &rows));
    }
    return FL_OK;
}

/* Values that no tier has yet. Where the store rounds values, only those that it has rounded: a
 * tier gives what the store would give. */
static fl_status offer_rows(fl_cached_input *f, const fl_load_request *what, const fl_tensor *input,
                            void *data, int64_t now)
{
    const fl_cached_row *row = fl__request_samples(data);
    bool exact = fl_job_cache_dtype(f->o.job) == fl_job_dtype(f->o.job);
    size_t row_bytes = (size_t)input->width * fl_dtype_size(input->dtype);
    for (int64_t i = 0; i < what->n; i++) {
        bool from_store = row[i].place == FL_CACHE_PLACE_STORE;
        bool in_tier = is_fetched(&row[i]) && !from_store;
        if (!in_tier && (from_store || exact) &&
            fl_affinity_store_of(f->o.affinity, what->ids[i]) == f->o.store) {
            const unsigned char *from =
                (const unsigned char *)input->data + (size_t)input->offsets[i] * row_bytes;
            FL_TRY(fl_cache_tiers_offer(f->o.tiers, f->o.stream, row[i].key, from,
                                        elements(input, i), now));
        }
    }
    return FL_OK;
}

/* ③ of a request that was taken. */
static fl_status take_rows(fl_cached_input *f, int slot, const fl_load_request *what, int64_t step,
                           const fl_tensor *input, void *data)
{
    unsigned char *window = NULL;
    int64_t now = time_behind(f, what, step);
    FL_TRY(f->fetches ? await_rows(f, what, data, &window) : FL_OK);
    f->report.n_hits += group_of(f, data, f->o.n_frozen);
    FL_TRY(complete_all(f, slot, what, input, data, now));
    FL_TRY(put_rows(f, input, data, window));
    if (f->fetches) {
        FL_TRY(f->choice.on ? offer_rows(f, what, input, data, now) : FL_OK);
        FL_TRY(fl_cache_tiers_leave(f->o.tiers, f->o.stream));
    }
    return FL_OK;
}

fl_status fl_cached_input_take(fl_cached_input *f, int slot, const fl_load_request *what,
                               int64_t step, const fl_tensor *input, int64_t timeout_ms)
{
    fl_tensor taken;
    int64_t begun_ns = fl_now_ns();
    f->first_step = f->begun_taking ? f->first_step : step;
    f->begun_taking = true;
    FL_TRY(fl_loader_take(f->loader, timeout_ms, &taken));
    bool ahead = what->split == FL_TRAIN && step != f->first_step;
    f->waited_ns = ahead ? fl_now_ns() - begun_ns : 0;
    f->n_samples = what->n;
    learn_reading(f, taken.data);
    if (what->split == FL_TRAIN) {
        fl_cache_switch_epoch(&f->choice, what->epoch);
    }
    fl_status status = take_rows(f, slot, what, step, input, taken.data);
    if (status == FL_OK && !f->choice.probed && group_of(f, taken.data, f->o.n_frozen) < what->n) {
        status = wait_for_device(f);
        probe(f, taken.data, what);
    }
    if (status == FL_OK) {
        status = fl_loader_release_after(f->loader, f->o.stream);
    }
    if (status == FL_OK) {
        status = fetch_next(f);
    }
    fl_cache_switch_decide(&f->choice);
    atomic_store(&f->on, f->choice.on);
    return status;
}

bool fl_cached_input_report_take(fl_cached_input *f, bool always, fl_cached_input_report *report)
{
    bool any = f->report.n_hits + f->report.n_upgrades + f->report.n_misses > 0;
    if (!f->choice.changed && !(always && any)) {
        return false;
    }
    *report = f->report;
    report->on = f->choice.on;
    report->changed = f->choice.changed;
    report->read_us = f->choice.read_us;
    report->compute_us = f->choice.compute_us;
    f->report = (fl_cached_input_report){0};
    f->choice.changed = false;
    return true;
}

/* ---- creation ---- */

static fl_status fill(fl_cached_input *f)
{
    size_t n_levels = (size_t)f->o.n_frozen + 1;
    fl_loader_room room;
    f->max_samples = fl_capacity_samples(f->o.capacity);
    FL_TRY(fl__request_room(f, &room));
    FL_TRY(fl_alloc_array(n_levels, sizeof *f->print, (void **)&f->print));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->which, (void **)&f->which));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->wants, (void **)&f->wants));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->wanted, (void **)&f->wanted));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->at, (void **)&f->at));
    f->cache = fl_activations_store(f->o.activations, f->o.store);
    fl_cache_attach(f->cache);
    f->prints = (fl_cache_prints){.n_levels = (int)n_levels, .print = f->print};
    fl_cache_switch_init(&f->choice, f->o.job->cache.policy);
    atomic_init(&f->on, true);
    fl_load_source source = {.context = f, .size = fl__request_measure, .read = fl__request_read};
    FL_TRY(f->o.device->ops->event_create(f->o.device, &f->fill_begun));
    FL_TRY(f->o.device->ops->event_create(f->o.device, &f->filled));
    room.device = f->o.device;
    return fl_loader_create_over(&source, &room, &f->loader);
}

fl_status fl_cached_input_create(const fl_cached_input_options *options, fl_cached_input **out)
{
    fl_cached_input *f = NULL;
    FL_TRY(fl_alloc(sizeof *f, (void **)&f));
    f->o = *options;
    fl_status status = fill(f);
    f->o.capacity = NULL; /* the caller's */
    if (status != FL_OK) {
        fl_cached_input_destroy(&f);
        return status;
    }
    *out = f;
    return FL_OK;
}

void fl_cached_input_destroy(fl_cached_input **feed)
{
    fl_cached_input *f = *feed;
    if (f == NULL) {
        return;
    }
    fl_cache_tiers_settle(f->o.tiers); /* copies from the loader's memory */
    fl_loader_destroy(&f->loader);
    fl_device_event_destroy(f->o.device, &f->fill_begun);
    fl_device_event_destroy(f->o.device, &f->filled);
    fl_free(f->print);
    fl_free(f->wants);
    fl_free(f->wanted);
    fl_free(f->at);
    fl_free(f->which);
    fl_free(f);
    *feed = NULL;
}
