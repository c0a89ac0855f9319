/* The values that the controller and its workers send each other: reports, commands, orders. */
#ifndef FL_CONTROL_LINK_WIRE_MESSAGES_H
#define FL_CONTROL_LINK_WIRE_MESSAGES_H

#include "autodp/group/group.h"
#include "autodp/transfer.h"
#include "nn/loss.h"
#include "pipe/state/checkpoint/checkpoint_files.h"
#include "pipe/step/input/cache_tiers.h"
#include "pipe/step/nonfinite.h"
#include "pipe/step/stage/stage.h"

#include <frostline/plan.h>
#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

/* One finished step, as the leader of the group reports it. Steps count from 0 through the whole
 * run, epochs from 0; ms is the wall-clock time of the step. */
typedef struct fl_step_report {
    int64_t step, epoch;
    double loss, grad_norm, lr, ms;
    int64_t samples, tokens;
    uint32_t generation;
    int32_t f, k, r, m;
    fl_metric_means metrics;
    bool skipped; /* loss or gradient norm was not finite: the optimizer skipped the step */
} fl_step_report;

enum { FL_NONFINITE_IDS_MAX = 32 };

/* The consequence of a step whose loss or gradient norm is not finite. */
typedef enum fl_nonfinite_action {
    FL_NONFINITE_SKIPS = 0,        /* the run goes on */
    FL_NONFINITE_ENDS = 1,         /* train.on_nonfinite is stop */
    FL_NONFINITE_ENDS_WEIGHTS = 2, /* a weight is not finite: every further step would fail */
    FL_NONFINITE_ENDS_ROW = 3,     /* too many steps in a row were skipped */
} fl_nonfinite_action;

/* A step that was not finite, and where its first value that is not finite was found. */
typedef struct fl_nonfinite_report {
    int64_t step, epoch;
    double loss, grad_norm;
    fl_nonfinite found;
    fl_nonfinite_action action;
    int64_t n_samples; /* of the global batch */
    int32_t n_ids;
    int64_t ids[FL_NONFINITE_IDS_MAX]; /* [n_ids] the first of them */
} fl_nonfinite_report;

/* One evaluation, after epoch `epoch` (from 0) and step `step`. Each list of metrics is that of the
 * model's loss. */
typedef struct fl_eval_report {
    int64_t epoch, step;
    double loss, ms;
    fl_metric_means metrics;
    int64_t samples;
    bool validation; /* over validation samples; otherwise over test samples */
    bool has_test;   /* the last validation: the test results follow */
    double test_loss;
    fl_metric_means test_metrics;
    int64_t test_samples;
} fl_eval_report;

/* The parts of a worker's time of one step, microseconds. */
typedef struct fl_time_report {
    int64_t step;
    int64_t compute_us, wait_us, reduce_wait_us, optimizer_us, data_us;
} fl_time_report;

typedef enum fl_command_kind {
    FL_COMMAND_NONE = 0,
    FL_COMMAND_STOP = 1,    /* end after the step in flight */
    FL_COMMAND_PREPARE = 2, /* open the plan's generation while the current one runs */
    FL_COMMAND_COMMIT = 3,  /* vote, then switch to the prepared generation */
    FL_COMMAND_CANCEL = 4,  /* drop the prepared generation */
    FL_COMMAND_SETTING = 5, /* continue under the same plan with a changed setting */
    FL_COMMAND_PASS = 6,    /* change nothing at a step for which an answer was due */
    /* Write a checkpoint of the state after due_step steps. It takes effect at the control point of
     * that step, before any other command; at the next control point if that step has passed or
     * due_step is 0; at once while the run is paused. Until then it stays in the leader's list, and
     * other commands overtake it: workers may wait for one of them at an earlier step. At the end
     * of the run each worker writes a checkpoint by itself if the run keeps checkpoints, unless a
     * command for the same step took effect. */
    FL_COMMAND_CHECKPOINT = 7,
    FL_COMMAND_END = 8, /* the run ends at the step for which an answer was due, as if it were the
                           last one: with the evaluation of the end */
    FL_COMMAND_SNAPSHOT = 9, /* copy the state after due_step steps into memory; when it takes
                                effect is as for CHECKPOINT */
} fl_command_kind;

/* Why every worker waits at a step until the controller has answered for it: see
 * control/elastic/due_steps.h. */
typedef enum fl_due_kind {
    FL_DUE_NONE = 0,
    FL_DUE_SCRIPT = 1, /* an entry of elastic.script */
    FL_DUE_POLICY = 2, /* a decision of the freeze policy */
    FL_DUE_REPLAY = 3, /* a decision of the run that is repeated */
    FL_DUE_STOP = 4,   /* an evaluation is judged: train.metric, train.stop_after */
    FL_DUE_KINDS
} fl_due_kind;

typedef enum fl_setting_kind {
    FL_SETTING_NONE = 0,
    FL_SETTING_PAUSE = 1,     /* wait at the control point until RESUME or STOP */
    FL_SETTING_RESUME = 2,    /* continue */
    FL_SETTING_END_EPOCH = 3, /* the current epoch is the last one */
    FL_SETTING_LR = 4,        /* value: train.lr from the next step on */
    FL_SETTING_LOG = 5,       /* value: an fl_log_level */
} fl_setting_kind;

typedef struct fl_setting {
    fl_setting_kind kind;
    int64_t serial; /* > 0; the report that the setting has taken effect returns it */
    double value;
} fl_setting;

/* A setting has taken effect on every worker.
 * step      the first step to which it applies
 * end_step  number of steps after which the run will end */
typedef struct fl_setting_done_report {
    int64_t serial, step, end_step;
} fl_setting_done_report;

/* Hashes of the weights of a worker's layers, in replica 0. As SAVED: fl_model_file_hash of what
 * workers of other hosts have written, as they read it; 0: a worker of the head has written it.
 * step  finished steps
 * hash  [n] of the layers first .. first + n - 1 */
typedef struct fl_hashes_report {
    int64_t step;
    int32_t first, n;
    uint64_t hash[FL_MAX_LAYERS];
} fl_hashes_report;

/* Hashes of weights are missing: a worker could not compute them, or they could not be written.
 * step   the first step that lacks them
 * error  errno */
typedef struct fl_hashes_failed_report {
    int64_t step;
    int32_t error;
} fl_hashes_failed_report;

/* A command of the controller, applied at a control point. */
typedef struct fl_command {
    fl_command_kind kind;
    int64_t due_step;   /* PREPARE: the step at which all wait for the commit; COMMIT, CANCEL, PASS,
                           END: the step that is answered; CHECKPOINT, SNAPSHOT: the step to be saved;
                           0: none */
    int64_t serial;     /* CHECKPOINT, SNAPSHOT: of the request, above 0 */
    fl_due_kind due;    /* COMMIT, CANCEL, PASS, END: the kind of answer */
    fl_plan plan;       /* PREPARE: the next generation's */
    fl_setting setting; /* SETTING */
} fl_command;

/* What every member of the run must agree on beside the plan and the weights. */
typedef struct fl_run_position {
    int64_t n_commands; /* how many commands of the controller have been applied */
    double lr_factor;   /* factor on the job's learning rate */
    int64_t end_step;   /* the run ends after this many steps */
    int32_t n_skipped;  /* steps in a row whose loss or gradient norm was not finite */
    bool paused, stop;
    int64_t last_setting;           /* the highest serial number of a setting that was applied */
    int32_t log_level;              /* fl_log_level */
    int64_t answered[FL_DUE_KINDS]; /* the last step for which an answer of the kind was applied */
} fl_run_position;

/* A worker was lost, or a connection: the others leave their waits, and each reports where it
 * stands. */
typedef struct fl_broken_report {
    uint32_t serial;     /* of the order to break that it answers; 0: it has received none */
    uint32_t generation; /* that trains on this worker */
    uint32_t exchanged;  /* the next generation, whose state is complete here; 0: none */
    int64_t step;        /* finished steps; a standby worker may be behind */
    int64_t summed_step; /* a step that is not finished, but whose gradients are complete; -1 */
    fl_run_position position;
    fl_status status; /* why it left, and the text */
    char text[512];
} fl_broken_report;

/* Leave every wait of the generations up to `until`, and report. Each order has a serial number
 * from 1 on, higher than the one before. */
typedef struct fl_break_order {
    uint32_t serial, until;
} fl_break_order;

/* How the run goes on after a break, the same for all its members. */
typedef struct fl_regroup_order {
    uint32_t serial;     /* of the order to break */
    bool leave;          /* the run is complete: leave it */
    uint32_t generation; /* workers that have the state of this generation go over to it first */
    int64_t step;        /* finished steps; a worker that has one less applies its summed step */
    double grad_norm;    /* the result of that step */
    bool finite;
    bool evaluates; /* the evaluation that is due after `step` steps is still to come */
    bool saved;     /* the checkpoint after `step` steps is there, or needs its workers no more;
                       else what there is of it is given up, and a last one is written anew */
    fl_run_position position;
    fl_plan plan; /* from here on; who departs here but did not under the plan before, is lost */
} fl_regroup_order;

/* The result of opening the next generation on one worker. */
typedef struct fl_prepared_report {
    uint32_t generation;
    fl_status status; /* FL_OK: ready; else it refuses */
    int64_t took_us;
    char text[1024]; /* why it refuses */
} fl_prepared_report;

/* One worker's part of a transition, microseconds. */
typedef struct fl_transition_parts {
    uint32_t generation; /* the new generation */
    int64_t step;        /* its first step */
    int64_t wait_us;     /* spent at a step of elastic.script, waiting for others to prepare */
    int64_t vote_us, migrate_us, switch_us; /* while no worker trained */
    int64_t received_bytes, kept_bytes;
    int64_t device_bytes;                    /* sent without host memory */
    fl_transfer_part part[FL_TRANSFER_WAYS]; /* received, by the way */
    fl_comm_way comm;                        /* how its group got communicators, */
    int64_t comm_us;                         /* and how long that took */
} fl_transition_parts;

/* How the workers of a generation exchange data; from the first of them. */
typedef struct fl_comm_report {
    uint32_t generation;
    fl_group_comm comm;
} fl_comm_report;

/* The work that a worker's stage has captured so far, up to this step. */
typedef struct fl_graphs_report {
    uint32_t generation; /* of the stage */
    int64_t step;
    fl_stage_graph_report graphs;
} fl_graphs_report;

/* The cache's service to one worker since its last report, and the contents of its store. */
typedef struct fl_cache_report {
    int64_t step, epoch;
    int32_t f;
    bool on, decided; /* used or not; whether that was decided since the last report */
    int64_t n_hits, n_upgrades, n_misses; /* samples */
    int64_t n_device, n_pinned;           /* hits in tiers of the worker's own */
    double read_us, compute_us;           /* per sample; 0: not measured */
    int64_t n_values, used_bytes, n_evicted, n_damaged, n_recovered; /* of the whole store */
} fl_cache_report;

/* A worker with a last stage has finished its share of a batch of a pass, which
 * control/state/pass.h describes.
 * lines  [lines_bytes] for fl_link_pass borrowed, at the controller borrowed from the message: for
 *        each sample i64 id, u32 size_bytes, the bytes of its line. 0: the pass has no lines */
typedef struct fl_pass_report {
    int64_t batch; /* from 0 */
    int64_t n_samples;
    uint32_t lines_bytes;
    const unsigned char *lines;
} fl_pass_report;

/* A worker's memory. The budget holds for what the device uses, not for the rest. */
typedef struct fl_memory_report {
    int64_t used_bytes, peak_bytes; /* of the device; 0: not known yet */
    int64_t parked_bytes;           /* host memory: moments of frozen layers */
    int64_t workspace_bytes;        /* of kernels */
} fl_memory_report;

#endif
