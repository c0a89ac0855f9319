/* The controller of one run: starting -> running -> finishing, from the fork of the workers to the
 * last one's exit. It never touches tensors.
 *
 *      workers ①  exit, heartbeat, reports ──> head ②  ──> steps.jsonl, events.jsonl, ledger ③
 *      signals ④  ──> head ──> command ⑤ to the leader, told on by the message group
 *      lost worker ⑥ ──> abort to all ──> deadline ──> SIGKILL ──> message, exit code 3 */
#ifndef FL_CONTROL_CONTROLLER_RUN_H
#define FL_CONTROL_CONTROLLER_RUN_H

#include "control/observe/metrics_http.h"
#include "pipe/plan/planner.h"
#include "pipe/step/activations.h"

#include <frostline/plan.h>
#include <frostline/run.h>

#include <sys/types.h>

/* What a forked worker does; returns its exit code. Called in the child. */
typedef int fl_worker_main(void *context, int rank, const char *endpoint);

/* Where the costs come from that plans are chosen by: for events.jsonl. */
typedef struct fl_costs_origin {
    const char *from;            /* "file" or "measured" */
    const char *path;            /* of the profile file; NULL: none is kept */
    const char *measured, *note; /* when; what was wrong with the file, or NULL */
    int64_t live_steps;
} fl_costs_origin;

typedef struct fl_controller_options {
    const fl_job *job;
    const fl_plan *plan;             /* of the first generation */
    const fl_plan_input *plan_input; /* from which it was chosen: later ones are, too */
    const fl_costs_origin *costs;    /* NULL: nothing is told of them */
    fl_profile *learned; /* out: the profile, corrected by live steps; NULL: not wanted */
    const fl_candidate *candidates; /* for events.jsonl */
    int n_candidates;
    const fl_activations *activations; /* NULL: nothing is cached; */
    const char *no_cache_why;          /* and why; may be NULL */
    fl_metrics_listener *metrics;      /* where they are asked for; NULL: nowhere */
    const char *run_dir;               /* absolute; exists */
    int dir_fd;
    int64_t n_samples, n_steps, n_epochs;
    fl_worker_main *worker;
    void *context;
} fl_controller_options;

/* Fork the workers, watch them to the end, write the run directory's files, show progress.
 * Returns as fl_run does. */
fl_status fl_controller_run(const fl_controller_options *options,
                            fl_run_result *result) FL_MUST_CHECK;

#endif
