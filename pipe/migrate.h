/* Which state goes where when one plan follows another: a pure schedule, and the workers' part of
 * it.
 *
 * A layer's weights come from an owner under the old plan: from the new owner itself if it was one,
 * else from the old owner that has least to send so far. The moments of a layer that trains on come
 * from the same worker. A layer that freezes leaves its moments with the old plan's first replica,
 * in the attic; a layer that thaws gets them back from there. */
#ifndef FL_PIPE_MIGRATE_H
#define FL_PIPE_MIGRATE_H

#include "autodp/message.h"
#include "pipe/params.h"

#include <frostline/plan.h>

/* One layer's state from one worker to another, or (from == to) from its old place to its new. */
typedef struct fl_move {
    int layer;
    int from, to;     /* ranks */
    bool moments;     /* with the weights; false: the layer is frozen in the new plan */
    int moments_from; /* a rank; differs from `from` when the layer thaws */
} fl_move;

/* Layers of the model below the frost line when F blocks are frozen. */
int fl_frozen_layers(const fl_model *model, int F);

/* attic    [n_layers] the rank that keeps a frozen layer's moments, -1: nobody; see below
 * moves    [capacity] out; capacity n_layers * next->R always suffices
 * Returns  FL_EINTERNAL when a layer has no old owner or no place keeps its moments.
 * Threads  pure; any */
fl_status fl_migrate_schedule(const fl_model *model, const fl_plan *old, const fl_plan *next,
                              const int *attic, fl_move *moves, int capacity,
                              int *n_moves) FL_MUST_CHECK;

/* Bring `attic` [n_layers] from the old plan to the next. Pure. */
void fl_migrate_attic(const fl_model *model, const fl_plan *old, const fl_plan *next, int *attic);

/* Moments of frozen layers that this worker keeps, on the host. */
typedef struct fl_attic {
    int n_layers;
    int *rank;       /* [n_layers] who keeps the layer's moments; the same on every worker */
    float **moments; /* [n_layers] NULL: not here */
    int64_t *n;      /* [n_layers] floats in moments[layer] */
} fl_attic;

fl_status fl_attic_init(fl_attic *attic, int n_layers) FL_MUST_CHECK;
void fl_attic_fini(fl_attic *attic);

/* What one worker did in a migration. */
typedef struct fl_migrate_stats {
    int64_t sent_bytes, received_bytes, copied_bytes;
    int64_t took_us;
} fl_migrate_stats;

typedef struct fl_migrate_options {
    const fl_model *model;
    const fl_plan *old, *next;
    int rank;
    fl_params *from; /* NULL: this worker had no stage */
    fl_params *to;   /* NULL: it has none any more */
    fl_attic *attic;
    fl_message_group *messages; /* all workers */
    int64_t deadline_us;
} fl_migrate_options;

/* Run this worker's part; all workers of the message group call it. On success the attic is that
 * of the next plan. On failure `to` is undefined, `from` and the attic are as they were. */
fl_status fl_migrate_run(const fl_migrate_options *options, fl_migrate_stats *stats) FL_MUST_CHECK;

#endif
