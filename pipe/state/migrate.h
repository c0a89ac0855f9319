/* The workers' part of moving state from one plan to the next, by the schedule. State that stays on
 * a worker is handed over in place; a worker receives only the state that it lacks. */
#ifndef FL_PIPE_STATE_MIGRATE_H
#define FL_PIPE_STATE_MIGRATE_H

#include "autodp/transfer.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/state/params.h"
#include "pipe/state/parked.h"

/* The bytes that one worker moved in a migration. */
typedef struct fl_migrate_stats {
    int64_t sent_bytes, received_bytes;
    int64_t kept_bytes;                      /* handed over where they lay */
    int64_t device_bytes;                    /* of those sent: from device to device */
    fl_transfer_part part[FL_TRANSFER_WAYS]; /* of those received */
} fl_migrate_stats;

typedef struct fl_migrate_options {
    const fl_model *model;
    const fl_plan *old, *next; /* borrowed, as everything here */
    int rank;
    fl_params *from; /* NULL: this worker had no stage */
    fl_params *to;   /* NULL: it has none any more; made with fl_migrate_handed's answer */
    fl_parked *parked;
    const bool *lost;           /* [n_workers] as in fl_migrate_schedule; NULL: none */
    fl_message_group *messages; /* of all living workers */
    /* The group of the next plan, before it is connected, and the ranks of its members: as in
     * fl_transfers_options. NULL: this worker has no stage there. */
    fl_group *group;
    const int *members;
    int n_members;
} fl_migrate_options;

typedef struct fl_migration fl_migration;

/* Prepare everything while training continues: moving state allocates nothing. options->lost is
 * needed only here. */
fl_status fl_migration_open(const fl_migrate_options *options, fl_migration **out) FL_MUST_CHECK;

/* At any time. Nothing moves any more. */
void fl_migration_close(fl_migration **migration);

/* Receive what this worker lacks, and send what others lack; all workers of the message group call
 * it. `to` counts its weights and moments already (fl_params_claim_state). `from` and the parked
 * moments are as they were, whether it fails or not: until fl_migration_finish, the worker can go
 * either way. */
fl_status fl_migration_exchange(fl_migration *migration, int64_t deadline_us) FL_MUST_CHECK;

/* Hand over what stays on this worker: from here on `to` has its state, and the parked moments are
 * those of the next plan. Only when every worker has exchanged; it waits for none of them. Fails
 * with the device alone.
 * step  the first one of the next plan: fresh moments count from it */
fl_status fl_migration_finish(fl_migration *migration, int64_t step,
                              fl_migrate_stats *stats) FL_MUST_CHECK;

#endif
