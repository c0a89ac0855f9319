/* Profiles (the costs of layers) and plans (which worker computes what): plain values.
 * Only pipe/ makes them. */
#ifndef FROSTLINE_PLAN_H
#define FROSTLINE_PLAN_H

#include <frostline/job.h>
#include <frostline/model.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    FL_MAX_STAGES = 128,
    FL_MAX_WORKERS = 1024,
    FL_MAX_LAYERS = 512,
    FL_MAX_TUNED = 64,
    FL_MAX_MICRO_BATCHES = 4096
};

/* What one layer costs on one device, measured with the first samples of the data set. A call of n
 * samples and t tokens (rows of the raw input) takes call_us + n * us + t * token_us. Where all
 * samples have one length, their tokens count with the samples, and token_us is 0. Bytes are the
 * mean over those samples. */
typedef struct fl_layer_cost {
    double fwd_call_us, fwd_us;       /* forward in training */
    double bwd_call_us, bwd_us;       /* backward with both gradients */
    double frozen_call_us, frozen_us; /* forward of a frozen layer; all 0: as in training */
    double fwd_token_us, bwd_token_us, frozen_token_us;
    int64_t out_bytes;     /* a sample's activation that leaves the layer */
    int64_t kept_bytes;    /* a sample's memory between forward and backward, with its output */
    int64_t scratch_bytes; /* a sample's temporary memory, the larger of forward and backward */
    int64_t n_params;      /* elements */
} fl_layer_cost;

/* Reading one value of size_bytes from the cache takes call_us + size_bytes * us_per_byte. */
typedef struct fl_read_cost {
    double call_us, us_per_byte;
} fl_read_cost;

/* The M that ran fastest on live steps, of those compared with this F, K, R and batch. */
typedef struct fl_tuned {
    int64_t batch;
    int F, K, R, M;
    int settled; /* 1: nothing is left to compare; 0: the run ended before that */
    double step_us;
} fl_tuned;

typedef struct fl_profile {
    int n_layers;
    int64_t live_steps; /* steps of runs that the costs of layers were corrected by */
    int64_t in_bytes;   /* a raw sample */
    double loss_call_us, loss_us;
    double optimizer_us_per_param; /* clipping, optimizer and clearing, per element */
    double peak_flops_per_us; /* the fastest product of one device, while all compute; 0: unknown */
    fl_read_cost read;        /* from a cache in memory */
    double link_us;           /* latency of one message between workers */
    double link_bytes_per_us; /* send and receive */
    double reduce_bytes_per_us; /* all-reduce between two, payload bytes per time */
    double reduce_cpu_share;    /* processor time of one owner per time of an all-reduce */
    /* The same between GPUs of different islands, or processors of different sockets; 0: there is
     * one. */
    double far_us, far_bytes_per_us, far_reduce_bytes_per_us;
    /* The same between the hosts of the last run that measured it; 0: none has. */
    double hosts_us, hosts_bytes_per_us, hosts_reduce_bytes_per_us;
    int64_t graph_layer_bytes; /* a GPU driver's memory for one layer's captured work of one
                                  micro-batch in flight, all shapes; 0: unknown */
    double comm_rebuild_us, comm_split_us, comm_shrink_us; /* NCCL's communicators; 0: unknown */
    fl_layer_cost layer[FL_MAX_LAYERS];
    int n_tuned;
    fl_tuned tuned[FL_MAX_TUNED];
} fl_profile;

/* Stage k of replica r is the layers first[k] .. first[k + 1] - 1 on worker rank_of[r * K + k].
 * A worker that has no stage and has not departed is standby. */
typedef struct fl_plan {
    uint32_t generation;
    int F;       /* frozen blocks */
    int K, R, M; /* stages, replicas, micro-batches a replica and step */
    fl_schedule schedule;
    int n_layers;
    int n_workers;
    int first[FL_MAX_STAGES + 1];
    int rank_of[FL_MAX_WORKERS];
    bool departed[FL_MAX_WORKERS]; /* workers that leave the run with this generation */
    double predicted_step_us;      /* 0: not predicted */
    double predicted_bubble; /* share of the slowest worker's step spent waiting on the pipeline */
} fl_plan;

/* Where a worker stands in a plan. */
typedef struct fl_place {
    bool active; /* false: standby, the rest is -1 */
    int replica, stage;
} fl_place;

/* Threads: pure; any. */
fl_place fl_plan_place(const fl_plan *plan, int rank);

/* How many workers are members of the run: those with a stage, and standby ones. */
int fl_plan_members(const fl_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
