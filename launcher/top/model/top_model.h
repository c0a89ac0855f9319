/* What is known of a run: from the replies to `status`, the lines of events.jsonl and those of
 * steps.jsonl, wherever they came from. What does not have the form that docs/control/schema.json
 * gives it is taken for unknown; nothing that comes can make more of it than fits. No I/O. */
#ifndef FL_LAUNCHER_TOP_MODEL_TOP_MODEL_H
#define FL_LAUNCHER_TOP_MODEL_TOP_MODEL_H

#include "control/state/hosts/hosts.h"
#include "launcher/top/model/top_series.h"
#include "nn/loss.h"

#include <frostline/plan.h>

#include <jansson.h>
#include <stdbool.h>

enum { FL_TOP_EVENTS = 64, FL_TOP_EVENT_MAX = 512, FL_TOP_NAME_MAX = 128, FL_TOP_WORD_MAX = 24 };

/* Where a worker's time goes. */
typedef enum fl_top_share {
    FL_TOP_COMPUTE, /* forward, backward, optimizer */
    FL_TOP_WAIT,    /* for the other stages, and for all workers at the commit point */
    FL_TOP_REDUCE,  /* for gradients to be summed */
    FL_TOP_DATA,
    FL_TOP_IDLE, /* the rest: standby, paused, evaluation, a transition */
    FL_TOP_SHARES,
} fl_top_share;

typedef struct fl_top_worker {
    int rank;
    int replica, stage;      /* -1: standby */
    char host[FL_HOST_TEXT]; /* "": the run has one host */
    char state[FL_TOP_WORD_MAX], operation[FL_TOP_WORD_MAX + 16];
    int64_t steps, memory_bytes;            /* the most that it held; of a GPU with workspaces */
    int gpu;                                /* its number; -1: none */
    double spent_s[FL_TOP_SHARES], since_s; /* what the next shares are measured from */
    double share[FL_TOP_SHARES]; /* of the last seconds; adds up to 1, or all 0: unknown */
} fl_top_worker;

typedef struct fl_top_host {
    char name[FL_HOST_TEXT], state[FL_TOP_WORD_MAX];
    int n_workers;
} fl_top_host;

/* A metric of the model's loss, of the last evaluation. */
typedef struct fl_top_metric {
    char name[FL_METRIC_NAME_MAX];
    bool is_share;
    double value;
} fl_top_metric;

typedef struct fl_top_event {
    char text[FL_TOP_EVENT_MAX];
    bool warns;
} fl_top_event;

/* NAN and -1 stand for what is not known. */
typedef struct fl_top_model {
    bool known; /* a status has come */
    bool over;  /* the run has ended: */
    char how[FL_TOP_NAME_MAX];
    char job[FL_TOP_NAME_MAX], state[FL_TOP_WORD_MAX], transition[FL_TOP_WORD_MAX];
    int64_t step, steps, epoch, epochs;
    double time_s, left_s, loss, grad_norm, lr, step_ms, samples_per_s, mfu;
    double evaluated_loss; /* of the last evaluation, */
    bool validates;        /* which used validation samples; otherwise test samples */
    int n_metrics;
    fl_top_metric metric[FL_METRICS_MAX];
    int64_t generation, F, K, R, M, blocks, frozen_layers, straggler;
    double predicted_ms;
    int n_first; /* K + 1, 0: the cuts are not known */
    int first[FL_MAX_STAGES + 1];
    bool pinned[FL_MAX_LAYERS + 1]; /* by block, from 1 */
    char cache[FL_TOP_WORD_MAX];    /* none, off, on */
    int64_t hits, upgrades, misses, cache_used_bytes, cache_bytes;
    int64_t best_step;       /* of the best checkpoint; -1: there is none */
    int64_t checkpoint_step; /* finished steps at the newest durable one; -1: there is none */
    double checkpoint_age_s, checkpoint_s; /* since it became durable; how long that took */
    int64_t checkpoint_bytes;              /* written for it */
    int64_t n_checkpoints_failed;
    int64_t n_losses, n_returns, n_repeated; /* workers; times that the run went back; steps */
    int64_t snapshot_step;                   /* of the one in memory; -1: there is none */
    int n_hosts;                             /* 0: the run has one host */
    fl_top_host host[FL_MAX_WORKERS];
    double link_us, link_bytes_per_s; /* between hosts */
    int n_workers;
    fl_top_worker
        worker[FL_MAX_WORKERS]; /* replicas and stages in order, then workers without a stage */
    fl_top_worker before[FL_MAX_WORKERS]; /* the same as of the status before */
    bool every_step;                      /* steps.jsonl is read: status adds no points */
    fl_top_series loss_curve, rate_curve;
    int64_t n_events, n_lost;          /* ever seen; lost on the way */
    fl_top_event event[FL_TOP_EVENTS]; /* the newest is (n_events - 1) % FL_TOP_EVENTS */
} fl_top_model;

void fl_top_model_init(fl_top_model *model);

/* Take the result of a reply to `status`. False, without a change, if it is not such a result. */
bool fl_top_model_status(fl_top_model *model, const json_t *result);

/* Take a line of events.jsonl, or of steps.jsonl. Other lines are ignored. */
void fl_top_model_event(fl_top_model *model, const char *line);
void fl_top_model_step(fl_top_model *model, const char *line);

/* The lines of a file come again, from its first one. */
void fl_top_model_forget_events(fl_top_model *model);
void fl_top_model_forget_steps(fl_top_model *model);

/* The run has ended in this way. If an event has already told how, the event's text stays. */
void fl_top_model_end(fl_top_model *model, const char *how);

/* The i-th newest event, counted from 0; NULL if there are fewer. */
const fl_top_event *fl_top_model_event_at(const fl_top_model *model, int64_t i);

/* Whether an event names this rank as a worker that computes slowly itself. */
bool fl_top_model_is_slow(const fl_top_model *model, int rank);

#endif
