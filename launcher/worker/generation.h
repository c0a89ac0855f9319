/* A worker's membership in one generation: its place in the plan, the training group, its part of
 * the pipeline. Opening one changes nothing in another, so the next generation can be opened while
 * the current one runs. */
#ifndef FL_LAUNCHER_WORKER_GENERATION_H
#define FL_LAUNCHER_WORKER_GENERATION_H

#include "autodp/message.h"
#include "launcher/worker/worker.h"

#include "pipe/step/pipeline.h"

typedef struct fl_generation {
    fl_plan plan;
    fl_place place;
    fl_group *group;            /* NULL when standby */
    fl_pipeline *pipeline;      /* NULL when standby */
    fl_message_group *messages; /* only if the run's members change; NULL: they stay */
    fl_capacity capacity;       /* of its micro-batches */
    fl_stage_memory memory;
    bool reserved; /* it takes its device memory only after the running member has released its own
                    */
} fl_generation;

typedef struct fl_generation_options {
    const fl_worker_context *worker;
    const fl_plan *plan;
    int rank;
    fl_device *device;
    fl_cache_tiers *tiers; /* NULL: none */
    const fl_kv *kv;
    const fl_state_source *source; /* of weights and moments; NULL: they will migrate here */
    const fl_generation *running;  /* the generation that trains; NULL: none */
    const int *parked;             /* [n_layers] as in fl_migrate_schedule; only with `running` */
    fl_abort_set *abort_set;       /* contains the group from its opening to its closing */
    fl_comm_keeper *keeper;        /* of this worker; NULL: none */
    const fl_net_transport *transport; /* between hosts; NULL: in plain */
    bool after_loss;                   /* a worker of `running` was lost */
    /* Called once the member has its place for state, before its group connects: opens what moves
     * the state. NULL: none moves. */
    fl_status (*open_migration)(void *context);
    void *context;
} fl_generation_options;

/* Open a member. If another generation trains, the new member has no memory yet for the state that
 * will migrate from it; if both do not fit into the device, it is `reserved`. FL_EBUDGET when even
 * that would not fit. *member is the caller's memory. Close it after a failure, too. */
fl_status fl_generation_open(const fl_generation_options *options,
                             fl_generation *member) FL_MUST_CHECK;
void fl_generation_close(fl_generation *member);

/* Weights and moments; NULL when standby. */
fl_params *fl_generation_params(const fl_generation *member);

#endif
