/* Runs the controller from the start of the agent, which forks the workers, to the exit of the last
 * one. The order of opening matters: first the run directory, whose errors the user can correct;
 * then the agent, which must inherit all that workers need; then everything that starts threads. */
#include "control/controller/run.h"

#include "autodp/sampler.h"
#include "control/agent/join/held_port.h"
#include "control/checkpoint/record_place.h"
#include "control/controller/far.h"
#include "control/controller/parts.h"
#include "control/controller/summary.h"
#include "control/controller/view.h"
#include "control/events/event_log_hosts.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/failure.h"
#include "device/log.h"
#include "nn/model.h"
#include "pipe/plan/evaluation.h"
#include "pipe/state/model_file.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

enum { TURN_MS = 100 };

static void stop_for_part(void *context, const char *who)
{
    fl_stop_request((fl_controller *)context, who);
}

static bool grow_for_part(void *context, int n)
{
    return fl_joining_want((fl_controller *)context, n, fl_now_us());
}

static bool drain_host_for_part(void *context, int host)
{
    return fl_host_watch_ask((fl_controller *)context, host, fl_now_us()) == FL_OK;
}

static void end_for_part(void *context, int64_t step)
{
    fl_stop_answer_end((fl_controller *)context, step);
}

static fl_status open_elastic(fl_controller *controller)
{
    fl_elastic *e = &controller->elastic;
    e->run = &controller->facts;
    e->cache = &controller->cache;
    e->workers = controller->workers;
    e->router = &controller->router;
    e->log = &controller->log;
    e->dump = &controller->flight_dump;
    e->store = controller->store;
    e->job = &controller->job;
    e->stop = stop_for_part;
    e->end = end_for_part;
    e->context = controller;
    memcpy(e->usable.drained, e->plan.departed, sizeof e->usable.drained);
    return fl_elastic_open(e);
}

static bool look_at_process(void *context, const fl_worker *worker, fl_process_look *out)
{
    return fl_agent_look(((fl_controller *)context)->agent, worker->rank, out);
}

static fl_status open_tables(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_job *job = o->job;
    fl_run_facts *facts = &controller->facts;
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *controller->workers,
                          (void **)&controller->workers));
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *controller->joining,
                          (void **)&controller->joining));
    FL_TRY(fl_run_times_init(&controller->times, controller->n_workers));
    FL_TRY(fl_store_create(&controller->store));
    FL_TRY(fl_flight_create(controller->n_workers, &controller->flight));
    const fl_watch_limits *limits = &controller->shutdown.limits;
    FL_TRY(fl_standstill_watch_init(&controller->standstill, controller->n_workers, o->pass == NULL,
                                    &(fl_standstill_limits){.silence_us = limits->silence_us,
                                                            .deadline_us = limits->circle_us}));
    controller->standstill.look = look_at_process;
    controller->standstill.context = controller;
    controller->standstill.woken_at = controller->router.woken_at;
    facts->workers = controller->workers;
    facts->flight = controller->flight;
    FL_TRY(fl_flight_dump_init(&controller->flight_dump, facts));
    FL_TRY(fl_tracer_create(facts, &controller->log, &controller->tracer));
    fl_run_stats_init(&controller->stats, o->n_samples, fl_sampler_batch(job), o->n_steps,
                      o->n_epochs, job->train.evaluate);
    controller->stats.metrics = fl_model_metrics(o->model);
    controller->stats.evaluation_period =
        fl_evaluation_period(job, controller->stats.steps_per_epoch, o->n_steps);
    FL_TRY(fl_stop_rule_of(job, &controller->stats.metrics, controller->stats.steps_per_epoch,
                           o->n_steps, &controller->stats.stop_rule));
    FL_TRY(fl_host_watch_open(controller));
    facts->hosts = controller->options->hosts;
    facts->host_records = controller->hosts.records;
    return open_elastic(controller);
}

static fl_status open_log(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_plan *plan = &controller->elastic.plan;
    FILE *terminal = o->pass == NULL ? stdout : o->pass->terminal;
    if (o->resume == NULL) {
        return fl_event_log_open(&controller->log, o->dir_fd, terminal, plan);
    }
    fl_runfiles_place place = fl_checkpoint_place(o->resume);
    return fl_event_log_resume(&controller->log, o->dir_fd, terminal, plan, &place);
}

static fl_status open_files(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    FL_TRY(fl_run_ledger_open(&controller->ledger, o)); /* first what may lack space on the disk */
    FL_TRY(open_log(controller));
    controller->log.hosts = controller->options->hosts;
    controller->record = (fl_record){
        .log = &controller->log, .ledger = controller->ledger.ledger, .dir_fd = o->dir_fd};
    return FL_OK;
}

static void tell_written(void *context, const fl_checkpoint_outcome *outcome)
{
    fl_callbacks_checkpoint((fl_controller *)context, outcome);
}

/* A second signal, also while the run waits for its last checkpoint. */
static bool is_hurried(void *context)
{
    fl_controller *controller = context;
    fl_stop_request_signals(controller);
    return controller->shutdown.phase.n_stops > 1;
}

/* A run that had ended for lack of improvement ends here again: its files have that event. */
static void continue_from(fl_controller *controller, const fl_checkpoint *resume)
{
    fl_run_stats *stats = &controller->stats;
    fl_controller_state_restore(&resume->controller, resume->step, controller->log.files.start_us,
                                &controller->elastic, stats);
    stats->n_steps = fl_checkpoint_end_step(resume, controller->options->n_steps);
    controller->reports.next_step = resume->step;
    if (fl_early_stop_holds(&stats->stop, &stats->stop_rule, resume->step)) {
        fl_run_stats_end_early(stats, resume->step);
    }
}

static void open_snapshots(fl_controller *controller)
{
    fl_snapshots *s = &controller->snapshots;
    s->run = &controller->facts;
    s->elastic = &controller->elastic;
    s->router = &controller->router;
    s->log = &controller->log;
    s->checkpoints = &controller->checkpoints;
    fl_snapshots_open(s);
}

/* Continue from a checkpoint or a snapshot, if the run does. */
static fl_status open_checkpoints(fl_controller *controller)
{
    const fl_checkpoint *resume = controller->options->resume;
    fl_checkpoints *c = &controller->checkpoints;
    c->run = &controller->facts;
    c->elastic = &controller->elastic;
    c->router = &controller->router;
    c->log = &controller->log;
    c->ledger = controller->ledger.ledger;
    c->written = tell_written;
    c->hurried = is_hurried;
    c->context = controller;
    FL_TRY(fl_checkpoints_open(c));
    open_snapshots(controller);
    if (resume != NULL) {
        continue_from(controller, resume);
    }
    fl_lasting_restore(controller);
    return FL_OK;
}

static void tell_metrics(fl_controller *controller)
{
    int64_t now_us = fl_now_us();
    if (fl_metrics_due(controller->metrics, now_us)) {
        fl_metrics_tell(controller->metrics, fl_view_look(controller), now_us);
    }
}

static const fl_run_view *look_for_ctl(void *context)
{
    return fl_view_look((fl_controller *)context);
}

static fl_status open_ctl(fl_controller *controller)
{
    const fl_ctl_uses uses = {.run = &controller->facts,
                              .stats = &controller->stats,
                              .elastic = &controller->elastic,
                              .checkpoints = &controller->checkpoints,
                              .router = &controller->router,
                              .log = &controller->log,
                              .tracer = controller->tracer,
                              .flight_dump = &controller->flight_dump,
                              .look = look_for_ctl,
                              .stop = stop_for_part,
                              .grow = grow_for_part,
                              .drain_host = drain_host_for_part,
                              .context = controller};
    return fl_ctl_open(&uses, &controller->ctl);
}

static fl_status open_sockets(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    FL_TRY(fl_signals_open(&controller->signals));
    FL_TRY(fl_far_open_router(controller));
    controller->router.flight = controller->flight;
    FL_TRY(open_ctl(controller));
    fl_event_log_listen(&controller->log, fl_ctl_publish, controller->ctl);
    FL_TRY(fl_metrics_open(o->metrics, controller->n_workers, &controller->metrics));
    tell_metrics(controller);
    return FL_OK;
}

/* In the agent: its copy of the listener would outlive the controller. */
static void release_listener(void *context)
{
    const fl_controller *controller = context;
    if (controller->options->metrics != NULL) {
        fl_metrics_listener_close(controller->options->metrics);
    }
}

/* Agents of other hosts open that checkpoint's folder. */
static int64_t state_of(const fl_controller_options *o)
{
    return o->resume == NULL || o->returns ? -1 : o->resume->step;
}

static fl_status start_workers(fl_controller *controller)
{
    char endpoint[FL_ROUTER_ENDPOINT_MAX];
    const fl_controller_options *o = controller->options;
    fl_worker_birth first;
    fl_worker_birth_first(o->plan, o->n_steps, &first);
    fl_router_endpoint(o->dir_fd, endpoint);
    const fl_agent_options agent = {.n_workers = controller->n_workers,
                                    .dir_fd = o->dir_fd,
                                    .continues = o->origin != NULL,
                                    .facts = o->host_facts,
                                    .from_snapshot = o->returns,
                                    .state_step = state_of(o),
                                    .n_stores =
                                        o->activations == NULL ? 0 : o->activations->n_stores,
                                    .flight = controller->flight,
                                    .signals = &controller->signals,
                                    .endpoint = endpoint,
                                    .hosts = controller->hosts.table,
                                    .host_records = controller->hosts.records,
                                    .starters = o->starters,
                                    .host_sight = &controller->host_pairs.sight,
                                    .devices = o->devices,
                                    .worker = o->worker,
                                    .context = o->context,
                                    .release = release_listener,
                                    .release_context = controller};
    const fl_worker_birth *birth = o->birth != NULL ? o->birth : &first;
    fl_workers_init(controller->workers, controller->n_workers, o->plan, birth->step);
    if (o->held_port != NULL) {
        fl_held_port_close(o->held_port);
    }
    FL_TRY(fl_agent_open(&agent, controller->workers, &controller->agent));
    fl_tracer_reach(controller->tracer, controller->agent);
    return fl_agent_start_all(controller->agent, birth);
}

static fl_status open_all(fl_controller *controller)
{
    FL_TRY(open_tables(controller));
    FL_TRY(open_files(controller));
    FL_TRY(open_checkpoints(controller));
    FL_TRY(start_workers(controller));
    return open_sockets(controller);
}

/* A start that is given up leaves its signal pending. */
static bool is_terminated(const fl_shutdown *shutdown)
{
    sigset_t pending;
    return shutdown->wish.terminated_us > 0 ||
           (sigpending(&pending) == 0 && sigismember(&pending, SIGTERM) == 1);
}

static fl_agent_ending ending_of(const fl_controller *controller, fl_status status)
{
    if (controller->shutdown.phase.back.returns) {
        return FL_AGENT_ENDS_AGAIN;
    }
    if (status == FL_ESTOPPED) {
        return is_terminated(&controller->shutdown) ? FL_AGENT_ENDS_STOPPED : FL_AGENT_ENDS_OVER;
    }
    if (!controller->opened && fl_summary_begins_again(controller, status)) {
        return FL_AGENT_ENDS_AGAIN;
    }
    return status == FL_OK ? FL_AGENT_ENDS_OVER : FL_AGENT_ENDS_FAILED;
}

/* Between two controllers, agents see that the head lives. */
static void hold_port(const fl_controller *controller)
{
    int *port = controller->options->held_port;
    if (port != NULL && *port < 0 && controller->hosts.table != NULL) {
        *port = fl_held_port_open(controller->hosts.table->agents);
        if (*port < 0) {
            fl_log(FL_LOG_DEBUG, "cannot hold the port of agents: %s", strerror(errno));
        }
    }
}

/* status: how the run has ended */
static void close_all(fl_controller *controller, fl_status status)
{
    fl_agent_ending ending = ending_of(controller, status);
    if (controller->tracer != NULL) {
        fl_tracer_reach(controller->tracer, NULL);
    }
    fl_agent_close(&controller->agent, ending);
    if (ending == FL_AGENT_ENDS_AGAIN) {
        hold_port(controller);
    }
    fl_metrics_close(&controller->metrics);
    fl_event_log_listen(&controller->log, NULL, NULL);
    fl_ctl_close(&controller->ctl);
    fl_router_close(&controller->router);
    fl_run_ledger_close(&controller->ledger);
    fl_store_destroy(&controller->store);
    fl_event_log_close(&controller->log);
    if (controller->shutdown.phase.back.returns) {
        fl_signals_keep(&controller->signals); /* for the controller that follows */
    } else {
        fl_signals_restore(&controller->signals);
    }
    fl_tracer_destroy(&controller->tracer);
    fl_flight_dump_fini(&controller->flight_dump);
    fl_snapshots_close(&controller->snapshots);
    fl_checkpoints_close(&controller->checkpoints);
    fl_elastic_close(&controller->elastic);
    fl_standstill_watch_fini(&controller->standstill);
    fl_flight_destroy(&controller->flight);
    fl_host_watch_close(controller);
    fl_free(controller->joining);
    fl_free(controller->workers);
    fl_run_times_fini(&controller->times);
    fl_pass_fini(&controller->pass);
    fl_step_order_fini(&controller->reports);
}

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
        tell_metrics(controller);
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

/* Request the trace that the job asks for. A step that the run does not have must not end it. */
static void trace_as_asked(fl_controller *controller)
{
    int64_t first_step = controller->options->job->trace.start;
    int64_t n_steps = controller->options->job->trace.steps;
    const fl_resume_origin *origin = controller->options->origin;
    bool again = origin != NULL && origin->why != NULL; /* it goes back, and has told it before */
    if (n_steps > 0 && fl_tracer_request(controller->tracer, &first_step, n_steps) != FL_OK &&
        !again) {
        fl_log(FL_LOG_WARN, "no trace: %s", fl_errmsg());
    }
}

static void report_start(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    fl_mfu mfu = fl_mfu_now(&controller->elastic);
    if (o->resume == NULL) {
        fl_event_log_started(&controller->log, &controller->facts, fl_view_metrics_url(controller));
    }
    if (o->origin != NULL) {
        fl_event_log_resumed(&controller->log, &controller->facts, fl_view_metrics_url(controller));
    }
    fl_event_log_costs(&controller->log, o->costs);
    fl_event_log_links(&controller->log, o);
    fl_event_log_plan(&controller->log, &controller->facts, &mfu);
    fl_event_log_cache_opened(&controller->log, o);
}

/* A run that was stopped before its first step has no weights to keep. */
static void keep_model(fl_controller *controller, fl_run_result *result)
{
    fl_model_file *file = controller->options->model_file;
    fl_shutdown *shutdown = &controller->shutdown;
    bool good = shutdown->status == FL_OK || shutdown->status == FL_ESTOPPED;
    fl_far_note_layers(controller);
    if (file == NULL || !good || !fl_model_file_complete(file)) {
        return;
    }
    fl_status status = fl_model_file_finish(file);
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
                          controller->ledger.text, missing);
    }
}

static fl_status run_controller(fl_controller *controller, fl_run_result *result)
{
    char missing[1024];
    const fl_shutdown *shutdown = &controller->shutdown;
    fl_status opened = open_all(controller);
    if (opened != FL_OK) {
        result->terminated = opened == FL_ESTOPPED && is_terminated(shutdown);
        return fl_summary_no_start(controller, opened);
    }
    controller->opened = true;
    report_start(controller);
    if (controller->options->lasting != NULL && controller->options->lasting->any) {
        fl_stop_request_again(controller, &controller->options->lasting->stop);
    }
    fl_replan_begin(controller, fl_now_us());
    finish_epoch(controller);
    trace_as_asked(controller);
    run_loop(controller);
    fl_inbox_end(controller);
    fl_elastic_end(&controller->elastic);
    fl_shutdown_conclude(controller);
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

static int count_started(const fl_plan *plan)
{
    int n = 0;
    for (int rank = 0; rank < plan->n_workers; rank++) {
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
                                       .n_workers = controller->n_workers,
                                       .n_started = count_started(options->plan)};
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
    close_all(controller, status);
    fl_free(controller);
    return fl_failure_raise(&failure);
}
