/* The workers' part of moving state from one plan to the next, by the schedule. */
#ifndef FL_PIPE_MIGRATE_H
#define FL_PIPE_MIGRATE_H

#include "autodp/message.h"
#include "pipe/migrate_schedule.h"
#include "pipe/params.h"

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
