#include "data/read_sample.h"
#include "data/view.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/step/input/cached_input_state.h"

enum { LINE = 64 };

static size_t lines(size_t size_bytes)
{
    return (size_bytes + LINE - 1) / LINE * LINE;
}

/* Of a request of n samples. */
static size_t head_bytes(int64_t n)
{
    size_t count = (size_t)n;
    return lines(sizeof(fl_request_head) + (count + 1) * sizeof(size_t) +
                 count * sizeof(fl_cached_row));
}

fl_cached_row *fl__request_samples(void *data)
{
    fl_request_head *head = data;
    return (fl_cached_row *)(void *)(head->place + head->n + 1);
}

unsigned char *fl__request_rows(void *data, int64_t sample)
{
    return (unsigned char *)data + ((fl_request_head *)data)->place[sample];
}

static size_t room_of(const void *data, int64_t sample)
{
    const size_t *place = ((const fl_request_head *)data)->place;
    return place[sample + 1] - place[sample];
}

int64_t fl__request_most_elements(const fl_cached_input *f, const void *data, int64_t sample)
{
    return (int64_t)(room_of(data, sample) / fl_dtype_size(fl_job_dtype(f->o.job)));
}

int64_t fl__cached_key(const fl_cached_input *f, fl_split split, int64_t id)
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

fl_status fl__request_measure(void *context, const fl_load_request *r, size_t *size_bytes)
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

/* What the store has given. */
static void note_found(const fl_cached_input *f, const fl_cache_want *want, fl_cached_row *row)
{
    bool found = want->found != FL_CACHE_MISS;
    row->level = found ? want->level : 0;
    row->n = found ? want->n : 0;
    row->place = row->level == f->o.n_frozen ? FL_CACHE_PLACE_STORE : FL_CACHE_PLACE_NONE;
}

/* Look which values a tier has, and request the others from the store at once: the disk reads while
 * other values are copied. */
static void read_cached(fl_cached_input *f, const fl_load_request *r, void *data)
{
    fl_cached_row *row = fl__request_samples(data);
    bool on = atomic_load(&f->on);
    int64_t n = 0;
    for (int64_t i = 0; i < r->n; i++) {
        row[i] = (fl_cached_row){.key = fl__cached_key(f, r->split, r->ids[i])};
        row[i].place = on && f->fetches
                           ? fl_cache_tiers_find(f->o.tiers, row[i].key, f->print[f->o.n_frozen])
                           : FL_CACHE_PLACE_NONE;
        if (row[i].place == FL_CACHE_PLACE_NONE) {
            f->wanted[n] = (int32_t)i;
            f->wants[n++] = (fl_cache_want){.key = row[i].key,
                                            .out = fl__request_rows(data, i),
                                            .max_elements = fl__request_most_elements(f, data, i)};
        } else {
            row[i].level = f->o.n_frozen;
        }
    }
    if (on) {
        fl_cache_get_all(f->cache, &f->prints, f->wants, n);
    }
    for (int64_t k = 0; k < n; k++) {
        note_found(f, &f->wants[k], &row[f->wanted[k]]);
    }
}

/* Read the samples that the cache does not have. */
static fl_status read_others(const fl_cached_input *f, const fl_load_request *r,
                             const atomic_bool *stop, void *data)
{
    fl_request_head *head = data;
    const fl_cached_row *row = fl__request_samples(data);
    head->n_found = 0;
    for (int64_t i = 0; i < r->n && !atomic_load(stop); i++) {
        head->n_found += row[i].level > 0;
        if (row[i].level == 0) {
            FL_TRY(read_raw(f, r, r->ids[i], fl__request_rows(data, i), room_of(data, i)));
        }
    }
    return FL_OK;
}

fl_status fl__request_read(void *context, const fl_load_request *r, const atomic_bool *stop,
                           void *data)
{
    fl_cached_input *f = context;
    fl_request_head *head = data;
    size_t end;
    int64_t begun_ns = fl_now_ns(), cpu_ns = fl_thread_ns();
    head->n = r->n;
    head->seed = r->seed;
    head->epoch = r->epoch;
    head->augment = r->augment;
    FL_TRY(place_samples(f, r, head->place, &end));
    read_cached(f, r, data);
    int64_t cached_ns = fl_now_ns() - begun_ns, cpu_cached_ns = fl_thread_ns();
    FL_TRY(read_others(f, r, stop, data));
    head->cached_ns = cpu_cached_ns - cpu_ns;
    head->raw_ns = fl_thread_ns() - cpu_cached_ns;
    head->cached_share = (double)cached_ns / (double)(fl_now_ns() - begun_ns + 1);
    return FL_OK;
}

/* ---- once more ---- */

fl_status fl__request_read_again(fl_cached_input *f, const fl_load_request *what, void *data,
                                 int64_t i)
{
    const fl_request_head *head = data;
    fl_cached_row *row = &fl__request_samples(data)[i];
    const fl_load_request r = {
        .split = what->split, .seed = head->seed, .epoch = head->epoch, .augment = head->augment};
    fl_cache_want want = {.key = row->key,
                          .out = fl__request_rows(data, i),
                          .max_elements = fl__request_most_elements(f, data, i)};
    fl_cache_get_all(f->cache, &f->prints, &want, 1);
    note_found(f, &want, row);
    row->place = FL_CACHE_PLACE_NONE; /* it was not fetched */
    return row->level > 0 ? FL_OK : read_raw(f, &r, what->ids[i], want.out, room_of(data, i));
}

/* ---- the room of all requests ---- */

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
    growth->per_sample += sizeof(size_t) + sizeof(fl_cached_row);
    fl_free(room);
    return FL_OK;
}

fl_status fl__request_room(const fl_cached_input *f, fl_loader_room *room)
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
