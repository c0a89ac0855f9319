#include "control/controller/members/host_watch.h"

#include "control/controller/judge/attempts.h"
#include "control/controller/judge/host_kind.h"
#include "control/controller/members/host_again.h"
#include "control/controller/members/host_report.h"
#include "control/controller/members/joining.h"
#include "control/controller/members/replan.h"
#include "control/controller/parts/parts.h"
#include "control/elastic/drain.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <stdio.h>

enum {
    AGAIN_US = 1000 * 1000,
    STUCK_US = 3000 * 1000, /* from the SIGKILL for a worker until nobody waits for its end */
};

static const fl_hosts *hosts_of(const fl_controller *controller)
{
    return controller->options->hosts;
}

/* Plans know the devices of all ranks. Those that no host has yet are as the job's. */
static fl_status copy_input(fl_controller *controller)
{
    fl_host_watch *h = &controller->hosts;
    const fl_plan_input *given = controller->options->plan_input;
    if (given == NULL || given->cluster == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *h->input, (void **)&h->input));
    FL_TRY(fl_alloc(sizeof *h->cluster, (void **)&h->cluster));
    *h->cluster = *given->cluster;
    *h->input = *given;
    h->input->cluster = h->cluster;
    controller->own_options.plan_input = h->input;
    return FL_OK;
}

/* The devices of a host that has joined, the next ones of the cluster. */
static void add_devices(fl_host_watch *h, int i)
{
    const fl_host *host = &h->table->host[i];
    fl_cluster *c = h->cluster;
    if (c == NULL || host->first != c->n_devices) {
        return;
    }
    for (int rank = host->first; rank < host->first + host->n; rank++) {
        c->host_of[rank] = c->n_hosts;
        c->socket_of[rank] = c->n_sockets;
        c->memory_bytes[rank] = 0;
        c->speed[rank] = 1.0;
        c->kind_of[rank] = 0;
    }
    c->n_devices += host->n;
    c->n_hosts++;
    c->n_sockets++;
}

static fl_status copy_hosts(fl_controller *controller)
{
    fl_host_watch *h = &controller->hosts;
    size_t n = (size_t)controller->n_workers;
    FL_TRY(fl_alloc(sizeof *h->table, (void **)&h->table));
    *h->table = *controller->options->hosts;
    controller->own_options.hosts = h->table;
    FL_TRY(fl_alloc_array(n, sizeof *h->records, (void **)&h->records));
    return fl_alloc_array(n, sizeof *h->drains, (void **)&h->drains);
}

fl_status fl_host_watch_open(fl_controller *controller)
{
    fl_host_watch *h = &controller->hosts;
    if (hosts_of(controller) == NULL) {
        return FL_OK;
    }
    FL_TRY(copy_hosts(controller));
    h->records[0] =
        (fl_host_record){.state = FL_HOST_STATE_JOINED, .joined_us = fl_now_us()}; /* the head */
    h->n_first = h->table->n;
    fl_host_again_take(controller);
    FL_TRY(copy_input(controller));
    for (int i = h->n_first; i < h->table->n; i++) {
        add_devices(h, i);
    }
    return FL_OK;
}

void fl_host_watch_close(fl_controller *controller)
{
    fl_host_watch *h = &controller->hosts;
    fl_free(h->table);
    fl_free(h->records);
    fl_free(h->drains);
    fl_free(h->input);
    fl_free(h->cluster);
    *h = (fl_host_watch){.records = NULL};
}

bool fl_host_watch_forbids(const fl_controller *controller, int rank)
{
    const fl_host_watch *h = &controller->hosts;
    int i = h->records == NULL ? -1 : fl_hosts_of(h->table, rank);
    return h->records != NULL && (i < 0 || h->records[i].state != FL_HOST_STATE_JOINED);
}

/* ---- the workers of a host ---- */

static bool is_of(const fl_controller *controller, int rank, int i)
{
    return fl_hosts_of(hosts_of(controller), rank) == i;
}

/* Whether no worker of the host is a member of the run. */
static bool owns_nothing(const fl_controller *controller, int i)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (is_of(controller, rank, i) && !controller->elastic.plan.departed[rank]) {
            return false;
        }
    }
    return true;
}

/* Whether the host waits no longer for a process that does not end, although the run has all that
 * it owned: one that is stuck in the kernel does not heed SIGKILL (watch_departed in shutdown.c).
 * Nor does it wait for one that would cost it what is left of its grace time. */
static bool is_given_up(const fl_controller *controller, int i, const fl_worker *w, int64_t now_us)
{
    const fl_host_record *r = &controller->hosts.records[i];
    int64_t kill_us = controller->options->job->fault.detect_ms * 1000;
    bool stuck = now_us - w->departed_us > kill_us + STUCK_US;
    bool late = r->notice_us != 0 && now_us - r->notice_us > r->grace_us / 4 * 3;
    return w->departed && w->departed_us != 0 && (stuck || late);
}

static bool have_exited(const fl_controller *controller, int i, int64_t now_us)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_worker *w = &controller->workers[rank];
        if (is_of(controller, rank, i) && w->exited_us == 0 &&
            !is_given_up(controller, i, w, now_us)) {
            return false;
        }
    }
    return true;
}

static void say_who_stays(const fl_controller *controller, int i)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_worker *w = &controller->workers[rank];
        if (is_of(controller, rank, i) && w->exited_us == 0) {
            fl_log(FL_LOG_WARN,
                   "host %s is released, although worker %d, process %d, has not ended",
                   hosts_of(controller)->host[i].name, rank, (int)w->pid);
        }
    }
}

/* A notice for the whole host may have sent SIGTERM to its workers, too: a batch system signals all
 * processes of a step. They are to ignore it, because they are needed until they have handed over
 * what they own. */
static void tell_workers(fl_controller *controller, int i)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_STOPPING);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (is_of(controller, rank, i) && controller->workers[rank].exited_us == 0) {
            fl_router_send_to(&controller->router, rank, &frame);
        }
    }
}

/* ---- a drain ---- */

static void begin_drain(fl_controller *controller, int i, int64_t now_us)
{
    fl_host_drain *d = &controller->hosts.drains[i];
    fl_host_record *r = &controller->hosts.records[i];
    r->state = FL_HOST_STATE_DRAINING;
    r->why[0] = '\0';
    d->step = FL_HOST_DRAIN_WANTED;
    d->since_us = d->due_us = now_us;
    d->attempts = (fl_attempts){.n = 0};
    d->k = controller->elastic.k;
    d->r = controller->elastic.r;
    d->starts = false;
    tell_workers(controller, i);
    for (int rank = 0; rank < controller->n_workers; rank++) {
        if (is_of(controller, rank, i)) {
            fl_joining_forbid(controller, rank);
        }
    }
}

/* The agent learns why, and ends: the loss of its workers follows. */
static void give_up(fl_controller *controller, int i, const char *why)
{
    const fl_host *host = &hosts_of(controller)->host[i];
    fl_log(FL_LOG_WARN, "host %s cannot be drained: %s", host->name, why);
    fl_host_record *r = &controller->hosts.records[i];
    controller->hosts.drains[i].step = FL_HOST_DRAIN_NONE;
    r->notice_us = 0;
    r->state = FL_HOST_STATE_JOINED;
    snprintf(r->why, sizeof r->why, "%s", why);
    (void)fl_agent_release_host(controller->agent, i, why); /* else the agent's grace time ends */
}

static fl_status choose_plan(const fl_controller *controller, int i, fl_plan *plan,
                             fl_elastic_terms *terms)
{
    const fl_controller_options *o = controller->options;
    bool ranks[FL_MAX_WORKERS] = {false};
    if (o->plan_input == NULL || o->recording != NULL || controller->pass.o != NULL) {
        return fl_fail(FL_ENOTSUP, "this run cannot change its plan");
    }
    for (int rank = 0; rank < controller->n_workers; rank++) {
        ranks[rank] = is_of(controller, rank, i);
    }
    return fl_drain_choose(&controller->elastic, ranks, plan, terms);
}

static fl_status ask_plan(fl_controller *controller, int i)
{
    fl_elastic *e = &controller->elastic;
    fl_elastic_terms terms;
    fl_plan plan;
    char why[FL_HOST_TEXT + 32];
    FL_TRY(choose_plan(controller, i, &plan, &terms));
    snprintf(why, sizeof why, "host %s is drained", hosts_of(controller)->host[i].name);
    return fl_elastic_ask_with(e, &plan, 0, &terms, why);
}

static void try_drain(fl_controller *controller, int i, int64_t now_us)
{
    fl_host_drain *d = &controller->hosts.drains[i];
    if (owns_nothing(controller, i)) {
        d->step = FL_HOST_DRAIN_LEAVING;
        return;
    }
    if (now_us < d->due_us || controller->recovery.state != FL_RECOVERY_NONE ||
        controller->elastic.transition.state != FL_ELASTIC_IDLE) {
        return;
    }
    fl_status status = ask_plan(controller, i);
    if (status == FL_OK) {
        d->step = FL_HOST_DRAIN_ASKED;
        fl_transition *t = &controller->elastic.transition;
        d->generation = t->told = t->requested;
        fl_attempts_begin(&d->attempts, now_us);
    } else if (status == FL_EBUSY) {
        d->due_us = now_us + AGAIN_US / 10; /* a decision is due */
    } else {
        give_up(controller, i, fl_errmsg());
    }
}

static void tell_failure(fl_controller *controller, int i, const char *why, int64_t now_us)
{
    const fl_host_drain *d = &controller->hosts.drains[i];
    char when[64];
    if (fl_attempts_tell(&d->attempts, d->due_us, now_us, when, sizeof when)) {
        fl_progress_note(&controller->log.progress, "host %s cannot be drained yet: %s%s",
                         hosts_of(controller)->host[i].name, why, when);
    }
}

static void await_outcome(fl_controller *controller, int i, int64_t now_us)
{
    fl_host_drain *d = &controller->hosts.drains[i];
    const fl_elastic_outcome *o = fl_elastic_outcome_of(&controller->elastic, d->generation);
    if (o != NULL && o->committed) {
        d->step = FL_HOST_DRAIN_LEAVING;
    } else if (o != NULL) {
        d->step = FL_HOST_DRAIN_WANTED;
        int64_t due_us = fl_attempts_failed(&d->attempts, now_us);
        bool hurries = controller->hosts.records[i].notice_us != 0; /* the grace time ends it */
        d->due_us = hurries ? now_us + AGAIN_US : due_us;
        tell_failure(controller, i, o->why, now_us);
    }
}

static void await_exits(fl_controller *controller, int i, int64_t now_us)
{
    fl_host_record *r = &controller->hosts.records[i];
    if (have_exited(controller, i, now_us) && fl_agent_release_host(controller->agent, i, "")) {
        say_who_stays(controller, i);
        controller->hosts.drains[i].step = FL_HOST_DRAIN_NONE;
        r->state = FL_HOST_STATE_DRAINED;
        r->ended_us = now_us;
    }
}

static void drive_drain(fl_controller *controller, int i, int64_t now_us)
{
    const fl_host_record *r = &controller->hosts.records[i];
    fl_host_drain *d = &controller->hosts.drains[i];
    if (r->state == FL_HOST_STATE_LOST) {
        d->step = FL_HOST_DRAIN_NONE;
    } else if (r->state == FL_HOST_STATE_JOINED && r->notice_us != 0) {
        begin_drain(controller, i, now_us);
    }
    switch (d->step) {
    case FL_HOST_DRAIN_NONE:
        break;
    case FL_HOST_DRAIN_WANTED:
        try_drain(controller, i, now_us);
        break;
    case FL_HOST_DRAIN_ASKED:
        await_outcome(controller, i, now_us);
        break;
    case FL_HOST_DRAIN_LEAVING:
        await_exits(controller, i, now_us);
        break;
    }
}

/* The training is over, or is to stop: no drain begins any more. One that has taken effect, because
 * the plan needs nothing of the host, is done. */
static void end_drain(fl_controller *controller, int i, int64_t now_us)
{
    fl_host_record *r = &controller->hosts.records[i];
    fl_host_drain *d = &controller->hosts.drains[i];
    if (d->step == FL_HOST_DRAIN_ASKED) {
        await_outcome(controller, i, now_us);
    }
    if (d->step == FL_HOST_DRAIN_ASKED && owns_nothing(controller, i)) {
        d->step = FL_HOST_DRAIN_LEAVING; /* its own workers have not reported yet */
    }
    bool over = controller->shutdown.phase.state == FL_CONTROLLER_FINISHING ||
                controller->shutdown.phase.state == FL_CONTROLLER_OVER;
    if (r->state == FL_HOST_STATE_DRAINING && d->step == FL_HOST_DRAIN_LEAVING && over) {
        r->state = FL_HOST_STATE_DRAINED;
        r->ended_us = now_us;
    }
    if (d->step == FL_HOST_DRAIN_LEAVING) {
        await_exits(controller, i, now_us); /* its agent learns it, too */
    }
}

fl_status fl_host_watch_ask(fl_controller *controller, int i, int64_t now_us)
{
    const char *name = hosts_of(controller)->host[i].name;
    fl_host_record *r = &controller->hosts.records[i];
    fl_elastic_terms terms;
    fl_plan plan;
    if (i == 0) {
        return fl_fail(FL_EINVAL,
                       "host %s is the head, where the controller is: a run without it "
                       "ends; see stop",
                       name);
    }
    if (r->state == FL_HOST_STATE_DRAINING) {
        return FL_OK; /* its agent asked for it, or another request */
    }
    if (r->state != FL_HOST_STATE_JOINED) {
        return fl_fail(FL_EINVAL, "host %s is not in the run: it is %s", name,
                       fl_host_state_text(r->state));
    }
    if (choose_plan(controller, i, &plan, &terms) != FL_OK) {
        return fl_fail(FL_EINVAL, "host %s cannot be drained: %s", name, fl_errmsg());
    }
    begin_drain(controller, i, now_us);
    return FL_OK;
}

/* ---- a host that joins ---- */

/* One that joins when the run begins has its workers, which live. */
static void begin_start(fl_controller *controller, int i)
{
    fl_host_drain *d = &controller->hosts.drains[i];
    const fl_host_record *r = &controller->hosts.records[i];
    if (r->joined_us == 0 || r->joined_us == d->started_us) {
        return;
    }
    d->started_us = r->joined_us;
    d->starts = true;
    d->any_started = false;
    d->step = FL_HOST_DRAIN_NONE;
    add_devices(&controller->hosts, i);
    if (controller->hosts.cluster != NULL) {
        fl_host_kind_take(controller->options->costs, controller->options->job->devices.kind,
                          &hosts_of(controller)->host[i], &r->kind, controller->hosts.cluster);
    }
}

/* Whether this rank needs nothing more: its process is a member, or it has ended again. */
static bool is_started(fl_controller *controller, int i, int rank, int64_t now_us)
{
    const fl_worker *w = &controller->workers[rank];
    const fl_joining_worker *j = &controller->joining[rank];
    fl_host_drain *d = &controller->hosts.drains[i];
    if (!w->departed) {
        return w->exited_us == 0; /* else its loss is not known yet */
    }
    bool begins = j->state <= FL_JOINING_DELAYED && !j->by_host && w->exited_us != 0 &&
                  w->spawned_us < d->started_us;
    if (begins) {
        fl_joining_host_is_back(controller, rank, now_us);
        d->any_started = true;
    }
    return !begins && j->state == FL_JOINING_NONE;
}

/* The plan that the run was to have before it lost the host, or the best one with it. */
static void end_start(fl_controller *controller, int i, int n_members, int64_t now_us)
{
    fl_host_drain *d = &controller->hosts.drains[i];
    d->starts = false;
    if (d->k > 0) {
        controller->elastic.k = d->k;
        controller->elastic.r = d->r;
        d->k = d->r = 0;
    }
    if (n_members > 0 && d->any_started) {
        fl_replan_host_joined(controller, hosts_of(controller)->host[i].first, now_us);
    }
}

static void drive_start(fl_controller *controller, int i, int64_t now_us)
{
    const fl_host *host = &hosts_of(controller)->host[i];
    const fl_host_drain *d = &controller->hosts.drains[i];
    int n_members = 0;
    bool all = true;
    begin_start(controller, i);
    if (!d->starts || controller->hosts.records[i].state != FL_HOST_STATE_JOINED) {
        return;
    }
    for (int rank = host->first; rank < host->first + host->n; rank++) {
        all = is_started(controller, i, rank, now_us) && all;
        n_members += !controller->workers[rank].departed;
    }
    if (all) {
        end_start(controller, i, n_members, now_us);
    }
}

void fl_host_watch_turn(fl_controller *controller, int64_t now_us)
{
    const fl_phase *phase = &controller->shutdown.phase;
    bool trains = phase->state == FL_CONTROLLER_RUNNING && phase->n_stops == 0;
    for (int i = 0; controller->hosts.records != NULL && i < hosts_of(controller)->n; i++) {
        if (i > 0 && trains) {
            drive_start(controller, i, now_us);
            drive_drain(controller, i, now_us);
        } else if (i > 0 && phase->lost < 0) {
            end_drain(controller, i, now_us);
        }
        fl_host_report(controller, i, now_us);
    }
}
