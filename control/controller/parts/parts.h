/* The parts that make up the controller of one run. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_PARTS_H
#define FL_CONTROL_CONTROLLER_PARTS_PARTS_H

#include "control/agent/client/agent_client.h"
#include "control/agent/process/signals.h"
#include "control/checkpoint/checkpoints.h"
#include "control/checkpoint/snapshots.h"
#include "control/controller/judge/standstill.h"
#include "control/controller/parts/host_pairs_state.h"
#include "control/controller/parts/host_watch_state.h"
#include "control/controller/parts/inbox_state.h"
#include "control/controller/parts/joining_state.h"
#include "control/controller/parts/pass.h"
#include "control/controller/parts/recovery_state.h"
#include "control/controller/parts/replan_state.h"
#include "control/controller/parts/run_ledger.h"
#include "control/controller/parts/shutdown_state.h"
#include "control/controller/parts/silence_state.h"
#include "control/controller/parts/stop_answer_state.h"
#include "control/elastic/elastic.h"
#include "control/events/log/record.h"
#include "control/link/step_order.h"
#include "control/observe/flight_dump.h"
#include "control/observe/metrics/metrics_publish.h"
#include "control/observe/trace/tracer.h"
#include "control/socket/ctl_socket.h"
#include "control/state/options.h"
#include "control/state/run_view.h"

typedef struct fl_controller fl_controller;

struct fl_controller {
    const fl_controller_options *options; /* own_options, with the job below */
    fl_controller_options own_options;
    fl_job job;         /* the current job: some fields can be set while the run goes on */
    fl_run_facts facts; /* what the controller's parts read */
    fl_run_view view;   /* what reports read */
    fl_signals signals;
    bool opened; /* all parts, and the workers are ready */
    fl_shutdown shutdown;
    fl_recovery recovery;
    fl_router router;
    int64_t n_dropped[FL_INBOX_DROPS]; /* messages, by the reason */
    fl_store *store;
    int n_workers;
    fl_worker *workers;         /* [n_workers] */
    fl_agent *agent;            /* the parent of the workers' processes */
    fl_joining_worker *joining; /* [n_workers] */
    fl_survived_loss *spared;   /* [n_workers] */
    fl_host_watch hosts;
    fl_host_pairs host_pairs;
    fl_replan replan;
    fl_standstill_watch standstill;
    fl_silence silence;
    fl_flight *flight;     /* current and latest operations of the workers */
    fl_step_order reports; /* step reports, before they go to the statistics and to steps.jsonl */
    fl_run_stats stats;
    fl_hashes_report saved; /* by other hosts, in the model's file; n 0: none were reported */
    fl_stop_answer stop_answer;
    fl_run_times times;
    fl_cache_sums cache;
    int64_t n_stragglers_before; /* of the controllers before this one */
    fl_comm_report comm;         /* of the running generation; no pairs: no report has come */
    fl_run_ledger ledger;
    fl_event_log log;
    fl_record record;
    fl_flight_dump flight_dump;
    fl_tracer *tracer;
    fl_metrics_publisher *metrics; /* NULL: not requested */
    fl_elastic elastic;
    fl_pass pass; /* instead of training */
    fl_checkpoints checkpoints;
    fl_snapshots snapshots;
    fl_ctl *ctl;
};

#endif
