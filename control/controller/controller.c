/* From the fork to the last exit. The order of opening matters: what can be wrong with the run
 * directory comes first, then the forks, and only then what makes threads. */
#include "control/controller/run.h"

#include "control/controller/parts.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/failure.h"
#include "device/log.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

enum { TURN_MS = 100 };

static fl_status open_tables(fl_controller *controller)
{
    const fl_job *job = controller->options->job;
    size_t n = (size_t)controller->n_workers;
    FL_TRY(fl_alloc_array(n, sizeof *controller->workers, (void **)&controller->workers));
    FL_TRY(fl_alloc_array(n, sizeof *controller->times, (void **)&controller->times));
    FL_TRY(fl_alloc_array(n, sizeof *controller->all_times, (void **)&controller->all_times));
    /* The records of a step, for which there will be memory then, too. */
    FL_TRY(fl_alloc_array((size_t)job->train.batch, sizeof *controller->ids,
                          (void **)&controller->ids));
    controller->ids_capacity = (size_t)job->train.batch;
    FL_TRY(fl_store_create(&controller->store));
    FL_TRY(fl_flight_create(controller->n_workers, &controller->flight));
    FL_TRY(fl_alloc_array(n, sizeof *controller->survey, (void **)&controller->survey));
    FL_TRY(fl_stragglers_open(controller));
    FL_TRY(fl_decide_open(controller));
    FL_TRY(fl_learn_open(controller));
    controller->limits = fl_watch_limits_of(job->fault.detect_ms, job->fault.deadline_ms);
    fl_run_stats_init(&controller->stats, controller->options->n_samples, job->train.batch,
                      controller->options->n_steps, controller->options->n_epochs,
                      job->train.evaluate);
    controller->due = (fl_due_steps){.job = &controller->job,
                                     .steps_per_epoch = controller->stats.steps_per_epoch,
                                     .n_steps = controller->options->n_steps,
                                     .lead = controller->options->lead};
    fl_progress_init(&controller->progress, stdout, &controller->plan);
    return FL_OK;
}

static fl_status open_files(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    FL_TRY(fl_runfiles_open(&controller->files, o->dir_fd));
    return fl_ledger_create(o->dir_fd, o->n_samples, o->job->train.seed, &controller->ledger);
}

static fl_status open_all(fl_controller *controller)
{
    char endpoint[64];
    FL_TRY(open_tables(controller));
    FL_TRY(open_files(controller));
    fl_inbox_endpoint(controller->options->dir_fd, endpoint, sizeof endpoint);
    FL_TRY(fl_spawn_workers(controller->options, &controller->signals, endpoint, controller->flight,
                            controller->workers));
    fl_status status = fl_signals_open(&controller->signals);
    if (status == FL_OK) {
        status = fl_inbox_open(controller);
    }
    if (status == FL_OK) {
        status = fl_ctl_open(controller);
    }
    if (status == FL_OK) {
        status = fl_metrics_open(controller);
    }
    if (status != FL_OK) {
        fl_spawn_kill(controller->workers, controller->n_workers);
    }
    return status;
}

static void close_all(fl_controller *controller)
{
    fl_metrics_close(controller);
    fl_ctl_close(controller);
    fl_inbox_close(controller);
    fl_status closed = fl_ledger_close(&controller->ledger); /* the record tells of a failure */
    (void)closed;
    fl_store_destroy(&controller->store);
    fl_runfiles_close(&controller->files);
    fl_signals_restore(&controller->signals);
    fl_trace_close(controller);
    fl_stragglers_close(controller);
    fl_flight_destroy(&controller->flight);
    fl_free(controller->survey);
    fl_free(controller->workers);
    fl_free(controller->times);
    fl_free(controller->all_times);
    fl_free(controller->ids);
    fl_decide_close(controller);
    fl_learn_close(controller);
    fl_step_order_fini(&controller->reports);
}

static void run_loop(fl_controller *controller)
{
    controller->looked_us = controller->moved_us = controller->told_stall_us = fl_now_us();
    while (controller->state != FL_CONTROLLER_OVER) {
        zmq_pollitem_t items[2 + FL_CTL_POLL_MAX] = {{controller->socket, 0, ZMQ_POLLIN, 0},
                                                     {NULL, controller->signals.fd, ZMQ_POLLIN, 0}};
        int turn_ms = fl_ctl_turn_ms(controller, fl_trace_turn_ms(controller, TURN_MS));
        zmq_poll(items, 2 + fl_ctl_poll(controller, items + 2), turn_ms);
        fl_inbox_read(controller);
        fl_shutdown_signals(controller);
        if (controller->state != FL_CONTROLLER_OVER) {
            fl_shutdown_watch(controller, fl_now_us());
            fl_elastic_watch(controller, fl_now_us());
        }
        fl_trace_watch(controller);
        fl_ctl_watch(controller);
        fl_metrics_watch(controller);
        fl_record_watch(controller, fl_now_us());
        fl_progress_update(&controller->progress, &controller->stats);
    }
    fl_inbox_read(controller); /* what a worker sent before it left */
    if (fl_run_stats_epoch_over(&controller->stats, true)) {
        fl_event_log_epoch(controller);
    }
    fl_progress_hide(&controller->progress);
}

/* Everybody left: what does that make of the run? */
static void conclude(fl_controller *controller)
{
    bool complete = controller->stats.steps >= controller->options->n_steps;
    bool asked =
        controller->n_stops > 0 || controller->stats.n_steps < controller->options->n_steps;
    if (controller->status == FL_OK && asked && !complete) {
        controller->status = FL_ESTOPPED;
    }
    if (controller->status == FL_OK || controller->status == FL_ESTOPPED) {
        fl_status proof = fl_shutdown_prove(controller);
        if (proof != FL_OK && controller->n_stops < 2) {
            /* Workers ran, so no other status may be told than those for this. */
            controller->status = proof == FL_EINTERNAL ? proof : FL_EFAILED;
            snprintf(controller->message, sizeof controller->message, "%s%s",
                     proof == FL_EINTERNAL ? "" : "the ledger could not be proved: ", fl_errmsg());
        }
    }
    fl_record_watch(controller, fl_now_us());
    if (controller->lost >= 0) {
        fl_shutdown_explain(controller);
    }
    if (controller->status == FL_ESTOPPED) {
        snprintf(controller->message, sizeof controller->message,
                 "stopped by the user after %" PRId64 " of %" PRId64 " steps",
                 controller->stats.steps, controller->options->n_steps);
    }
}

static void fill_result(const fl_controller *controller, fl_run_result *result)
{
    *result =
        (fl_run_result){.K = controller->plan.K, .R = controller->plan.R, .M = controller->plan.M};
    fl_run_stats_result(&controller->stats, result);
    result->wall_seconds = (double)(fl_now_us() - controller->files.start_us) * 1e-6;
    snprintf(result->run_dir, sizeof result->run_dir, "%s", controller->options->run_dir);
}

/* As whoever has started the run would write it. */
static const char *from_here(const char *path)
{
    char here[PATH_MAX];
    size_t n = getcwd(here, sizeof here) == NULL ? 0 : strlen(here);
    bool below = n > 0 && strncmp(path, here, n) == 0 && path[n] == '/';
    return below ? path + n + 1 : path;
}

/* Into summary.txt, for whoever reads it later, from anywhere. */
static void write_summary(fl_controller *controller, const fl_controller_options *options,
                          const fl_run_result *result, const fl_progress_end *end)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *file = open_memstream(&text, &size_bytes);
    if (file == NULL) {
        fl_log(FL_LOG_WARN, "summary.txt: out of memory");
        return;
    }
    fl_progress_summary(file, options, result, end);
    if (fclose(file) == 0) {
        fl_runfiles_summary(&controller->files, text, size_bytes);
    }
    free(text);
}

/* In the run directory, and at the end of the output unless the run failed: the message of a
 * failure is the end of the output then. */
static void summarize(fl_controller *controller, const fl_run_result *result, const char *missing)
{
    bool good = controller->status == FL_OK || controller->status == FL_ESTOPPED;
    char tuning[128];
    fl_controller_options at_the_end = *controller->options;
    fl_progress_end end = {.status = controller->status,
                           .message = good ? "" : controller->message,
                           .ledger = controller->ledger_text,
                           .missing = missing,
                           .tuning = fl_tune_summary(controller, tuning, sizeof tuning)};
    at_the_end.plan = &controller->plan;
    write_summary(controller, &at_the_end, result, &end);
    if (good) {
        at_the_end.run_dir = from_here(controller->options->run_dir);
        fl_progress_summary(stdout, &at_the_end, result, &end);
    }
}

/* As the job says; a step that the run does not have is not worth ending it. */
static void trace_as_asked(fl_controller *controller)
{
    int64_t first_step = controller->options->job->trace.start;
    int64_t n_steps = controller->options->job->trace.steps;
    if (n_steps > 0 && fl_trace_request(controller, &first_step, n_steps) != FL_OK) {
        fl_log(FL_LOG_WARN, "no trace: %s", fl_errmsg());
    }
}

static fl_status run(fl_controller *controller, fl_run_result *result)
{
    char missing[1024];
    fl_status status = open_all(controller);
    if (status != FL_OK) {
        return status;
    }
    fl_event_log_started(controller);
    fl_event_log_costs(controller);
    fl_event_log_plan(controller);
    fl_event_log_cache_opened(controller);
    trace_as_asked(controller);
    run_loop(controller);
    fl_learn_end(controller);
    conclude(controller);
    fill_result(controller, result);
    fl_record_missing(controller, missing, sizeof missing);
    fl_event_log_over(controller, result, missing);
    summarize(controller, result, missing);
    if (controller->status == FL_OK && missing[0] != 0) {
        return fl_fail(FL_EFAILED, "the run trained to its end, but its record is incomplete: %s",
                       missing);
    }
    return controller->status == FL_OK ? FL_OK
                                       : fl_fail(controller->status, "%s", controller->message);
}

fl_status fl_controller_run(const fl_controller_options *options, fl_run_result *result)
{
    fl_run_result own;
    fl_controller *controller = NULL;
    FL_TRY(fl_alloc(sizeof *controller, (void **)&controller));
    controller->job = *options->job;
    controller->own_options = *options;
    controller->own_options.job = &controller->job;
    controller->options = &controller->own_options;
    controller->plan = *options->plan;
    controller->n_workers = options->plan->n_workers;
    controller->lost = controller->spared.rank = -1;
    fl_runfiles_init(&controller->files);
    fl_signals_block(&controller->signals);
    fl_status status = run(controller, result != NULL ? result : &own);
    fl_failure failure; /* closing may fail as well, for the same reason */
    fl_failure_keep(&failure, status);
    close_all(controller);
    fl_free(controller);
    return fl_failure_raise(&failure);
}
