/* What a run keeps when it goes back to a snapshot or a checkpoint, beside what its losses have
 * cost (recovery_sums.h): what its operators want, and its counters. The rest of its state goes
 * back. */
#ifndef FL_CONTROL_STATE_LASTING_H
#define FL_CONTROL_STATE_LASTING_H

#include "control/state/hosts/host_record.h"
#include "control/state/hosts/hosts.h"
#include "control/state/run_view.h"

/* Somebody wants the run to end after the step in flight. */
typedef struct fl_stop_wish {
    const char *who; /* a signal's name, a callback or a client; NULL: nobody does */
    const char *by;  /* the same for the run's last message */
    int signal;      /* 0: it was none */
    int64_t terminated_us, patience_us; /* of a SIGTERM: when it came; when patience ends */
} fl_stop_wish;

/* The event of its newest state that events.jsonl has. */
typedef struct fl_host_told {
    fl_host_state state;
    int64_t step;      /* that the event names; */
    bool fixed;        /* it was told at a return, which knows all steps before the loss */
    int64_t end_bytes; /* of events.jsonl behind it; 0: no event was written */
    int64_t joined_step, joined_bytes; /* the same of the event that it joined, which came before */
    double seconds;                    /* DRAINED: since the drain began */
    bool again; /* the run went back behind the event; the head has said it */
} fl_host_told;

/* A host of the run when a controller ended. */
typedef struct fl_lasting_host {
    fl_host host;
    fl_host_record record;
    fl_host_told told;
    int k, r; /* that the run was to have before the drain of the host; 0: none in particular */
} fl_lasting_host;

typedef struct fl_lasting {
    int64_t start_us;    /* of the run's clock, which never goes back; 0: no controller has begun */
    double start_wall_s; /* the same moment since 1970 */
    int64_t begun_ms;    /* when the command began, since 1970; 0: unknown */
    bool any; /* a controller has ended; else the fields below but the hosts mean nothing */

    /* as requests have set them, or the job */
    bool paused;
    double lr, alpha;
    int64_t m, end_step;
    int limit;                    /* as in fl_worker_pool */
    bool pinned[FL_MAX_LAYERS];   /* element i: block i + 1 */
    bool drained[FL_MAX_WORKERS]; /* by rank: a request took the worker out */
    fl_stop_wish stop;

    fl_lasting_host *hosts; /* [n_hosts] by host, of several; the owner of this value frees it */
    int n_hosts;            /* 0: nothing is known of them */
    int64_t awaited_ms; /* for how long the last start waited for them, before it was given up */

    /* since the run began */
    fl_ctl_counts counts;
    fl_transition_sums transitions;
    fl_cache_sums cache;
    fl_checkpoint_sums checkpoints;
    int64_t n_snapshots, n_stragglers;
    int n_restarts[FL_MAX_WORKERS]; /* as fault.restarts counts them */
} fl_lasting;

/* What is known of this host; NULL: nothing. */
static inline const fl_lasting_host *fl_lasting_host_of(const fl_lasting *lasting, int i)
{
    return lasting != NULL && i < lasting->n_hosts ? &lasting->hosts[i] : NULL;
}

/* Whether the host was lost, or drained. */
static inline bool fl_lasting_is_gone(const fl_lasting *lasting, int i)
{
    const fl_lasting_host *host = fl_lasting_host_of(lasting, i);
    return host != NULL && (host->record.state == FL_HOST_STATE_LOST ||
                            host->record.state == FL_HOST_STATE_DRAINED);
}

#endif
