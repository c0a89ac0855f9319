/* The parts that make up the controller of one run. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_H
#define FL_CONTROL_CONTROLLER_PARTS_H

#include "autodp/ledger.h"
#include "autodp/net/store.h"
#include "control/controller/inbox.h"
#include "control/controller/run.h"
#include "control/controller/shutdown.h"
#include "control/controller/signals.h"
#include "control/controller/spawn.h"
#include "control/controller/watch.h"
#include "control/elastic/decide.h"
#include "control/elastic/due_steps.h"
#include "control/elastic/elastic.h"
#include "control/elastic/learn.h"
#include "control/elastic/measure.h"
#include "control/elastic/mfu.h"
#include "control/elastic/stragglers.h"
#include "control/elastic/tune.h"
#include "control/events/event_log.h"
#include "control/events/progress.h"
#include "control/events/record.h"
#include "control/events/runfiles.h"
#include "control/link/step_order.h"
#include "control/observe/flight_dump.h"
#include "control/observe/metrics_publish.h"
#include "control/observe/trace.h"
#include "control/observe/tracer.h"
#include "control/observe/wait_graph.h"
#include "control/socket/ctl_socket.h"
#include "control/state/cache_sums.h"
#include "control/state/phase.h"
#include "control/state/run_stats.h"
#include "pipe/plan/learn.h"
#include "pipe/plan/worker_pool.h"

typedef struct fl_controller fl_controller;

struct fl_controller {
    const fl_controller_options *options; /* own_options, with the job below */
    fl_controller_options own_options;
    fl_job job;   /* as it is by now: some fields can be set while the run goes on */
    fl_plan plan; /* of the generation that runs */
    fl_due_steps due;
    uint32_t generation_before;
    fl_elastic elastic;
    fl_decide decide;
    fl_measure measure;
    fl_tune tune;
    fl_tune_sums tune_sums;
    fl_learn learn;
    fl_worker_pool usable;      /* workers that may have work */
    bool pinned[FL_MAX_LAYERS]; /* element i: block i + 1 is never to be frozen */
    int n_workers;
    fl_worker *workers;           /* [n_workers] */
    fl_flight *flight;            /* what the workers do and did last */
    fl_wait_graph_worker *survey; /* [n_workers] */
    fl_time_sums *times;          /* [n_workers], since the last epoch.finished */
    fl_time_sums *all_times;      /* [n_workers], since the run began */
    int64_t times_us;             /* since when they are summed; 0: nobody trains yet */
    fl_cache_sums cache;
    fl_controller_state state;
    fl_watch_limits limits;
    fl_signals signals;
    fl_runfiles files;
    fl_step_order reports; /* of steps, on their way to the statistics and to steps.jsonl */
    fl_run_stats stats;
    int64_t n_unreported; /* steps that a worker reported to nobody before it was lost */
    fl_progress progress;
    fl_store *store;
    fl_ledger *ledger;
    fl_record record;
    void *zmq, *socket;
    fl_ctl *ctl;
    fl_metrics_desk *metrics; /* NULL: nobody asked for them */
    const char *telling;      /* the event at hand */
    int64_t *ids;             /* [ids_capacity] of the ledger frame at hand */
    size_t ids_capacity;
    int64_t looked_us;           /* when the loop last came round */
    int64_t alive_us;            /* when workers were last told that the controller lives */
    int64_t deadline_us;         /* of FINISHING and ENDING: then SIGKILL */
    int64_t moved_sum, moved_us; /* steps of all workers, and when that last changed */
    int64_t told_stall_us;       /* when a run that does not move was last mentioned */
    int n_stops;                 /* signals of the user */
    fl_survived_loss spared;
    fl_loss_kind loss; /* that ends the run */
    int lost;          /* rank; -1: nobody */
    int64_t lost_us;
    fl_status status;
    struct fl_stragglers *stragglers;
    struct fl_tracer *tracer;         /* NULL: no trace was ever asked for */
    char waits[FL_FLIGHT_DUMP_BYTES]; /* who waited for whom when a worker was lost */
    char message[4096];               /* why the run ended */
    char ledger_text[256];
};

#endif
