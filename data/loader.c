/* The ring of a loader. Four counters chase each other; request number i lies in slot i % depth:
 *
 *     released <= taken <= read <= requested <= released + depth
 *
 *     fl_loader_request ① copies ids in          requested + 1, wakes the thread
 *     the loader's thread ② reads the samples    read + 1, wakes the thread that waits in take
 *     fl_loader_take ③ hands the slot out        taken + 1
 *     fl_loader_release ④ takes it back          released + 1, wakes a waiting request
 *
 * A slot belongs to the caller except between ① and ②, so its content needs no lock. The data lies
 * in a ring of pieces: a request takes the pieces behind those of the one before it, or the first
 * ones of the ring if the last ones are too few. A device may still be copying from pieces that
 * were released: the thread waits for the last such copy when ② begins. */
#include "data/loader.h"

#include "data/loader_state.h"
#include "data/read_sample.h"
#include "data/view.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* ---- the thread ---- */

/* A data set of the user's own may promise one shape and have another. */
static fl_status check_shape(const fl_loader *l, fl_split split, int64_t id, const fl_shape *shape)
{
    char sample[FL_SAMPLE_TEXT_BYTES];
    if (shape->tokens < 0 || shape->tokens > l->max.tokens || shape->width != l->max.width ||
        shape->dtype != l->max.dtype) {
        return fl_fail(FL_EINVAL,
                       "%s has %lld tokens of width %lld, the data set (%s) promised at "
                       "most %lld of width %lld and the same type",
                       fl_sample_text(&l->dataset, split, id, sample), (long long)shape->tokens,
                       (long long)shape->width, l->dataset.ops->kind, (long long)l->max.tokens,
                       (long long)l->max.width);
    }
    return FL_OK;
}

static void keep_message(fl__loader_slot *s)
{
    if (s->status != FL_OK) {
        snprintf(s->message, sizeof s->message, "%s", fl_errmsg());
    }
}

static fl_status read_slot(fl_loader *l, fl__loader_slot *s)
{
    const fl_dataset_ops *ops = l->dataset.ops;
    fl_sample_key key = {
        .seed = s->request.seed, .epoch = s->request.epoch, .augment = s->request.augment};
    int64_t rows = 0;
    for (int64_t i = 0; i < s->request.n && !atomic_load(&l->stop); i++) {
        fl_shape shape;
        int64_t n_targets;
        key.id = s->ids[i];
        FL_TRY(ops->shape(l->dataset.self, s->request.split, key.id, &shape, &n_targets));
        FL_TRY(check_shape(l, s->request.split, key.id, &shape));
        if ((size_t)(rows + shape.tokens) * l->row_bytes > s->n_pieces * l->room.piece_bytes) {
            char sample[FL_SAMPLE_TEXT_BYTES];
            return fl_fail(FL_EINVAL,
                           "%s has more tokens than a moment ago, or another sample of "
                           "its micro-batch has: the data set (%s) must always give the same shape",
                           fl_sample_text(&l->dataset, s->request.split, key.id, sample),
                           ops->kind);
        }
        FL_TRY(fl_read_sample(&l->dataset, s->request.split, &key, &shape,
                              s->data + (size_t)rows * l->row_bytes));
        rows += shape.tokens;
        s->offsets[i + 1] = (int32_t)rows;
    }
    return FL_OK;
}

static fl_status fill_slot(fl_loader *l, fl__loader_slot *s)
{
    fl_device *d = l->room.device;
    if (s->before != NULL) {
        FL_TRY(d->ops->event_wait(d, s->before));
    }
    return l->source.read == NULL
               ? read_slot(l, s)
               : l->source.read(l->source.context, &s->request, &l->stop, s->data);
}

void *fl__loader_read_ahead(void *argument)
{
    fl_loader *l = argument;
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (l->n_read == l->n_requested && !atomic_load(&l->stop)) {
            pthread_cond_wait(&l->requested_more, &l->lock);
        }
        if (atomic_load(&l->stop)) {
            break;
        }
        fl__loader_slot *s = &l->slots[l->n_read % l->depth];
        pthread_mutex_unlock(&l->lock);
        if (s->status == FL_OK) {
            s->status = fill_slot(l, s);
            keep_message(s);
        }
        pthread_mutex_lock(&l->lock);
        l->n_read++;
        pthread_cond_signal(&l->read_more);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- the caller's side ---- */

/* The bytes of a request's data. */
static fl_status measure_request(fl_loader *l, const fl_load_request *r, size_t *size_bytes)
{
    const fl_dataset *d = &l->dataset;
    if (l->source.read != NULL) {
        return l->source.size(l->source.context, r, size_bytes);
    }
    for (int64_t i = 0; i < r->n; i++) {
        fl_shape shape;
        int64_t n_targets;
        FL_TRY(d->ops->shape(d->self, r->split, r->ids[i], &shape, &n_targets));
        FL_TRY(check_shape(l, r->split, r->ids[i], &shape));
        *size_bytes += (size_t)shape.tokens * l->row_bytes;
    }
    return FL_OK;
}

/* Where n pieces are free; false: nowhere. */
static bool find_pieces(const fl_loader *l, size_t n, size_t *begin)
{
    size_t all = l->room.n_pieces, head = l->head;
    bool empty = l->n_requested == l->n_released;
    size_t tail = empty ? 0 : l->slots[l->n_released % l->depth].begin;
    head = empty ? 0 : head;
    bool wrapped = !empty && head <= tail;
    *begin = !wrapped && all - head < n ? 0 : head;
    return wrapped ? tail - head >= n : all - head >= n || tail >= n;
}

static fl_status wait_for_space(fl_loader *l, size_t n_pieces, size_t *begin)
{
    int64_t deadline = fl_deadline_us(FL_LOADER_REQUEST_TIMEOUT_MS);
    while (l->n_requested - l->n_released == l->depth || !find_pieces(l, n_pieces, begin)) {
        if (!fl_condition_wait_until(&l->released_more, &l->lock, deadline) &&
            (l->n_requested - l->n_released == l->depth || !find_pieces(l, n_pieces, begin))) {
            return fl_fail(FL_EDEADLINE, "the loader's %llu requests were not released for %d ms",
                           (unsigned long long)(l->n_requested - l->n_released),
                           FL_LOADER_REQUEST_TIMEOUT_MS);
        }
    }
    return FL_OK;
}

/* Every request takes a piece, so that a ring that is full differs from one that is empty. */
static fl_status count_pieces(const fl_loader *l, size_t size_bytes, size_t *n_pieces)
{
    *n_pieces = size_bytes == 0 ? 1 : (size_bytes + l->room.piece_bytes - 1) / l->room.piece_bytes;
    if (*n_pieces > l->room.n_pieces) {
        return fl_fail(FL_EINVAL, "a request of %zu bytes found, 0 to %zu allowed", size_bytes,
                       l->room.n_pieces * l->room.piece_bytes);
    }
    return FL_OK;
}

/* Where a request's data goes, or why it cannot be read. */
typedef struct placement {
    fl_status status;
    size_t begin, n_pieces;
} placement;

static void queue(fl_loader *l, const fl_load_request *request, const placement *place)
{
    fl__loader_slot *s = &l->slots[l->n_requested % l->depth];
    s->request = *request;
    s->request.ids = s->ids;
    if (request->n > 0) {
        memcpy(s->ids, request->ids, (size_t)request->n * sizeof *s->ids);
    }
    s->failed = false;
    s->begin = place->begin;
    s->n_pieces = place->n_pieces;
    s->data = l->ring + s->begin * l->room.piece_bytes;
    s->before = l->copied;
    s->status = place->status;
    keep_message(s);
    l->head = s->begin + s->n_pieces;
    l->n_requested++;
    pthread_cond_signal(&l->requested_more);
}

fl_status fl_loader_request(fl_loader *l, const fl_load_request *request)
{
    placement place = {.status = FL_OK};
    size_t size_bytes = 0;
    if (request->n < 0 || request->n > l->room.max_samples) {
        return fl_fail(FL_EINVAL, "a request of %lld samples found, 0 to %lld allowed",
                       (long long)request->n, (long long)l->room.max_samples);
    }
    place.status = measure_request(l, request, &size_bytes); /* comes out where it is taken */
    FL_TRY(count_pieces(l, place.status == FL_OK ? size_bytes : 0, &place.n_pieces));
    pthread_mutex_lock(&l->lock);
    fl_status status = wait_for_space(l, place.n_pieces, &place.begin);
    if (status == FL_OK) {
        queue(l, request, &place);
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

/* Give back slots from the oldest on, and with it those behind that never gave anything. */
static void pass_failed(fl_loader *l)
{
    while (l->n_released < l->n_taken && l->slots[l->n_released % l->depth].failed) {
        l->n_released++;
    }
    pthread_cond_signal(&l->released_more);
}

static fl_status wait_for_samples(fl_loader *l, int64_t timeout_ms)
{
    if (l->n_taken == l->n_requested) {
        return fl_fail(FL_EINVAL, "nothing was requested of the loader");
    }
    enum { SLICE_MS = 100 };
    int64_t left_us = timeout_ms < 0 ? 0 : timeout_ms * 1000;
    while (l->n_taken == l->n_read) {
        if (left_us <= 0) {
            return fl_fail(FL_EIO, "samples were not read within %.3g s (fault.deadline)",
                           (double)timeout_ms * 1e-3);
        }
        /* A slice counts as one, however much longer the process or the machine slept in it. */
        int64_t begun_us = fl_now_us();
        int64_t slice_us = left_us < SLICE_MS * 1000 ? left_us : SLICE_MS * 1000;
        bool told = fl_condition_wait_until(&l->read_more, &l->lock, begun_us + slice_us);
        left_us -= told ? fl_now_us() - begun_us : slice_us;
    }
    return FL_OK;
}

fl_status fl_loader_take(fl_loader *l, int64_t timeout_ms, fl_tensor *out)
{
    pthread_mutex_lock(&l->lock);
    fl_status status = wait_for_samples(l, timeout_ms);
    if (status == FL_OK) {
        fl__loader_slot *s = &l->slots[l->n_taken % l->depth];
        l->n_taken++;
        status = s->status;
        if (status == FL_OK) {
            *out = (fl_tensor){.data = s->data,
                               .offsets = s->offsets,
                               .offsets_device = s->offsets,
                               .n_samples = s->request.n,
                               .n_tokens = s->offsets[s->request.n],
                               .width = l->max.width,
                               .dtype = l->max.dtype};
        } else {
            s->failed = true;
            status = fl_fail(status, "%s", s->message);
            pass_failed(l);
        }
    }
    pthread_mutex_unlock(&l->lock);
    return status;
}

void *fl_loader_peek(fl_loader *l)
{
    pthread_mutex_lock(&l->lock);
    const fl__loader_slot *s = &l->slots[l->n_taken % l->depth];
    void *data = l->n_taken < l->n_read && s->status == FL_OK ? s->data : NULL;
    pthread_mutex_unlock(&l->lock);
    return data;
}

void fl_loader_release(fl_loader *l)
{
    pthread_mutex_lock(&l->lock);
    if (l->n_released < l->n_taken) {
        l->n_released++;
        pass_failed(l);
    }
    pthread_mutex_unlock(&l->lock);
}

fl_status fl_loader_release_after(fl_loader *l, fl_stream *stream)
{
    fl_device *d = l->room.device;
    pthread_mutex_lock(&l->lock);
    fl_event *copied = l->slots[l->n_released % l->depth].copied;
    fl_status status = d->ops->event_record(d, copied, stream);
    l->copied = copied;
    pthread_mutex_unlock(&l->lock);
    FL_TRY(status);
    fl_loader_release(l);
    return FL_OK;
}
