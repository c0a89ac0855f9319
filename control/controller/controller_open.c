/* The order of opening matters: first the run directory, whose errors the user can correct; then
 * the agent, which must inherit all that workers need; then everything that starts threads. */
#include "control/controller/controller_open.h"

#include "autodp/sampler.h"
#include "control/checkpoint/manifest/record_place.h"
#include "control/controller/course/callbacks.h"
#include "control/controller/course/record_begin.h"
#include "control/controller/course/stop_answer.h"
#include "control/controller/course/stop_request.h"
#include "control/controller/judge/standstill.h"
#include "control/controller/members/far.h"
#include "control/controller/members/host_watch.h"
#include "control/controller/members/joining.h"
#include "control/controller/parts/pass.h"
#include "control/controller/parts/run_ledger.h"
#include "control/controller/report/lasting.h"
#include "control/controller/report/summary.h"
#include "control/controller/report/view.h"
#include "control/events/record_sums.h"
#include "control/link/held_port.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/plan/batch/evaluation.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

/* ---- what parts ask of the controller ---- */

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

static bool look_at_process(void *context, const fl_worker *worker, fl_process_look *out)
{
    return fl_agent_look(((fl_controller *)context)->agent, worker->rank, out);
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

static const fl_run_view *look_for_ctl(void *context)
{
    return fl_view_look((fl_controller *)context);
}

/* ---- tables and files ---- */

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

static fl_status open_tables(fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    const fl_job *job = o->job;
    fl_run_facts *facts = &controller->facts;
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *controller->workers,
                          (void **)&controller->workers));
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *controller->joining,
                          (void **)&controller->joining));
    FL_TRY(fl_alloc_array((size_t)controller->n_workers, sizeof *controller->spared,
                          (void **)&controller->spared));
    FL_TRY(fl_run_times_init(&controller->times, controller->n_workers));
    FL_TRY(fl_store_create(&controller->store));
    FL_TRY(fl_flight_create(controller->n_workers, &controller->flight));
    const fl_watch_limits *limits = &controller->shutdown.limits;
    FL_TRY(fl_standstill_watch_init(&controller->standstill, controller->n_workers, o->pass == NULL,
                                    &(fl_standstill_limits){.silence_us = limits->silence_us,
                                                            .deadline_us = limits->circle_us}));
    controller->standstill.look = look_at_process;
    controller->standstill.context = controller;
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

/* A run that goes back to its first step keeps its record until its hosts have joined again, as one
 * that goes back to a state does: clients read there why it goes back. */
static fl_status open_log(fl_controller *controller)
{
    static const fl_runfiles_place first = {.step = 0};
    const fl_controller_options *o = controller->options;
    const fl_plan *plan = &controller->elastic.plan;
    FILE *terminal = o->pass == NULL ? stdout : o->pass->terminal;
    bool again = o->resume == NULL && o->origin != NULL;
    if (again &&
        fl_event_log_resume(&controller->log, o->dir_fd, terminal, plan, &first) == FL_OK) {
        return FL_OK;
    }
    if (o->resume == NULL) { /* or somebody has removed a file of the record */
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
    fl_lasting_keep_clock(controller);
    controller->log.hosts = controller->options->hosts;
    controller->record = (fl_record){
        .log = &controller->log, .ledger = controller->ledger.ledger, .dir_fd = o->dir_fd};
    return FL_OK;
}

/* ---- checkpoints ---- */

/* A run that had ended for lack of improvement ends here again. Its files have that event, unless
 * stop.end_step is another step: it was stopped just then, or by another rule went on. */
static void continue_from(fl_controller *controller, const fl_checkpoint *resume)
{
    fl_run_stats *stats = &controller->stats;
    int64_t start_us = fl_now_us() - resume->controller.elapsed_us; /* without what is repeated */
    fl_controller_state_restore(&resume->controller, resume->step, start_us, &controller->elastic,
                                stats, &controller->recovery.sums);
    fl_run_stats_end(stats, fl_checkpoint_end_step(resume, controller->options->n_steps));
    controller->reports.next_step = resume->step;
    if (fl_early_stop_holds(&stats->stop, &stats->stop_rule, resume->step)) {
        fl_run_stats_end_early(stats, resume->step);
        stats->stop.end_step = resume->controller.stats.stop.end_step;
    }
}

/* The checkpoint itself does not have this. A run that goes back in these processes knows it. */
static void continue_sums(fl_controller *controller, const fl_checkpoint *resume)
{
    fl_checkpoint_sums *sums = &controller->checkpoints.sums;
    fl_runfiles_place place = fl_checkpoint_place(resume);
    fl_record_sums recorded;
    fl_record_sums_read(controller->options->dir_fd, &place, &recorded);
    sums->n_written = recorded.n_written;
    sums->n_failed = recorded.n_failed;
    sums->last_bytes = recorded.bytes;
    sums->last_linked_bytes = recorded.linked_bytes;
    sums->last_seconds = recorded.seconds;
    if (controller->recovery.sums.last_us == 0) {
        controller->recovery.sums.last_us = (int64_t)(recorded.without_training_s * 1e6);
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
    if (resume != NULL && !controller->options->returns) {
        continue_sums(controller, resume);
    }
    fl_lasting_restore(controller);
    return FL_OK;
}

/* ---- the agent ---- */

/* In the agent and the gate: their copies of what listens would outlive the controller, or keep it
 * from its port. */
static void release_listeners(void *context)
{
    const fl_controller *controller = context;
    if (controller->options->metrics != NULL) {
        fl_metrics_listener_close(controller->options->metrics);
    }
    fl_held_ports_drop_copies(controller->options->held_ports);
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
                                    .job_text = o->job_text,
                                    .facts = o->host_facts,
                                    .from_snapshot = o->returns,
                                    .state_step = state_of(o),
                                    .n_stores =
                                        o->activations == NULL ? 0 : o->activations->n_stores,
                                    .flight = controller->flight,
                                    .signals = &controller->signals,
                                    .endpoint = endpoint,
                                    .hosts = controller->hosts.table,
                                    .n_first_hosts = controller->hosts.n_first,
                                    .host_records = controller->hosts.records,
                                    .starters = o->starters,
                                    .hosts_measured = o->hosts_measured,
                                    .host_sight = &controller->host_pairs.sight,
                                    .devices = o->devices,
                                    .worker = o->worker,
                                    .context = o->context,
                                    .release = release_listeners,
                                    .release_context = controller};
    const fl_worker_birth *birth = o->birth != NULL ? o->birth : &first;
    fl_workers_init(controller->workers, controller->n_workers, o->plan, birth->step);
    fl_held_port_close(o->held_ports == NULL ? NULL : &o->held_ports->agents);
    FL_TRY(fl_agent_open(&agent, controller->workers, &controller->agent));
    fl_tracer_reach(controller->tracer, controller->agent);
    return fl_agent_start_all(controller->agent, birth);
}

/* ---- sockets ---- */

void fl__controller_tell_metrics(fl_controller *controller)
{
    int64_t now_us = fl_now_us();
    if (fl_metrics_due(controller->metrics, now_us)) {
        fl_metrics_tell(controller->metrics, fl_view_look(controller), now_us);
    }
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
    FL_TRY(open_ctl(controller));
    fl_event_log_listen(&controller->log, fl_ctl_publish, controller->ctl);
    FL_TRY(fl_metrics_open(o->metrics, controller->n_workers, &controller->metrics));
    fl__controller_tell_metrics(controller);
    return FL_OK;
}

/* ---- all of it ---- */

/* While a run that goes back waits for its hosts, its record still says that it does. */
fl_status fl__controller_open(fl_controller *controller)
{
    FL_TRY(open_tables(controller));
    FL_TRY(open_files(controller));
    FL_TRY(open_checkpoints(controller));
    FL_TRY(start_workers(controller));
    FL_TRY(controller->options->record_waits ? FL_OK : fl_record_continue(controller));
    return open_sockets(controller);
}

/* A start that is given up leaves its signal pending. */
bool fl__controller_is_terminated(const fl_shutdown *shutdown)
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
        return fl__controller_is_terminated(&controller->shutdown) ? FL_AGENT_ENDS_STOPPED
                                                                   : FL_AGENT_ENDS_QUIT;
    }
    if (!controller->opened && fl_summary_begins_again(controller, status)) {
        return FL_AGENT_ENDS_AGAIN;
    }
    return status == FL_OK ? FL_AGENT_ENDS_OVER : FL_AGENT_ENDS_FAILED;
}

/* Those that are held between this controller and the next one; NULL: none are. */
static fl_held_ports *ports_to_hold(const fl_controller *controller, fl_agent_ending ending)
{
    bool holds = ending == FL_AGENT_ENDS_AGAIN && controller->hosts.table != NULL;
    return holds ? controller->options->held_ports : NULL;
}

/* status: how the run has ended */
void fl__controller_close(fl_controller *controller, fl_status status)
{
    fl_agent_ending ending = ending_of(controller, status);
    fl_held_ports *held = ports_to_hold(controller, ending);
    if (controller->tracer != NULL) {
        fl_tracer_reach(controller->tracer, NULL);
    }
    fl_agent_close(&controller->agent, ending);
    if (held != NULL) {
        fl_held_port_hold(controller->hosts.table->agents, &held->agents);
    }
    fl_metrics_close(&controller->metrics);
    fl_event_log_listen(&controller->log, NULL, NULL);
    fl_ctl_close(&controller->ctl);
    fl_router_close(&controller->router);
    if (held != NULL) {
        fl_held_port_hold(controller->hosts.table->links, &held->links);
    }
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
    fl_free(controller->spared);
    fl_free(controller->joining);
    fl_free(controller->workers);
    fl_run_times_fini(&controller->times);
    fl_pass_fini(&controller->pass);
    fl_step_order_fini(&controller->reports);
}
