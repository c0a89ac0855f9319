/* A worker's membership in one generation: its place in the plan, the training group, its part of
 * the pipeline. Opening one touches nothing of another, so that the next generation can be opened
 * beside the running one. */
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
    fl_message_group *messages; /* where others are members than before; NULL: they are the same */
    fl_stage_memory memory;
    bool reserved; /* device memory is held only once the member beside it has given up its own */
} fl_generation;

typedef struct fl_generation_options {
    const fl_worker_context *worker;
    const fl_plan *plan;
    int rank;
    fl_device *device;
    const fl_kv *kv;
    bool draw;                   /* starting weights; false: they will migrate here */
    const fl_generation *beside; /* the generation that trains; NULL: none */
    const int *parked;           /* [n_layers] as in fl_migrate_schedule; only with `beside` */
    fl_abort_set *abort_set;     /* its group is part of it while it is open or being opened */
} fl_generation_options;

/* Opened beside another, a member has no place for what will be handed over from it, and if both do
 * not fit into the device it is `reserved`. FL_EBUDGET when even that would not do.
 * *member is the caller's memory. Close it after a failure, too. */
fl_status fl_generation_open(const fl_generation_options *options,
                             fl_generation *member) FL_MUST_CHECK;
void fl_generation_close(fl_generation *member);

/* Weights and moments; NULL when standby. */
fl_params *fl_generation_params(const fl_generation *member);

#endif
