/* Runs the controller from the start of the agent, which forks the workers, to the exit of the last
 * one. */
#include "control/controller/run.h"

#include "control/controller/controller_open.h"
#include "control/controller/course/inbox.h"
#include "control/controller/course/record_begin.h"
#include "control/controller/course/shutdown.h"
#include "control/controller/course/stop_answer.h"
#include "control/controller/course/stop_request.h"
#include "control/controller/faults/recovery.h"
#include "control/controller/members/far.h"
#include "control/controller/members/host_report.h"
#include "control/controller/members/host_watch.h"
#include "control/controller/members/joining.h"
#include "control/controller/members/replan.h"
#include "control/controller/parts/parts.h"
#include "control/controller/parts/pass.h"
#include "control/controller/report/lasting.h"
#include "control/controller/report/summary.h"
#include "control/controller/report/view.h"
#include "control/events/log/event_log_hosts.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "pipe/state/weights/model_file.h"

#include <stdio.h>
#include <zmq.h>

enum { TURN_MS = 100 };

static void wait_for_something(const fl_controller *controller)
{
    zmq_pollitem_t items[5 + FL_CTL_POLL_MAX] = {{controller->router.socket, 0, ZMQ_POLLIN, 0},
                                                 {NULL, controller->signals.fd, ZMQ_POLLIN, 0}};
    int n = 2 + fl_ctl_poll(controller->ctl, items + 2);
    if (controller->shutdown.phase.state != FL_CONTROLLER_OVER) {
        items[n++] = (zmq_pollitem_t){NULL, fl_agent_fd(controller->agent), ZMQ_POLLIN, 0};
    }
    if (fl_router_guard(&controller->router) != NULL) {
        items[n++] = (zmq_pollitem_t){fl_router_guard(&controller->router), 0, ZMQ_POLLIN, 0};
    }
    if (fl_pass_holds_lines(&controller->pass)) {
        items[n++] = (zmq_pollitem_t){NULL, controller->pass.o->out_fd, ZMQ_POLLOUT, 0};
    }
    zmq_poll(items, n,
             fl_ctl_turn_ms(controller->ctl, fl_tracer_turn_ms(controller->tracer, TURN_MS)));
}

/* Show how far the run has come, and write what the samples of a pass gave. */
static void watch_pass(fl_controller *controller)
{
    if (controller->pass.o == NULL) {
        fl_progress_update(&controller->log.progress, &controller->stats);
        return;
    }
    fl_status status = fl_pass_write(&controller->pass);
    if (status != FL_OK) {
        fl_shutdown_pass_failed(controller, status);
    }
    fl_pass_show(&controller->pass, &controller->log.progress);
}

/* The workers have left, but their lines still wait for the receiver. A signal gives them up. */
static bool owes_lines(const fl_controller *controller)
{
    const fl_shutdown *shutdown = &controller->shutdown;
    return fl_pass_holds_lines(&controller->pass) && shutdown->status == FL_OK &&
           shutdown->phase.n_stops == 0;
}

static void run_loop(fl_controller *controller)
{
    const fl_phase *phase = &controller->shutdown.phase;
    fl_shutdown_begin(&controller->shutdown, fl_now_us());
    while (phase->state != FL_CONTROLLER_OVER || owes_lines(controller)) {
        wait_for_something(controller);
        fl_router_watch(&controller->router);
        fl_inbox_read(controller);
        fl_stop_request_signals(controller);
        if (phase->state != FL_CONTROLLER_OVER) {
            fl_shutdown_watch(controller, fl_now_us());
            fl_host_watch_turn(controller, fl_now_us());
            fl_joining_watch(controller, fl_now_us());
            fl_replan_watch(controller, fl_now_us());
            bool paused = fl_ctl_paused(controller->ctl);
            fl_elastic_watch(&controller->elastic,
                             fl_checkpoints_awaited(&controller->checkpoints, paused), fl_now_us());
            fl_stop_answer_watch(controller);
            fl_checkpoints_watch(&controller->checkpoints, paused, fl_now_us());
            fl_snapshots_watch(&controller->snapshots, paused, fl_now_us());
        }
        fl_tracer_watch(controller->tracer);
        fl_ctl_watch(controller->ctl);
        fl__controller_tell_metrics(controller);
        fl_record_watch(&controller->record, phase->state == FL_CONTROLLER_OVER, fl_now_us());
        watch_pass(controller);
    }
    fl_inbox_read(controller); /* reads what a worker sent before it left */
    watch_pass(controller);
    fl_checkpoints_finish(&controller->checkpoints);
    fl_ctl_watch(controller->ctl); /* the answers that waited for the last checkpoint */
    if (fl_run_stats_epoch_over(&controller->stats, true)) {
        fl_inbox_end_epoch(controller);
    }
    fl_progress_hide(&controller->log.progress);
}

static void report_start(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    fl_run_stats *stats = &controller->stats;
    fl_mfu mfu = fl_mfu_now(&controller->elastic);
    if (o->resume == NULL) {
        fl_event_log_started(&controller->log, &controller->facts, fl_view_metrics_url(controller));
    }
    fl_host_report_gone(controller, fl_now_us());
    if (o->origin != NULL) {
        fl_event_log_resumed(&controller->log, &controller->facts, fl_view_metrics_url(controller));
    }
    if (stats->ended_early && stats->stop.end_step != stats->n_steps) {
        stats->stop.end_step = stats->n_steps;
        fl_event_log_ending(&controller->log, o->job, stats);
    }
    fl_event_log_costs(&controller->log, o->costs);
    fl_event_log_links(&controller->log, o);
    fl_event_log_plan(&controller->log, &controller->facts, &mfu);
    fl_event_log_cache_opened(&controller->log, o);
}

/* A run that was stopped before its first step has no weights to keep; one that has trained to its
 * end has. */
static void keep_model(fl_controller *controller, fl_run_result *result)
{
    fl_model_file *file = controller->options->model_file;
    fl_shutdown *shutdown = &controller->shutdown;
    bool ends = shutdown->status == FL_OK && !shutdown->phase.back.returns;
    bool stops = shutdown->status == FL_ESTOPPED;
    if (file == NULL || (!ends && !stops)) {
        return;
    }
    fl_status status = fl_far_note_layers(controller);
    if (stops && status == FL_OK && !fl_model_file_complete(file)) {
        return;
    }
    status = status == FL_OK ? fl_model_file_finish(file) : status;
    if (status != FL_OK) {
        shutdown->status = FL_EFAILED;
        snprintf(shutdown->message, sizeof shutdown->message, "the trained weights: %s",
                 fl_errmsg());
        return;
    }
    snprintf(result->model, sizeof result->model, "%s/%s/%s", controller->options->run_dir,
             FL_MODEL_FOLDER, FL_MODEL_FILE);
    fl_event_log_model(&controller->log, file->layout.n, file->layout.total_bytes);
}

/* A checkpoint after the last step of an epoch was captured before the epoch was reported. */
static void finish_epoch(fl_controller *controller)
{
    if (controller->options->resume != NULL && fl_run_stats_epoch_over(&controller->stats, false)) {
        fl_inbox_end_epoch(controller);
    }
}

/* What others hear last of these processes. */
static void report_end(fl_controller *controller, const fl_run_result *result, const char *missing)
{
    const fl_shutdown *shutdown = &controller->shutdown;
    if (shutdown->phase.back.returns) {
        fl_event_log_returning(&controller->log, controller->recovery.sums.why,
                               controller->stats.steps, &shutdown->phase.back);
    } else {
        fl_event_log_over(&controller->log, shutdown->status, shutdown->message, result,
                          &controller->recovery.sums, controller->ledger.text, missing);
    }
}

/* The record of a run that goes back gets its end here, behind the state that it was to go back to.
 * If it is tried again without a host, the record waits on. */
static fl_status end_start(fl_controller *controller, fl_status status)
{
    fl_failure failure;
    fl_failure_keep(&failure, status);
    fl_lasting_keep_hosts(controller);
    fl_lasting_keep_wait(controller, fl_now_us());
    bool is_open = controller->log.plan != NULL && controller->log.files.fd[FL_RUNFILE_EVENTS] >= 0;
    if (is_open && !controller->options->record_waits &&
        !fl_summary_begins_again(controller, status) && fl_record_continue(controller) != FL_OK) {
        fl_log(FL_LOG_WARN, "the record cannot be continued: %s", fl_errmsg());
    }
    return fl_summary_no_start(controller, fl_failure_raise(&failure));
}

static fl_status run_controller(fl_controller *controller, fl_run_result *result)
{
    char missing[1024];
    const fl_shutdown *shutdown = &controller->shutdown;
    fl_status opened = fl__controller_open(controller);
    if (opened != FL_OK) {
        result->terminated = opened == FL_ESTOPPED && fl__controller_is_terminated(shutdown);
        return end_start(controller, opened);
    }
    controller->opened = true;
    report_start(controller);
    if (controller->options->lasting != NULL && controller->options->lasting->any) {
        fl_stop_request_again(controller, &controller->options->lasting->stop);
    }
    fl_replan_begin(controller, fl_now_us());
    finish_epoch(controller);
    fl_tracer_begin(controller->tracer);
    run_loop(controller);
    fl_elastic_end(&controller->elastic);
    fl_shutdown_conclude(controller);
    fl_recovery_over(controller, fl_now_us());
    fl_replan_end(controller);
    fl_summary_result(controller, result);
    keep_model(controller, result);
    fl_record_missing(&controller->record, missing, sizeof missing);
    report_end(controller, result, missing);
    fl_lasting_keep(controller);
    if (controller->pass.o != NULL) {
        *controller->options->outcome = controller->pass.outcome;
        return shutdown->status == FL_OK ? FL_OK
                                         : fl_fail(shutdown->status, "%s", shutdown->message);
    }
    fl_summary_write(controller, result, missing);
    if (shutdown->status == FL_OK && missing[0] != 0) {
        return fl_fail(FL_EFAILED, "the run trained to its end, but its record is incomplete: %s",
                       missing);
    }
    return shutdown->status == FL_OK ? FL_OK : fl_fail(shutdown->status, "%s", shutdown->message);
}

/* Of a run that goes back, also the workers that were lost or drained before. */
static int count_started(const fl_controller_options *options)
{
    const fl_plan *plan = options->plan;
    int n = options->recovered == NULL ? 0 : options->recovered->n_started;
    n = n < plan->n_workers ? n : plan->n_workers;
    for (int rank = n; rank < plan->n_workers; rank++) {
        n = plan->departed[rank] ? n : rank + 1;
    }
    return n;
}

/* Connect the parts that read from each other. */
static void connect_parts(fl_controller *controller, const fl_controller_options *options)
{
    controller->job = *options->job;
    controller->own_options = *options;
    controller->own_options.job = &controller->job;
    controller->options = &controller->own_options;
    controller->elastic.plan = *options->plan;
    controller->n_workers = options->plan->n_workers;
    controller->facts = (fl_run_facts){.options = controller->options,
                                       .plan = &controller->elastic.plan,
                                       .phase = &controller->shutdown.phase,
                                       .stats = &controller->stats,
                                       .losses = &controller->recovery.sums,
                                       .n_workers = controller->n_workers,
                                       .n_started = count_started(options)};
    if (options->recovered != NULL) {
        controller->recovery.sums = *options->recovered;
    }
    fl_shutdown_init(&controller->shutdown, options->job);
    fl_pass_init(&controller->pass, options->pass);
}

fl_status fl_controller_run(const fl_controller_options *options, fl_run_result *result)
{
    fl_run_result own;
    fl_controller *controller = NULL;
    FL_TRY(fl_alloc(sizeof *controller, (void **)&controller));
    connect_parts(controller, options);
    fl_signals_block(&controller->signals);
    fl_status status = run_controller(controller, result != NULL ? result : &own);
    fl_failure failure; /* closing may fail as well, for the same reason */
    fl_failure_keep(&failure, status);
    fl__controller_close(controller, status);
    fl_free(controller);
    return fl_failure_raise(&failure);
}
