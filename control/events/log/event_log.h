/* The events of a run: lines of events.jsonl, which a listener also receives; some also make a line
 * for the terminal. Each function only reads what it reports.
 *
 * The events of transitions, decisions and tuning are in elastic/elastic_events.h. */
#ifndef FL_CONTROL_EVENTS_LOG_EVENT_LOG_H
#define FL_CONTROL_EVENTS_LOG_EVENT_LOG_H

#include "control/events/fields.h"
#include "control/events/progress.h"
#include "control/events/resume_files.h"
#include "control/events/runfiles.h"
#include "control/state/run_facts.h"
#include "control/state/sums/cache_sums.h"
#include "control/state/sums/run_times.h"

#include <frostline/run.h>

/* An event was written. `line` is its line, with the newline. */
typedef void fl_event_listener(void *context, const char *event, const fl_json *line);

typedef struct fl_event_log {
    fl_runfiles files;
    fl_progress progress;
    const fl_plan *plan;         /* its generation goes into each event */
    const fl_hosts *hosts;       /* of the run: events of workers name theirs; NULL: one host */
    const char *event;           /* the name of the event being written */
    fl_event_listener *listener; /* NULL: none */
    void *context;
} fl_event_log;

/* Create the files of the run. plan: always that of the running generation. */
fl_status fl_event_log_open(fl_event_log *log, int dir_fd, FILE *terminal,
                            const fl_plan *plan) FL_MUST_CHECK;

/* The same for a run that continues at `place`: its files wait (fl_runfiles_reopen). */
fl_status fl_event_log_resume(fl_event_log *log, int dir_fd, FILE *terminal, const fl_plan *plan,
                              const fl_runfiles_place *place) FL_MUST_CHECK;
void fl_event_log_close(fl_event_log *log);
void fl_event_log_listen(fl_event_log *log, fl_event_listener *listener, void *context);

/* Start an event; the caller adds its fields and ends it. */
fl_json *fl_event_log_begin(fl_event_log *log, const char *event);

/* The same for something that happened at another moment. */
fl_json *fl_event_log_begin_at(fl_event_log *log, const char *event, const fl_run_moment *at);
void fl_event_log_end(fl_event_log *log);

/* ---- the start ---- */

/* At the moment at which the clock of the run began: also of a run that begins again.
 * metrics_url  NULL: the run has no metrics */
void fl_event_log_started(fl_event_log *log, const fl_run_facts *run, const char *metrics_url);

/* The run continues from run->options->origin. */
void fl_event_log_resumed(fl_event_log *log, const fl_run_facts *run, const char *metrics_url);
void fl_event_log_costs(fl_event_log *log, const fl_costs_origin *origin);
void fl_event_log_plan(fl_event_log *log, const fl_run_facts *run, const fl_mfu *mfu);
void fl_event_log_cache_opened(fl_event_log *log, const fl_controller_options *options);
void fl_event_log_ready(fl_event_log *log, const fl_worker *worker);
void fl_event_log_running(fl_event_log *log);

/* ---- while the run trains ---- */

void fl_event_log_epoch(fl_event_log *log, const fl_run_facts *run, const fl_run_times *times,
                        const fl_mfu *mfu);
void fl_event_log_evaluation(fl_event_log *log, const fl_run_stats *stats,
                             const fl_eval_report *eval);
/* How the workers of a generation exchange data. The fields alone are for status, too. */
void fl_event_log_comm(fl_event_log *log, const fl_comm_report *report);
void fl_fields_comm(fl_json *j, const fl_comm_report *report);

void fl_event_log_graphs(fl_event_log *log, int rank, const fl_graphs_report *report);
void fl_event_log_cache(fl_event_log *log, int rank, const fl_cache_report *report);
void fl_event_log_cache_tiers(fl_event_log *log, int rank, const fl_cache_tiers_report *report);
void fl_event_log_setting_done(fl_event_log *log, const fl_setting *setting,
                               const fl_setting_done_report *report);
/* The run ends after stats->n_steps steps for lack of improvement. */
void fl_event_log_ending(fl_event_log *log, const fl_job *job, const fl_run_stats *stats);
void fl_event_log_left(fl_event_log *log, const fl_worker *worker);

/* seconds  since the last step
 * waits    which workers wait for which; "" if unknown
 * culprit  the worker that waits names first, for which others wait while it waits for nobody; -1
 * if no worker is so */
void fl_event_log_stalled(fl_event_log *log, const fl_run_facts *run, double seconds,
                          const char *waits, int culprit);

/* A step was not finite.
 * model  NULL: layers are named by their number alone
 * text   what is known, in sentences */
void fl_event_log_nonfinite(fl_event_log *log, const fl_nonfinite_report *report,
                            const fl_model *model, const char *text);

/* ---- the end ---- */

/* Why a worker is started again. */
typedef enum fl_restart_why {
    FL_RESTART_LOST,      /* it was lost */
    FL_RESTART_REQUESTED, /* a request wants it */
    FL_RESTART_HOST,      /* its host has joined again */
} fl_restart_why;

/* A worker is started again after this many steps of the run; where it was lost, for the n-th of
 * `most` times. */
void fl_event_log_restarted(fl_event_log *log, int rank, int64_t step, int n, int most,
                            fl_restart_why why);

/* The first process of a worker beyond those that the run began with: a request wants it, or its
 * host is new. */
void fl_event_log_grown(fl_event_log *log, int rank, bool by_host);

/* The worker that was started is a member from `step` on. */
void fl_event_log_joined(fl_event_log *log, const fl_worker *worker, int64_t step);

/* The agent was lost, and its workers with it; the run ends. */
void fl_event_log_agent_lost(fl_event_log *log, const char *text);

/* How a worker was lost. */
typedef struct fl_worker_loss {
    fl_loss_kind kind;
    const char *how;  /* from fl_watch_kind_text */
    int64_t step;     /* finished steps of the run then */
    const char *text; /* what happened to the worker, as a sentence */
} fl_worker_loss;

/* A worker was lost.
 * back  whether the run goes back for it, and where to */
void fl_event_log_lost(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss,
                       const char *waits, const fl_return_choice *back);
void fl_event_log_survived(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss);

/* The same without the line for the terminal: that of the recovery follows. */
void fl_event_log_missing(fl_event_log *log, const fl_worker *worker, const fl_worker_loss *loss);

/* The workers that were left have regrouped.
 * why         what happened, as a sentence
 * step        finished steps, from which they go on
 * detect_us   from the fault, or the last sign of life, until the loss was known
 * collect_us  until all had reported where they stand; move_us: from then until all had switched
 * no_moments  [n_no_moments] names of frozen layers whose parked moments are lost */
typedef struct fl_recovered {
    const char *why;
    int64_t step;
    int64_t detect_us, collect_us, move_us;
    const char *const *no_moments;
    int n_no_moments;
} fl_recovered;
void fl_event_log_recovered(fl_event_log *log, const fl_recovered *recovered,
                            const fl_recovery_sums *sums, const fl_plan *plan);

/* A run that had gone back to the state after `step` steps trains again. */
void fl_event_log_returned(fl_event_log *log, int64_t step, const fl_recovery_sums *sums);
void fl_event_log_stopping(fl_event_log *log, const char *why, int64_t steps);
/* A run that is to stop does not wait for its workers, which open connections. calls: which are in
 * which call; "": not known */
void fl_event_log_opening_ended(fl_event_log *log, double seconds, const char *calls);

/* All processes of a run end that goes back, after `steps` steps; another controller follows.
 * why  the loss, as a sentence */
void fl_event_log_returning(fl_event_log *log, const char *why, int64_t steps,
                            const fl_return_choice *back);

/* The trained weights are on the disk, in the run directory. */
void fl_event_log_model(fl_event_log *log, int n_tensors, int64_t size_bytes);

/* message  why the run failed
 * ledger   what the ledger proves
 * missing  what the record of the run lacks; "" if nothing */
void fl_event_log_over(fl_event_log *log, fl_status status, const char *message,
                       const fl_run_result *result, const fl_recovery_sums *losses,
                       const char *ledger, const char *missing);

#endif
