/* What kernels must know of a micro-batch beside its values: the key of its masks, the ids of its
 * samples, where each begins at every boundary between layers, and its targets. The host fills
 * these tables once a micro-batch; one copy brings them to the device. Threads: one. */
#ifndef FL_PIPE_COST_MEMORY_BATCH_TABLES_H
#define FL_PIPE_COST_MEMORY_BATCH_TABLES_H

#include "device/mirror.h"

/* The largest micro-batch that tables are made for. */
typedef struct fl_tables_size {
    int n_boundaries;
    int64_t samples;
    bool has_targets; /* a loss follows */
    int64_t targets;
} fl_tables_size;

typedef struct fl_batch_tables {
    fl_tables_size max;
    fl_mirror mirror;
    int64_t n;    /* samples of the present micro-batch */
    int64_t room; /* samples that its tables have room for, n at least */
    /* Host memory, for the caller to fill. */
    uint64_t *epoch_key;     /* what masks are drawn from, as fl_mask has it */
    int64_t *ids;            /* [room], n of them the micro-batch's */
    int32_t *offsets;        /* [max.n_boundaries][room + 1] */
    int32_t *target_offsets; /* [room + 1] */
    void *targets;           /* [max.targets] of 4 bytes */
} fl_batch_tables;

/* Bytes of the tables, a multiple of 64. Pure. */
size_t fl_batch_tables_bytes(const fl_tables_size *max);

/* Device memory for those of a stage, which run ahead: n_slots micro-batches at once, and samples
 * on their way through its first n_filled layers, if there are any, to where micro-batches enter.
 * Pure.
 */
size_t fl_stage_tables_bytes(const fl_tables_size *of_slot, int n_slots, int n_filled);
fl_tables_size fl_filled_tables_size(const fl_tables_size *of_slot, int n_filled);

/* on_device  [fl_mirror_device_bytes of that], borrowed. Call fini after a failure, too; it also
 * takes tables of zeros. FL_ENOMEM */
fl_status fl_batch_tables_init(fl_batch_tables *tables, fl_device *device, fl_stream *stream,
                               void *on_device, const fl_tables_size *max) FL_MUST_CHECK;
void fl_batch_tables_fini(fl_batch_tables *tables);

/* The same for tables that run ahead, as fl_mirror_init_ahead has it.
 * on_device  [fl_mirror_ahead_device_bytes] */
fl_status fl_batch_tables_init_ahead(fl_batch_tables *tables, fl_device *device, fl_stream *stream,
                                     fl_stream *copy_stream, void *on_device,
                                     const fl_tables_size *max, int n_pieces) FL_MUST_CHECK;

/* Begin the tables of a micro-batch of n <= max.samples samples: every first offset is 0. */
fl_status fl_batch_tables_begin(fl_batch_tables *tables, int64_t n) FL_MUST_CHECK;

/* The same with room for `room` samples: where the tables lie depends on that alone. */
fl_status fl_batch_tables_begin_with(fl_batch_tables *tables, int64_t n,
                                     int64_t room) FL_MUST_CHECK;

/* Bring the tables, with so many targets, to the device. */
fl_status fl_batch_tables_send(fl_batch_tables *tables, int64_t n_targets) FL_MUST_CHECK;

/* The offsets at a boundary, for the host to fill. */
static inline int32_t *fl_batch_tables_offsets(const fl_batch_tables *tables, int boundary)
{
    return tables->offsets + boundary * (tables->room + 1);
}

#endif
