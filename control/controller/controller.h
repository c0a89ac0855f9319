/* What the controller holds while a run goes on: shared by the files that make up the controller,
 * and by nobody else.
 *
 *     head.c      from the fork to the last exit: opening, the loop, closing
 *     inbox.c     what workers send, and what is sent to them
 *     ctl_*.c     what clients ask for over the control socket; ctl.h tells of them
 *     shutdown.c    a lost worker, the user's stop, and how a run is ended
 *     elastic.c   transitions, from PREPARE to the last worker that has gone over
 *     decide.c    what to freeze, and which plan to run then
 *     stragglers.c  who is slow by its own computing
 *     trace.c     the operations of some steps, as a file
 *     metrics_publish.c  what is told to monitoring
 *     flight_dump.c    what the workers' flight recorders show
 *     tune.c      trying other M on live steps
 *     learn.c     what the run teaches the profile
 *     mfu.c       how well the devices are used
 *     event_log.c     the events of events.jsonl; event_log_elastic.c those of transitions,
 *                 event_log_cache.c those of the cache */
#ifndef FL_CONTROL_CONTROLLER_CONTROLLER_H
#define FL_CONTROL_CONTROLLER_CONTROLLER_H

#include "autodp/ledger.h"
#include "autodp/net/store.h"
#include "control/controller/run.h"
#include "control/controller/run_stats.h"
#include "control/controller/signals.h"
#include "control/controller/spawn.h"
#include "control/controller/watch.h"
#include "control/controller/worker_pool.h"
#include "control/events/progress.h"
#include "control/events/runfiles.h"
#include "control/observe/trace.h"
#include "control/observe/wait_graph.h"
#include "freeze/norms.h"
#include "pipe/plan/cache_warmup.h"
#include "pipe/plan/learn.h"
#include "pipe/plan/tuner.h"

#include <zmq.h>

enum { FL_FLIGHT_DUMP_BYTES = 1024 };

typedef enum fl_controller_state {
    FL_CONTROLLER_STARTING,  /* until every worker is ready */
    FL_CONTROLLER_RUNNING,   /* until every worker is done */
    FL_CONTROLLER_FINISHING, /* until every worker has left */
    FL_CONTROLLER_ENDING,    /* something was lost: ABORT is out, SIGKILL follows */
    FL_CONTROLLER_OVER,      /* nobody lives */
} fl_controller_state;

/* The transition under way, if any. */
typedef enum fl_elastic_state {
    FL_ELASTIC_IDLE,
    FL_ELASTIC_PREPARING,  /* workers open the next generation beside the one that runs */
    FL_ELASTIC_COMMITTING, /* all are ready: they vote and go over at the next control point */
} fl_elastic_state;

/* How the last transition ended that was prepared. */
typedef struct fl_elastic_outcome {
    uint32_t generation; /* that was asked for; 0: it was refused before it had a number */
    bool committed;      /* false: the generation before goes on */
    int64_t step;        /* committed: its first; else the steps that were done by then */
    char why[FL_WIRE_REFUSAL_MAX + 64]; /* committed: what it was for; else why not */
} fl_elastic_outcome;

/* Over the whole run. */
typedef struct fl_elastic_sums {
    int64_t n_committed, n_cancelled; /* transitions */
    int64_t stall_us, last_stall_us;
    int64_t moved_bytes;
} fl_elastic_sums;

typedef struct fl_elastic {
    fl_elastic_state state;
    fl_elastic_outcome outcome;
    fl_elastic_sums sums;
    int n_scripted;        /* entries of the job's script already acted on */
    uint32_t policy_asked; /* generation: the last one for the freeze policy */
    int64_t due_step; /* of elastic.script: the transition is not committed before it; 0: none */
    uint32_t last_asked, last_forgotten; /* generations: asked for, dropped from the store */
    fl_plan before, next;
    char why[512];
    double old_step_ms;             /* mean of the steps before the transition */
    double predicted_ms;            /* of a step after it, with what the running plan taught */
    int64_t deadline_us;            /* of preparing, or of committing */
    int n_ready, n_refused, n_over; /* workers */
    fl_status refusal;              /* the one that says most */
    char refusal_text[FL_WIRE_REFUSAL_MAX + 64];
    int64_t opinion_us; /* until when others may say more of it */
    /* the longest of any worker */
    int64_t prepare_us, wait_us, vote_us, migrate_us, switch_us, stall_us;
    int64_t moved_bytes, kept_bytes;
    int64_t first_step; /* of the generation */
} fl_elastic;

enum { FL_DECIDE_OPTIONS = 3 };

/* One way to run F' blocks frozen. */
typedef struct fl_decide_option {
    const char *name; /* "keep", "rebalance", "repack" */
    fl_status status; /* FL_OK, or why it cannot be */
    char why_not[256];
    fl_plan plan;
    double step_ms; /* predicted, corrected by the live ratio */
    double cost_ms; /* of the transition: training stands still */
    int64_t move_bytes;
} fl_decide_option;

/* A decision as it was taken, for its events. */
typedef struct fl_decision {
    int64_t step; /* steps done */
    int F, wanted;
    char why[256];         /* the policy's */
    int64_t left;          /* steps */
    double ratio;          /* measured step time of the running plan by predicted */
    double stay_ms;        /* predicted step time if nothing were frozen */
    int n_options, chosen; /* chosen -1: none can be */
    fl_decide_option option[FL_DECIDE_OPTIONS];
    char choice_why[512];
} fl_decision;

typedef struct fl_decide {
    fl_norms norms;
    int64_t heard;   /* steps whose norms have come */
    int64_t due_at;  /* a decision is to be taken, after so many steps; -1: none */
    bool started;    /* a decision before the first step has been looked for */
    int *parked;     /* [n_layers] who keeps a frozen layer's moments */
    double fixed_ms; /* what a transition takes beside moving bytes */
    fl_cache_warmup warming;
    bool measuring; /* the generation at work is new: its step time is still to be told */
    fl_decision decision;
} fl_decide;

/* Other M being tried for the plan's F, K and R. */
typedef struct fl_tune {
    int F, K, R;
    uint32_t runs;  /* the generation that is, or shall be, measured; 0: none yet */
    uint32_t asked; /* the newest generation that tuning asked for */
    bool running, over;
    int n_trials;
    fl_tune_trial trials[FL_TUNE_TRIALS_MAX + 1];
} fl_tune;

enum { FL_LEARN_STEPS = 64 };

/* The newest steps of one worker in this generation. */
typedef struct fl_learn_worker {
    int64_t n; /* ever */
    double compute_us[FL_LEARN_STEPS];
} fl_learn_worker;

typedef struct fl_learn {
    uint32_t generation; /* that is gathered */
    fl_learn_worker *of; /* [n_workers]; NULL: nothing is learned */
} fl_learn;

/* What workers have told of the cache since the run began. */
typedef struct fl_cache_sums {
    int f;                                /* frozen blocks, as the newest report has it */
    bool on;                              /* whether it was used by then */
    int64_t n_hits, n_upgrades, n_misses; /* samples */
} fl_cache_sums;

/* What a step asks for, what the devices that train could do, and which share of it they do. NAN:
 * unknown. */
typedef struct fl_mfu {
    double step_flops; /* operations of one step */
    double peak_flops; /* operations a second */
    double share;
} fl_mfu;

/* The worker that was lost last and that the run goes on without. */
typedef struct fl_survived_loss {
    int rank; /* -1: none */
    fl_loss_kind kind;
    int64_t lost_us;
    bool told;                         /* that the run goes on; a vote may still be out */
    char text[FL_WIRE_TEXT_MAX + 256]; /* what became of it */
} fl_survived_loss;

typedef struct fl_ctl fl_ctl;
typedef struct fl_metrics_desk fl_metrics_desk;

typedef struct fl_controller {
    const fl_controller_options *options; /* own_options, with the job below */
    fl_controller_options own_options;
    fl_job job;   /* as it is by now: some fields can be set while the run goes on */
    fl_plan plan; /* of the generation that runs */
    uint32_t generation_before;
    fl_elastic elastic;
    fl_decide decide;
    fl_tune tune;
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
    fl_run_stats stats;
    fl_progress progress;
    fl_store *store;
    fl_ledger *ledger;
    bool ledger_broken; /* warned of */
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
} fl_controller;

/* ---- inbox.c ---- */

/* Bind the ROUTER to RUN/link, readable by this user alone. */
fl_status fl_inbox_open(fl_controller *controller) FL_MUST_CHECK;
void fl_inbox_close(fl_controller *controller);

/* Where workers connect. Through the inherited descriptor of the run directory, since a socket's
 * path may have 107 bytes only and a run directory's may be longer. */
void fl_inbox_endpoint(int dir_fd, char *text, size_t size_bytes);

/* Remove the socket's file: everybody has connected, and nothing is left when the controller is
 * killed.
 */
void fl_inbox_hide(fl_controller *controller);

/* Handle all that has come, without waiting. */
void fl_inbox_read(fl_controller *controller);

/* Tell one worker; a worker without a link is passed over. */
void fl_inbox_tell(fl_controller *controller, int rank, const fl_wire_message *order);
void fl_inbox_tell_all(fl_controller *controller, const fl_wire_message *order);
fl_wire_message fl_inbox_order(const fl_controller *controller, fl_wire_type type);

/* ---- shutdown.c ---- */

/* Take what signals have come: exits of workers, the user's wish to stop. */
void fl_shutdown_signals(fl_controller *controller);

/* End the run after the step in flight, as a first Ctrl-C does; `who` asked for it. */
void fl_shutdown_stop(fl_controller *controller, const char *who);

/* Look for lost workers and passed deadlines, and go on to the next state when it is time. */
void fl_shutdown_watch(fl_controller *controller, int64_t now_us);

/* Write into message what was lost, from all that is known by now. */
void fl_shutdown_explain(fl_controller *controller);

/* Write what the ledger proves into ledger_text. FL_EINTERNAL if an epoch was not used once. */
fl_status fl_shutdown_prove(fl_controller *controller) FL_MUST_CHECK;

/* Send a command to the leader, and wake standby workers to hear it. */
void fl_inbox_command(fl_controller *controller, const fl_command *command);
void fl_inbox_wake_standby(fl_controller *controller);

/* ---- elastic.c ---- */

/* Begin, drive and end transitions; called every turn of the loop. */
void fl_elastic_watch(fl_controller *controller, int64_t now_us);

/* Begin a transition to `next`, which gets a generation and its places (fl_decide_place) here and
 * is committed at the first control point from step due_step on (0: as soon as all are ready). How
 * it ends is then in controller->elastic.outcome, under the generation that
 * controller->elastic.next has on return. Returns FL_EBUSY while another is under way, while
 * elastic.script is about to ask for one, and when the run starts or ends; FL_EINVAL for what is no
 * plan of this run; FL_EBUDGET with the numbers when a worker has no room for it. The message says
 * which. Threads: the controller's. */
fl_status fl_elastic_ask(fl_controller *controller, const fl_plan *next, int64_t due_step,
                         const char *why) FL_MUST_CHECK;

/* Worker `rank` is lost and the run goes on without it: no later plan counts on it, and what is
 * being prepared is cancelled. */
void fl_elastic_without(fl_controller *controller, int rank, const char *why);

/* Whether the plan that is being voted for, or gone over to, has a stage for this worker. */
bool fl_elastic_counts_on(const fl_controller *controller, int rank);

void fl_elastic_prepared(fl_controller *controller, const fl_worker *worker,
                         const fl_prepared_report *report);
void fl_elastic_moved(fl_controller *controller, fl_worker *worker,
                      const fl_transition_parts *parts);

/* ---- decide.c ---- */

fl_status fl_decide_open(fl_controller *controller) FL_MUST_CHECK;
void fl_decide_close(fl_controller *controller);

/* Norms of a step have come. */
void fl_decide_norms(fl_controller *controller, const fl_wire_norms *norms);

/* Take the decision that is due, if any. True when *next is to be gone over to; why [size_bytes].
 */
bool fl_decide_next(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes);

/* Give the places of a plan that follows the running one to the workers that have most of what
 * belongs there. */
void fl_decide_place(const fl_controller *controller, fl_plan *next);

/* The best plan with F blocks frozen because somebody wants it so, as it would be chosen for a
 * policy; it is told as an event. Returns FL_EBUDGET and others, with why there is none. */
fl_status fl_decide_by_hand(fl_controller *controller, int F, const char *why,
                            fl_plan *next) FL_MUST_CHECK;

/* Whether a worker keeps moments of frozen layers, for a thaw. */
bool fl_decide_keeps(const fl_controller *controller, int rank);

/* Whether every worker has room for `next` when the running plan gives way to it: FL_EBUDGET with
 * the numbers if not. */
fl_status fl_decide_check_room(const fl_controller *controller, const fl_plan *next) FL_MUST_CHECK;

/* Mean step time, ms, of the generation at work over its last 100 steps; 0 before it has any. */
double fl_decide_step_ms(const fl_controller *controller);

/* Measured by predicted step time of the running plan; 1 before it has been measured. */
double fl_decide_ratio(const fl_controller *controller);

/* The next steps of `plan` as predicted, ms each, corrected by what the running plan measures. */
double fl_decide_predict_ms(const fl_controller *controller, const fl_plan *plan);

/* The controller's plan becomes elastic.next; called before it does, and when the transition is
 * over. */
void fl_decide_switching(fl_controller *controller);
void fl_decide_switched(fl_controller *controller);

/* Tell how fast the generation at work is, once it has run for long enough (or is about to end). */
void fl_decide_measure(fl_controller *controller, bool ending);

/* ---- ctl_socket.c, ctl_setting.c ---- */

/* Bind control.sock and events.sock in the run directory, for this user alone. */
fl_status fl_ctl_open(fl_controller *controller) FL_MUST_CHECK;
void fl_ctl_close(fl_controller *controller);

/* Answer what has come, without waiting; called every turn of the loop. */
void fl_ctl_watch(fl_controller *controller);

/* What the loop's poll listens to: items out; returns how many. */
enum { FL_CTL_POLL_MAX = 3 };
int fl_ctl_poll(const fl_controller *controller, zmq_pollitem_t items[FL_CTL_POLL_MAX]);

/* The longest that the loop may sleep, at most turn_ms: requests may be waiting for their turn. */
int fl_ctl_turn_ms(const fl_controller *controller, int turn_ms);

/* The event's line stands in files.event. */
void fl_ctl_publish(fl_controller *controller, const char *event);

/* The workers have done what they were told. */
void fl_ctl_setting_done(fl_controller *controller, const fl_setting_done_report *report);
bool fl_ctl_paused(const fl_controller *controller);

/* What the control plane has done since the run began. */
typedef struct fl_ctl_counts {
    int64_t events;            /* published */
    int64_t dropped;           /* of these: some subscriber's queue was full */
    int64_t answered, refused; /* requests */
} fl_ctl_counts;
fl_ctl_counts fl_ctl_count(const fl_controller *controller);

/* As the status has them. */
const char *fl_ctl_state_text(const fl_controller *controller);
const char *fl_ctl_worker_state(const fl_worker *worker);

/* ---- metrics_publish.c ---- */

/* Answer on the listener of the options, if there is one. */
fl_status fl_metrics_open(fl_controller *controller) FL_MUST_CHECK;
void fl_metrics_close(fl_controller *controller);

/* Tell how things stand, now and then; called every turn of the loop. */
void fl_metrics_watch(fl_controller *controller);

/* Where they are; NULL: nowhere. */
const char *fl_metrics_url(const fl_controller *controller);

/* ---- flight_dump.c ---- */

/* Who waits for whom at this moment, as fl_wait_graph_explain says it; lost -1: nobody. */
const char *fl_flight_dump_explain(fl_controller *controller, int lost, char *text,
                                   size_t size_bytes);

/* The same, and the last operations of every thread of every worker, as fields "waits" and
 * "workers" of the object at hand. */
void fl_flight_dump_json(fl_controller *controller, fl_json *json);

/* That object as flight.json in the run directory; what goes wrong is only warned of. */
void fl_flight_dump_write(fl_controller *controller);

/* ---- tune.c ---- */

/* True when *next, which differs from the running plan in M alone, is to be gone over to; why
 * [size_bytes]. The caller tells the generation that was asked for. */
bool fl_tune_next_plan(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes);
void fl_tune_asked(fl_controller *controller, uint32_t generation);

/* Whether the transition at hand is tuning's. */
bool fl_tune_is_trial(const fl_controller *controller);

/* The running plan's M, or while others are tried the one that they are compared with. */
int fl_tune_own_m(const fl_controller *controller);

/* ---- learn.c ---- */

fl_status fl_learn_open(fl_controller *controller) FL_MUST_CHECK;
void fl_learn_close(fl_controller *controller);
void fl_learn_time(fl_controller *controller, int rank, uint32_t generation,
                   const fl_time_report *report);

/* Before the controller's plan changes, and when the run is over; after it has changed. */
void fl_learn_end(fl_controller *controller);
void fl_learn_begin(fl_controller *controller);

/* ---- trace.c ---- */

typedef struct fl_tracer fl_tracer;

/* Trace n_steps steps (1 .. FL_TRACE_STEPS_MAX) from *first_step on; -1: as soon as possible, and
 * out. Fewer if the run ends before. The outcome is told by the event trace.written or
 * trace.failed. Returns FL_EINVAL when one is under way already, or the step is behind or beyond
 * the run. */
fl_status fl_trace_request(fl_controller *controller, int64_t *first_step,
                           int64_t n_steps) FL_MUST_CHECK;

/* Where the trace that was asked for last is written: text [size_bytes] out. */
void fl_trace_file_name(const fl_controller *controller, char *text, size_t size_bytes);

/* Drain the recorders, and write the trace when it is complete; called every turn of the loop,
 * which is to come round after turn_ms at the latest. */
void fl_trace_watch(fl_controller *controller);
int fl_trace_turn_ms(const fl_controller *controller, int turn_ms);
void fl_trace_close(fl_controller *controller);

/* ---- stragglers.c ---- */

typedef struct fl_stragglers fl_stragglers;

fl_status fl_stragglers_open(fl_controller *controller) FL_MUST_CHECK;
void fl_stragglers_close(fl_controller *controller);

/* A worker tells of a step; every 50 steps all are compared, and who is slow by its own computing
 * is told by the event worker.slow, or worker.recovered. */
void fl_stragglers_add(fl_controller *controller, int rank, const fl_time_report *report);

/* The rank named last, -1: none. */
int fl_stragglers_named(const fl_controller *controller);

/* How often any was named. */
int64_t fl_stragglers_count(const fl_controller *controller);

/* ---- mfu.c ---- */

/* Of the plan that runs, by its steps so far. */
fl_mfu fl_mfu_now(const fl_controller *controller);

/* The same as fields "step_flops", "peak_flops" and "mfu"; null for what is unknown. */
void fl_mfu_tell(const fl_controller *controller, fl_json *json);

/* ---- event_log.c ---- */

fl_json *fl_event_log_begin(fl_controller *controller, const char *event);
void fl_event_log_end(fl_controller *controller);

void fl_event_log_prepare(fl_controller *controller);
void fl_event_log_cancel(fl_controller *controller, const char *why);
void fl_event_log_transition(fl_controller *controller);
void fl_event_log_measured(fl_controller *controller, double measured_ms, int64_t n_steps);
void fl_event_log_decided(fl_controller *controller);
void fl_event_log_considered(fl_controller *controller);
void fl_event_log_tried(fl_controller *controller, const fl_tune_trial *trial);
void fl_event_log_tuned(fl_controller *controller, const fl_tune_decision *decision);
void fl_event_log_learned(fl_controller *controller, const fl_live_stage *live,
                          const double *predicted_us);

void fl_event_log_cache_opened(fl_controller *controller);
/* Whether workers take from the cache what the plan's frozen blocks put out. */
bool fl_event_log_cache_is_used(const fl_controller *controller);
void fl_event_log_cache(fl_controller *controller, const fl_worker *worker,
                        const fl_cache_report *report);

void fl_event_log_started(fl_controller *controller);
void fl_event_log_costs(fl_controller *controller);
void fl_event_log_plan(fl_controller *controller);
void fl_event_log_ready(fl_controller *controller, const fl_worker *worker);
void fl_event_log_left(fl_controller *controller, const fl_worker *worker);
void fl_event_log_running(fl_controller *controller);
void fl_event_log_epoch(fl_controller *controller);
void fl_event_log_stopping(fl_controller *controller, const char *signal_name);
void fl_event_log_setting_done(fl_controller *controller, const fl_setting *setting,
                               const fl_setting_done_report *report);
void fl_event_log_stalled(fl_controller *controller, int64_t now_us);
void fl_event_log_lost(fl_controller *controller);
void fl_event_log_survived(fl_controller *controller);
void fl_event_log_over(fl_controller *controller, const fl_run_result *result);

#endif
