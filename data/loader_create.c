/* Memory of a loader, and its thread: how they begin and end. */
#include "data/loader_state.h"

#include "device/system/alloc.h"
#include "device/system/arena.h"
#include "device/system/thread.h"

/* ---- room ---- */

/* The sizes of what a loader takes, bytes. */
typedef struct layout {
    size_t ids_bytes, offsets_bytes, slots_bytes, ring_bytes;
    size_t total_bytes; /* of all but the ring */
} layout;

static size_t round_up(size_t size_bytes)
{
    return (size_bytes + 63) / 64 * 64;
}

static fl_status check_counts(int64_t max_samples, int depth)
{
    if (max_samples < 1 || max_samples > INT32_MAX || depth < 1) {
        return fl_fail(FL_EINVAL,
                       "a loader of %lld samples and depth %d: both must be at least 1, and the "
                       "first at most %d",
                       (long long)max_samples, depth, INT32_MAX);
    }
    return FL_OK;
}

static fl_status measure_layout(const fl_loader_room *room, layout *l)
{
    size_t each = 0, slots = 0;
    FL_TRY(check_counts(room->max_samples, room->depth));
    l->ids_bytes = round_up((size_t)room->max_samples * sizeof(int64_t));
    l->offsets_bytes = round_up(((size_t)room->max_samples + 1) * sizeof(int32_t));
    l->slots_bytes = round_up((size_t)room->depth * sizeof(fl__loader_slot));
    each = l->ids_bytes + l->offsets_bytes;
    if (__builtin_mul_overflow(room->n_pieces, room->piece_bytes, &l->ring_bytes) ||
        __builtin_mul_overflow((size_t)room->depth, each, &slots) || l->ring_bytes > SIZE_MAX / 4 ||
        slots > SIZE_MAX / 4) {
        return fl_fail(FL_EINVAL, "%d requests in %zu pieces of %zu bytes are too large for memory",
                       room->depth, room->n_pieces, room->piece_bytes);
    }
    l->total_bytes = round_up(sizeof(fl_loader)) + l->slots_bytes + slots;
    return FL_OK;
}

fl_status fl_loader_room_equal(const fl_dataset *dataset, int64_t max_samples, int depth,
                               fl_loader_room *room)
{
    fl_shape max;
    int64_t n_targets = 0, rows = 0;
    size_t row = 0, data = 0;
    FL_TRY(check_counts(max_samples, depth));
    FL_TRY(dataset->ops->max_shape(dataset->self, &max, &n_targets));
    if (max.tokens < 0 || max.width < 0 || __builtin_mul_overflow(max_samples, max.tokens, &rows) ||
        rows > INT32_MAX) {
        return fl_fail(FL_EINVAL, "%lld samples of %lld tokens do not fit one batch",
                       (long long)max_samples, (long long)max.tokens);
    }
    if (__builtin_mul_overflow((size_t)max.width, fl_dtype_size(max.dtype), &row) ||
        __builtin_mul_overflow((size_t)rows, row, &data) || data > SIZE_MAX / 4) {
        return fl_fail(FL_EINVAL, "%lld rows of width %lld are too large for memory",
                       (long long)rows, (long long)max.width);
    }
    *room = (fl_loader_room){.max_samples = max_samples,
                             .depth = depth,
                             .piece_bytes = round_up(data),
                             .n_pieces = (size_t)depth};
    return FL_OK;
}

fl_loader_room fl_loader_room_ragged(int64_t max_samples, int depth, int64_t ahead_bytes)
{
    /* Each request may leave a part of its last piece unused. */
    size_t n_pieces = ((size_t)ahead_bytes + 63) / 64 + (size_t)depth + 1;
    return (fl_loader_room){
        .max_samples = max_samples, .depth = depth, .piece_bytes = 64, .n_pieces = n_pieces};
}

/* ---- creation ---- */

/* Ordinary memory is not held before a sample is read into it. */
static bool has_ring_of_device(const fl_loader *l)
{
    return l->room.device != NULL && !l->room.device->ops->host_memory;
}

static fl_status take_ring(fl_loader *l, size_t size_bytes)
{
    fl_device *d = l->room.device;
    void *memory = NULL;
    FL_TRY(has_ring_of_device(l) ? d->ops->host_take(d, size_bytes, &memory)
                                 : fl_alloc_untouched(size_bytes, &memory));
    l->ring = memory;
    return FL_OK;
}

static void give_ring(fl_loader *l)
{
    fl_device *d = l->room.device;
    if (!has_ring_of_device(l)) {
        fl_free(l->ring);
    } else if (l->ring != NULL) {
        d->ops->host_give(d, l->ring, l->room.n_pieces * l->room.piece_bytes);
    }
}

static fl_status carve(fl_loader *l, fl_arena *arena, const layout *sizes)
{
    fl_device *d = l->room.device;
    void *memory = NULL;
    FL_TRY(fl_arena_take(arena, sizes->slots_bytes, &memory));
    l->slots = memory;
    for (uint64_t i = 0; i < l->depth; i++) {
        fl__loader_slot *s = &l->slots[i];
        FL_TRY(fl_arena_take(arena, sizes->ids_bytes, &memory));
        s->ids = memory;
        FL_TRY(fl_arena_take(arena, sizes->offsets_bytes, &memory));
        s->offsets = memory;
        FL_TRY(d == NULL ? FL_OK : d->ops->event_create(d, &s->copied));
    }
    return take_ring(l, sizes->ring_bytes);
}

static void give_slots(fl_loader *l)
{
    for (uint64_t i = 0; l->slots != NULL && i < l->depth; i++) {
        fl_device_event_destroy(l->room.device, &l->slots[i].copied);
    }
    give_ring(l);
}

static void init_locks(fl_loader *l)
{
    pthread_mutex_init(&l->lock, NULL);
    fl_condition_init(&l->requested_more);
    fl_condition_init(&l->read_more);
    fl_condition_init(&l->released_more);
}

static void fini_locks(fl_loader *l)
{
    pthread_cond_destroy(&l->released_more);
    pthread_cond_destroy(&l->read_more);
    pthread_cond_destroy(&l->requested_more);
    pthread_mutex_destroy(&l->lock);
}

static fl_status create(const fl_loader *start, fl_loader **out)
{
    void *memory = NULL;
    layout sizes = {0};
    FL_TRY(measure_layout(&start->room, &sizes));
    FL_TRY(fl_alloc_untouched(sizes.total_bytes, &memory));
    fl_arena arena;
    fl_arena_init(&arena, memory, sizes.total_bytes, "the loader");
    void *first = NULL;
    fl_status status = fl_arena_take(&arena, sizeof(fl_loader), &first);
    fl_loader *l = memory;
    *l = *start;
    l->depth = (uint64_t)l->room.depth;
    init_locks(l);
    if (status == FL_OK) {
        status = carve(l, &arena, &sizes);
    }
    if (status == FL_OK) {
        status = fl_thread_start(&l->thread, fl__loader_read_ahead, l, "the loader's thread");
    }
    if (status != FL_OK) {
        fini_locks(l);
        give_slots(l);
        fl_free(memory);
        return status;
    }
    *out = l;
    return FL_OK;
}

fl_status fl_loader_create(const fl_dataset *dataset, const fl_loader_room *room, fl_loader **out)
{
    fl_loader start = {.dataset = *dataset, .room = *room};
    int64_t n_targets;
    FL_TRY(dataset->ops->max_shape(dataset->self, &start.max, &n_targets));
    start.row_bytes = (size_t)start.max.width * fl_dtype_size(start.max.dtype);
    return create(&start, out);
}

fl_status fl_loader_create_over(const fl_load_source *source, const fl_loader_room *room,
                                fl_loader **out)
{
    fl_loader start = {.source = *source, .room = *room};
    return create(&start, out);
}

void fl_loader_destroy(fl_loader **loader)
{
    fl_loader *l = *loader;
    if (l == NULL) {
        return;
    }
    pthread_mutex_lock(&l->lock);
    atomic_store(&l->stop, true);
    pthread_cond_signal(&l->requested_more);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    fini_locks(l);
    give_slots(l);
    fl_free(l);
    *loader = NULL;
}
