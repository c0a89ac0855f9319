/* The workers' part of moving state from one plan to the next, by the schedule. */
#ifndef FL_PIPE_MIGRATE_H
#define FL_PIPE_MIGRATE_H

#include "autodp/message.h"
#include "pipe/migrate_schedule.h"
#include "pipe/params.h"

/* Moments of frozen layers that this worker keeps, on the host. */
typedef struct fl_attic {
    int n_layers;
    int n_moments;   /* of each parameter; 0: nothing has been kept yet */
    int *rank;       /* [n_layers] who keeps the layer's moments; the same on every worker */
    float **moments; /* [n_layers] NULL: not here */
    float **room;    /* [n_layers] for what shall freeze; NULL: no room was made */
    int64_t *n;      /* [n_layers] floats in moments[layer] or room[layer] */
} fl_attic;

fl_status fl_attic_init(fl_attic *attic, int n_layers) FL_MUST_CHECK;
void fl_attic_fini(fl_attic *attic);

/* Make room, before a transition is committed, for the moments that this worker shall keep.
 * from   its parameters under the old plan; NULL: it has no stage
 * rank   the worker's own */
fl_status fl_attic_make_room(fl_attic *attic, const fl_model *model, const fl_plan *old,
                             const fl_plan *next, int rank, const fl_params *from) FL_MUST_CHECK;

/* Give the room back: the transition was cancelled. */
void fl_attic_clear_room(fl_attic *attic);

/* After the migration, any time before `from` goes: take the moments that froze. */
void fl_attic_fill(fl_attic *attic, const fl_params *from);

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
 * of the next plan, once it is filled. On failure `to` is undefined, `from` and the attic are as
 * they were. */
fl_status fl_migrate_run(const fl_migrate_options *options, fl_migrate_stats *stats) FL_MUST_CHECK;

#endif
