#include "pipe/cost/memory/batch_tables.h"

#include <string.h>

enum { TARGET_BYTES = 4, PIECE_BYTES = 64 };

/* The key and the ids first, because they are the widest, then tables of 4 bytes; the targets last,
 * because the others' sizes are known when they are filled. */
static size_t bytes_of(const fl_tables_size *max, int64_t n_samples, int64_t n_targets)
{
    size_t n = (size_t)n_samples,
           n_offsets = (size_t)max->n_boundaries + (max->has_targets ? 1 : 0);
    return sizeof(uint64_t) + n * sizeof(int64_t) + n_offsets * (n + 1) * sizeof(int32_t) +
           (size_t)n_targets * TARGET_BYTES;
}

size_t fl_batch_tables_bytes(const fl_tables_size *max)
{
    size_t bytes = bytes_of(max, max->samples, max->targets);
    return (bytes + PIECE_BYTES - 1) / PIECE_BYTES * PIECE_BYTES;
}

fl_tables_size fl_filled_tables_size(const fl_tables_size *of_slot, int n_filled)
{
    if (n_filled == 0) {
        return (fl_tables_size){0};
    }
    return (fl_tables_size){.n_boundaries = n_filled + 1, .samples = of_slot->samples};
}

size_t fl_stage_tables_bytes(const fl_tables_size *of_slot, int n_slots, int n_filled)
{
    fl_tables_size filled = fl_filled_tables_size(of_slot, n_filled);
    return 2 * ((size_t)n_slots * fl_batch_tables_bytes(of_slot) + fl_batch_tables_bytes(&filled));
}

fl_status fl_batch_tables_init(fl_batch_tables *t, fl_device *device, fl_stream *stream,
                               void *on_device, const fl_tables_size *max)
{
    *t = (fl_batch_tables){.max = *max};
    return fl_mirror_init(&t->mirror, device, stream, on_device, fl_batch_tables_bytes(max));
}

fl_status fl_batch_tables_init_ahead(fl_batch_tables *t, fl_device *device, fl_stream *stream,
                                     fl_stream *copy_stream, void *on_device,
                                     const fl_tables_size *max, int n_pieces)
{
    *t = (fl_batch_tables){.max = *max};
    return fl_mirror_init_ahead(&t->mirror, device, stream, copy_stream, on_device,
                                fl_batch_tables_bytes(max), n_pieces);
}

void fl_batch_tables_fini(fl_batch_tables *t)
{
    fl_mirror_fini(&t->mirror);
    memset(t, 0, sizeof *t);
}

fl_status fl_batch_tables_begin(fl_batch_tables *t, int64_t n)
{
    return fl_batch_tables_begin_with(t, n, n);
}

fl_status fl_batch_tables_begin_with(fl_batch_tables *t, int64_t n, int64_t room)
{
    FL_TRY(fl_mirror_begin(&t->mirror));
    t->n = n;
    t->room = room;
    t->epoch_key = (uint64_t *)(void *)t->mirror.host;
    t->ids = (int64_t *)(void *)(t->epoch_key + 1);
    t->offsets = (int32_t *)(void *)(t->ids + room);
    t->target_offsets = t->offsets + t->max.n_boundaries * (room + 1);
    t->targets = t->target_offsets + (t->max.has_targets ? room + 1 : 0);
    for (int i = 0; i < t->max.n_boundaries; i++) {
        fl_batch_tables_offsets(t, i)[0] = 0;
    }
    return FL_OK;
}

fl_status fl_batch_tables_send(fl_batch_tables *t, int64_t n_targets)
{
    return fl_mirror_send(&t->mirror, bytes_of(&t->max, t->room, n_targets));
}
