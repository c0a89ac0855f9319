#include "pipe/step/cached_input.h"

#include "autodp/sampler.h"
#include "data/loader.h"
#include "data/read_sample.h"
#include "data/view.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/random.h"
#include "nn/model.h"

#include <string.h>

enum {
    LINE = 64,
    PROBED_VALUES = 16,
    FEW_FOUND = 4 /* a quarter of the samples tells */
};

/* The beginning of a request's data, n samples; then follow where each begins, what it has behind
 * it, and its values: raw, or those of any layer up to the frost line, whichever is most. */
typedef struct request_head {
    int64_t cached_ns, raw_ns; /* processor time of the two ways to read */
    double cached_share;       /* of the time that both took, waiting included; 0 .. 1 */
    int64_t n_found;           /* in the cache */
    int64_t n_full;            /* that have all frozen layers behind them */
    size_t place[];            /* [n + 1] from the beginning of the data */
} request_head;

struct fl_cached_input {
    fl_cached_input_options o;
    fl_cache *cache; /* borrowed */
    fl_loader *loader;
    uint64_t *print; /* [n_frozen + 1] */
    fl_cache_prints prints;
    bool begun;
    atomic_bool on;       /* as choice.on, for the loader's thread */
    int64_t max_samples;  /* of a micro-batch */
    fl_cache_want *wants; /* [max_samples] the loader's thread's */
    int32_t *which;       /* [max_samples] of the current group */
    int64_t n_samples;    /* of the current request */
    int64_t waited_ns;    /* for it, where a step had been computing while it was read */
    int64_t first_step;   /* of this feed: nothing was read ahead for it */
    bool begun_taking;
    fl_event *fill_begun, *filled; /* of the samples that the device completed last */
    fl_cache_switch choice;
    fl_cached_input_report report;
};

static size_t lines(size_t size_bytes)
{
    return (size_bytes + LINE - 1) / LINE * LINE;
}

/* Of a request of n samples. */
static size_t head_bytes(int64_t n)
{
    size_t count = (size_t)n;
    return lines(sizeof(request_head) + (count + 1) * sizeof(size_t) + count * sizeof(int32_t));
}

/* Layers that each sample has behind it; 0: raw. */
static int32_t *levels_of(void *data, int64_t n)
{
    return (int32_t *)(void *)(((request_head *)data)->place + n + 1);
}

static unsigned char *rows_of(void *data, int64_t sample)
{
    return (unsigned char *)data + ((request_head *)data)->place[sample];
}

static size_t room_of(const void *data, int64_t sample)
{
    const size_t *place = ((const request_head *)data)->place;
    return place[sample + 1] - place[sample];
}

/* Elements of a cached value that the sample has room for. */
static int64_t most_elements(const fl_cached_input *f, const void *data, int64_t sample)
{
    return (int64_t)(room_of(data, sample) / fl_dtype_size(fl_job_dtype(f->o.job)));
}

static int64_t key_of(const fl_cached_input *f, fl_split split, int64_t id)
{
    return split == FL_TRAIN ? id : f->o.activations->future.n_train + id;
}

/* ---- the room of a sample ---- */

static size_t shape_bytes(const fl_shape *shape)
{
    return (size_t)(shape->tokens * shape->width) * fl_dtype_size(shape->dtype);
}

/* The most that a sample has below the frost line. In most data sets, samples of one shape follow
 * each other: *raw and *room are those of the last one; width 0: there was none. */
static fl_status measure_sample(const fl_cached_input *f, fl_split split, int64_t id, fl_shape *raw,
                                size_t *room)
{
    const fl_dataset *d = f->o.dataset;
    fl_shape now, before = *raw;
    int64_t n_targets;
    FL_TRY(d->ops->shape(d->self, split, id, raw, &n_targets));
    if (before.width == raw->width && before.tokens == raw->tokens) {
        return FL_OK;
    }
    now = *raw;
    *room = lines(shape_bytes(raw));
    for (int i = 0; i < f->o.n_frozen; i++) {
        const fl_layer *layer = fl_model_layer(f->o.model, i);
        fl_shape in = now;
        FL_TRY(layer->ops->shape(layer->self, &in, &now));
        *room = lines(shape_bytes(&now)) > *room ? lines(shape_bytes(&now)) : *room;
    }
    return FL_OK;
}

/* place [n + 1] out, if not NULL; *end: where the last sample ends. */
static fl_status place_samples(const fl_cached_input *f, const fl_load_request *r, size_t *place,
                               size_t *end)
{
    fl_shape raw = {0};
    size_t room = 0;
    *end = head_bytes(r->n);
    for (int64_t i = 0; i < r->n; i++) {
        FL_TRY(measure_sample(f, r->split, r->ids[i], &raw, &room));
        if (place != NULL) {
            place[i] = *end;
        }
        *end += room;
    }
    if (place != NULL) {
        place[r->n] = *end;
    }
    return FL_OK;
}

static fl_status measure_request(void *context, const fl_load_request *r, size_t *size_bytes)
{
    return place_samples(context, r, NULL, size_bytes);
}

/* ---- ② in the loader's thread ---- */

static fl_status read_raw(const fl_cached_input *f, const fl_load_request *r, int64_t id, void *out,
                          size_t room)
{
    const fl_dataset *d = f->o.dataset;
    fl_sample_key key = {.seed = r->seed, .epoch = r->epoch, .id = id, .augment = r->augment};
    fl_shape shape;
    int64_t n_targets;
    FL_TRY(d->ops->shape(d->self, r->split, id, &shape, &n_targets));
    if (shape.tokens < 0 || shape_bytes(&shape) > room) {
        char sample[FL_SAMPLE_TEXT_BYTES];
        return fl_fail(FL_EINVAL,
                       "%s has %zu bytes, but had at most %zu a moment ago: the data set "
                       "(%s) must always give the same shape",
                       fl_sample_text(d, r->split, id, sample), shape_bytes(&shape), room,
                       d->ops->kind);
    }
    return fl_read_sample(d, r->split, &key, &shape, out);
}

/* Request all samples from the cache at once: the disk reads while other values are copied. */
static void read_cached(fl_cached_input *f, const fl_load_request *r, void *data)
{
    for (int64_t i = 0; i < r->n; i++) {
        f->wants[i] = (fl_cache_want){.key = key_of(f, r->split, r->ids[i]),
                                      .out = rows_of(data, i),
                                      .max_elements = most_elements(f, data, i)};
    }
    if (atomic_load(&f->on)) {
        fl_cache_get_all(f->cache, &f->prints, f->wants, r->n);
    }
}

/* Read the samples that the cache does not have. */
static fl_status read_others(fl_cached_input *f, const fl_load_request *r, const atomic_bool *stop,
                             void *data)
{
    request_head *head = data;
    int32_t *level = levels_of(data, r->n);
    head->n_full = head->n_found = 0;
    for (int64_t i = 0; i < r->n && !atomic_load(stop); i++) {
        bool found = f->wants[i].found != FL_CACHE_MISS;
        level[i] = found ? f->wants[i].level : 0;
        head->n_found += found;
        head->n_full += level[i] == f->o.n_frozen;
        if (!found) {
            FL_TRY(read_raw(f, r, r->ids[i], rows_of(data, i), room_of(data, i)));
        }
    }
    return FL_OK;
}

static fl_status read_samples(void *context, const fl_load_request *r, const atomic_bool *stop,
                              void *data)
{
    fl_cached_input *f = context;
    request_head *head = data;
    size_t end;
    int64_t begun_ns = fl_now_ns(), cpu_ns = fl_thread_ns();
    FL_TRY(place_samples(f, r, head->place, &end));
    read_cached(f, r, data);
    int64_t cached_ns = fl_now_ns() - begun_ns, cpu_cached_ns = fl_thread_ns();
    FL_TRY(read_others(f, r, stop, data));
    head->cached_ns = cpu_cached_ns - cpu_ns;
    head->raw_ns = fl_thread_ns() - cpu_cached_ns;
    head->cached_share = (double)cached_ns / (double)(fl_now_ns() - begun_ns + 1);
    return FL_OK;
}

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
        n_read +=
            fl_cache_get(f->cache, &f->prints, key_of(f, what->split, what->ids[i]),
                         rows_of(data, i), most_elements(f, data, i), &level, &n) != FL_CACHE_MISS;
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

static void learn_reading(fl_cached_input *f, const request_head *head)
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
    const request_head *head = data;
    FL_TRY(d->ops->event_record(d, f->fill_begun, f->o.stream));
    FL_TRY(fl_stage_fill(f->o.stage, slot, level, f->which, n, data, head->place));
    FL_TRY(d->ops->event_record(d, f->filled, f->o.stream));
    FL_TRY(d->ops->event_wait(d, f->filled));
    return d->ops->event_elapsed(d, f->fill_begun, f->filled, us);
}

static fl_status complete(fl_cached_input *f, int slot, int level, void *data, int64_t n)
{
    const request_head *head = data;
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
            (void)fl_cache_put(f->cache, key_of(f, what->split, id), f->o.n_frozen,
                               f->print[f->o.n_frozen], rows_of(data, sample),
                               elements(input, sample), now);
        }
    }
}

static int64_t group_of(const fl_cached_input *f, void *data, int level)
{
    const int32_t *levels = levels_of(data, f->n_samples);
    int64_t n = 0;
    for (int64_t i = 0; i < f->n_samples; i++) {
        if (levels[i] == level) {
            f->which[n++] = (int32_t)i;
        }
    }
    return n;
}

static fl_status complete_all(fl_cached_input *f, int slot, const fl_load_request *what,
                              const fl_tensor *input, void *data, int64_t now)
{
    const request_head *head = data;
    int64_t left = f->n_samples - head->n_full;
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

fl_status fl_cached_input_take(fl_cached_input *f, int slot, const fl_load_request *what,
                               int64_t step, const fl_tensor *input, int64_t timeout_ms)
{
    fl_tensor taken;
    int64_t begun_ns = fl_now_ns();
    f->first_step = f->begun_taking ? f->first_step : step;
    f->begun_taking = true;
    FL_TRY(fl_loader_take(f->loader, timeout_ms, &taken));
    const request_head *head = taken.data;
    bool ahead = what->split == FL_TRAIN && step != f->first_step;
    f->waited_ns = ahead ? fl_now_ns() - begun_ns : 0;
    f->n_samples = what->n;
    f->report.n_hits += head->n_full;
    learn_reading(f, head);
    if (what->split == FL_TRAIN) {
        fl_cache_switch_epoch(&f->choice, what->epoch);
    }
    fl_status status = complete_all(f, slot, what, input, taken.data, time_behind(f, what, step));
    if (status == FL_OK) {
        status = fl_stage_put_rows(f->o.stage, input, taken.data, head->place);
    }
    if (status == FL_OK && head->n_full < what->n && !f->choice.probed) {
        status = wait_for_device(f);
        probe(f, taken.data, what);
    }
    if (status == FL_OK) {
        status = fl_loader_release_after(f->loader, f->o.stream);
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
    f->report.n_hits = f->report.n_upgrades = f->report.n_misses = 0;
    f->choice.changed = false;
    return true;
}

/* ---- creation ---- */

/* The most that a sample of each length has, as one growth; the head of a request counts, too. */
static fl_status measure_growth(const fl_cached_input *f, fl_growth *growth)
{
    const fl_sample_sizes *sizes = f->o.sizes;
    int64_t *room = NULL;
    FL_TRY(fl_alloc_array((size_t)sizes->n_lengths, sizeof *room, (void **)&room));
    for (int64_t i = 0; i < sizes->n_lengths; i++) {
        fl_extent one = {.samples = 1, .tokens = sizes->lengths[i]};
        for (int level = 0; level <= f->o.n_frozen; level++) {
            size_t bytes = (size_t)fl_growth_at(&sizes->rows[level], one) * sizes->row_bytes[level];
            int64_t rounded = (int64_t)lines(bytes);
            room[i] = rounded > room[i] ? rounded : room[i];
        }
    }
    *growth = fl_growth_over(sizes->lengths, room, sizes->n_lengths);
    growth->per_sample += sizeof(size_t) + sizeof(int32_t);
    fl_free(room);
    return FL_OK;
}

static fl_status measure(const fl_cached_input *f, fl_loader_room *room)
{
    const fl_capacity *c = f->o.capacity;
    fl_growth growth;
    FL_TRY(measure_growth(f, &growth));
    if (f->o.sizes->equal) {
        int64_t data = fl_growth_at(&growth, c->at[0]) + (int64_t)head_bytes(0);
        *room = (fl_loader_room){.max_samples = f->max_samples,
                                 .depth = f->o.depth,
                                 .piece_bytes = lines((size_t)data),
                                 .n_pieces = (size_t)f->o.depth};
        return FL_OK;
    }
    int64_t ahead = fl_growth_at(&growth, c->ahead) + (f->o.depth + 1) * (int64_t)head_bytes(LINE);
    *room = fl_loader_room_ragged(f->max_samples, f->o.depth, ahead);
    return FL_OK;
}

static fl_status fill(fl_cached_input *f)
{
    size_t n_levels = (size_t)f->o.n_frozen + 1;
    fl_loader_room room;
    f->max_samples = fl_capacity_samples(f->o.capacity);
    FL_TRY(measure(f, &room));
    FL_TRY(fl_alloc_array(n_levels, sizeof *f->print, (void **)&f->print));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->which, (void **)&f->which));
    FL_TRY(fl_alloc_array((size_t)f->max_samples, sizeof *f->wants, (void **)&f->wants));
    f->cache = f->o.activations->stores[f->o.store];
    fl_cache_attach(f->cache);
    f->prints = (fl_cache_prints){.n_levels = (int)n_levels, .print = f->print};
    fl_cache_switch_init(&f->choice, f->o.job->cache.policy);
    atomic_init(&f->on, true);
    fl_load_source source = {.context = f, .size = measure_request, .read = read_samples};
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
    fl_loader_destroy(&f->loader);
    fl_device_event_destroy(f->o.device, &f->fill_begun);
    fl_device_event_destroy(f->o.device, &f->filled);
    fl_free(f->print);
    fl_free(f->wants);
    fl_free(f->which);
    fl_free(f);
    *feed = NULL;
}
