/* Transitions as the controller sees them: a small transaction.
 *
 *     IDLE ── something is due ──> PREPARE to all ──> PREPARING ──(all ready)──> COMMIT to all
 *      ^                                                  │                            │
 *      │<── CANCEL to all ──(a refusal, or too late)──────┘                            v
 *      └<──────────────(all have gone over)──────────────────────────────────── COMMITTING
 *
 * Commands go to the leader, who tells them at a control point; answers come over the link. What
 * is lost in the middle is for shutdown.c: a transition adds no way of its own to end a run. */
#include "control/controller/parts.h"
#include "control/elastic/elastic_events.h"

#include "device/clock.h"
#include "device/log.h"

#include <stdio.h>
#include <string.h>

enum { SECOND_OPINION_MS = 1000 }; /* who lost a peer may be heard before that peer has said why */

/* For whoever asked. */
static void record(fl_controller *controller, bool committed, int64_t step, const char *why)
{
    fl_elastic_outcome *o = &controller->elastic.outcome;
    *o = (fl_elastic_outcome){
        .generation = controller->elastic.next.generation, .committed = committed, .step = step};
    snprintf(o->why, sizeof o->why, "%s", why);
}

static void give_up(fl_controller *controller, const char *why)
{
    record(controller, false, controller->stats.steps, why);
    controller->elastic.sums.n_cancelled++;
    fl_event_log_cancel(controller, why);
}

static void cancel(fl_controller *controller, const char *why)
{
    fl_elastic *e = &controller->elastic;
    fl_command command = {.kind = FL_COMMAND_CANCEL, .due_step = e->due_step, .due = e->due};
    e->state = FL_ELASTIC_IDLE;
    give_up(controller, why);
    fl_router_command(&controller->router, &controller->plan, &command);
}

/* A commit is over, with or without a change. Who wished to stop meanwhile was not told to whoever
 * spoke then: it may be another now, and others stand by. */
static void settle(fl_controller *controller)
{
    controller->elastic.state = FL_ELASTIC_IDLE;
    if (controller->shutdown.phase.n_stops > 0) {
        fl_router_command(&controller->router, &controller->plan,
                          &(fl_command){.kind = FL_COMMAND_STOP});
    }
}

/* ---- beginning one ---- */

/* A number is used once, also when its generation was cancelled: what it left in the store, or has
 * still on its way, is nobody else's. */
static uint32_t next_generation(const fl_controller *controller)
{
    uint32_t asked = controller->elastic.last_asked, now = controller->plan.generation;
    return (asked > now ? asked : now) + 1;
}

/* The plan that an entry of the script asks for; what it does not name stays or is chosen. */
static fl_status scripted_plan(fl_controller *controller, const fl_script_entry *entry,
                               fl_plan *plan)
{
    fl_job job = *controller->options->job;
    fl_plan_input input = *controller->options->plan_input;
    job.pipe.k = entry->k >= 0 ? entry->k : controller->plan.K;
    job.pipe.m = entry->m >= 0 ? entry->m : controller->plan.M;
    job.autodp.r = entry->r >= 0 ? entry->r : controller->plan.R;
    input.job = &job;
    input.F = entry->f >= 0 ? entry->f : controller->plan.F;
    input.generation = next_generation(controller);
    FL_TRY(fl_worker_pool_choose(&controller->usable, &input, plan));
    fl_decide_place(controller, plan);
    return FL_OK;
}

static void prepare(fl_controller *controller, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    fl_command command = {.kind = FL_COMMAND_PREPARE, .due_step = e->due_step, .plan = e->next};
    fl_measure_watch(controller, true);
    fl_worker_pool_members(&controller->usable, &command.plan);
    fl_worker_pool_members(&controller->usable, &e->next);
    e->before = controller->plan;
    e->old_step_ms = fl_measure_step_ms(controller);
    e->predicted_ms = fl_measure_predict_ms(controller, &e->next);
    e->state = FL_ELASTIC_PREPARING;
    e->last_asked = e->next.generation;
    e->deadline_us = now_us + controller->options->job->fault.deadline_ms * 1000;
    e->n_ready = e->n_refused = e->n_over = 0;
    e->prepare_us = e->wait_us = e->vote_us = e->migrate_us = e->switch_us = e->stall_us = 0;
    e->moved_bytes = e->kept_bytes = 0;
    fl_event_log_prepare(controller);
    fl_router_command(&controller->router, &controller->plan, &command);
}

/* The entry of elastic.script that comes next; NULL: none. */
static const fl_script_entry *next_entry(const fl_controller *controller)
{
    const fl_job *job = controller->options->job;
    int i = controller->elastic.n_scripted;
    return controller->options->recording == NULL && i < job->elastic.n_script
               ? &job->elastic.script[i]
               : NULL;
}

static void begin_scripted(fl_controller *controller, const fl_script_entry *entry, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    e->n_scripted++;
    e->due = FL_DUE_SCRIPT;
    e->due_step = entry->step;
    e->next.generation = 0;
    snprintf(e->why, sizeof e->why, "elastic.script, step %lld", (long long)entry->step);
    if (scripted_plan(controller, entry, &e->next) != FL_OK) {
        cancel(controller, fl_errmsg());
        return;
    }
    prepare(controller, now_us);
}

/* Workers wait at the step, so they must also hear that nothing changes there. */
static void begin_decided(fl_controller *controller, int64_t effect, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    if (!fl_decide_next(controller, &e->next, e->why, sizeof e->why)) {
        fl_router_command(
            &controller->router, &controller->plan,
            &(fl_command){.kind = FL_COMMAND_PASS, .due_step = effect, .due = FL_DUE_POLICY});
        return;
    }
    e->next.generation = next_generation(controller);
    e->policy_asked = e->next.generation;
    e->due = FL_DUE_POLICY;
    e->due_step = effect;
    prepare(controller, now_us);
}

/* An entry is prepared ahead, but where entries are dense the time before it is not all spent on
 * that: what a person asks for has its turn in between. */
static bool is_near(const fl_controller *controller, const fl_script_entry *entry)
{
    bool first = controller->elastic.n_scripted == 0;
    int64_t gap = entry->step - (first ? 0 : entry[-1].step);
    int64_t ahead = controller->due.lead < gap / 2 ? controller->due.lead : gap / 2;
    return controller->stats.steps + ahead >= entry->step;
}

/* Script and policy: what takes effect first is begun first. So the order in which they meet is the
 * same in every run, and no worker waits at a step for which the answer comes after a later one. */
static void look_at_due(fl_controller *controller, int64_t now_us)
{
    const fl_script_entry *entry = next_entry(controller);
    int64_t effect = fl_decide_due(controller);
    if (effect > 0 && (entry == NULL || effect <= entry->step)) {
        begin_decided(controller, effect, now_us);
    } else if (entry != NULL && is_near(controller, entry)) {
        begin_scripted(controller, entry, now_us);
    }
}

/* Workers wait at a step for which an answer is due, so what is to be committed after it cannot be
 * begun before it. */
static fl_status check_due(const fl_controller *controller, int64_t due_step)
{
    int64_t between = fl_due_first(&controller->due, controller->stats.steps + 1, due_step);
    return between == 0 ? FL_OK
                        : fl_fail(FL_EBUSY, "a decision is due at step %lld", (long long)between);
}

static fl_status check_asked(const fl_controller *controller, const fl_plan *next, int64_t due_step)
{
    const fl_elastic *e = &controller->elastic;
    if (controller->shutdown.phase.state != FL_CONTROLLER_RUNNING ||
        controller->shutdown.phase.n_stops > 0) {
        return fl_fail(FL_EBUSY, "the run is %s",
                       controller->shutdown.phase.state == FL_CONTROLLER_STARTING ? "still starting"
                                                                                  : "about to end");
    }
    if (controller->options->recording != NULL) {
        return fl_fail(FL_EBUSY, "the run repeats another one, which has its plans");
    }
    if (e->state != FL_ELASTIC_IDLE) {
        return fl_fail(FL_EBUSY, "generation %u is on its way (%s)", e->next.generation, e->why);
    }
    FL_TRY(check_due(controller, due_step));
    FL_TRY(fl_plan_check(next));
    if (next->n_workers != controller->plan.n_workers ||
        next->n_layers != controller->plan.n_layers) {
        return fl_fail(FL_EINVAL, "a plan for %d layers on %d workers; the run has %d on %d",
                       next->n_layers, next->n_workers, controller->plan.n_layers,
                       controller->plan.n_workers);
    }
    return FL_OK;
}

fl_status fl_elastic_ask(fl_controller *controller, const fl_plan *next, int64_t due_step,
                         const char *why)
{
    fl_elastic *e = &controller->elastic;
    fl_plan placed = *next;
    FL_TRY(check_asked(controller, next, due_step));
    fl_decide_place(controller, &placed);
    FL_TRY(fl_decide_check_room(controller, &placed));
    e->next = placed;
    e->next.generation = next_generation(controller);
    e->due = FL_DUE_NONE;
    e->due_step = due_step;
    snprintf(e->why, sizeof e->why, "%s", why);
    prepare(controller, fl_now_us());
    return FL_OK;
}

/* The step at which a decision of the controller's own takes effect: not after one for which
 * workers wait. */
static int64_t step_ahead(const fl_controller *controller)
{
    int64_t now = controller->stats.steps, ahead = now + controller->due.lead;
    int64_t first = fl_due_first(&controller->due, now + 1, ahead);
    return first > 0 ? first : ahead;
}

static void look_at_tuner(fl_controller *controller, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    if (fl_tune_next_plan(controller, &e->next, e->why, sizeof e->why)) {
        e->next.generation = next_generation(controller);
        e->due = FL_DUE_NONE;
        e->due_step = step_ahead(controller);
        fl_tune_asked(controller, e->next.generation);
        prepare(controller, now_us);
    }
}

static void look_at_recording(fl_controller *controller, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    if (fl_replay_next_plan(controller, &e->next, &e->due_step, &e->due)) {
        e->next.generation = next_generation(controller);
        snprintf(e->why, sizeof e->why, "repeated, step %lld", (long long)e->due_step);
        prepare(controller, now_us);
    } else {
        fl_replay_watch(controller);
    }
}

static void look_at_all(fl_controller *controller, int64_t now_us)
{
    if (controller->options->recording != NULL) {
        look_at_recording(controller, now_us);
        return;
    }
    look_at_due(controller, now_us);
    if (controller->elastic.state == FL_ELASTIC_IDLE) {
        look_at_tuner(controller, now_us);
    }
}

/* ---- driving it ---- */

static void commit(fl_controller *controller, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    e->state = FL_ELASTIC_COMMITTING;
    e->deadline_us = now_us + controller->options->job->fault.deadline_ms * 1000;
    fl_router_command(
        &controller->router, &controller->plan,
        &(fl_command){.kind = FL_COMMAND_COMMIT, .due_step = e->due_step, .due = e->due});
}

/* All that is to be heard of a refusal has been heard, or it has been waited for long enough. */
static bool is_refused(const fl_controller *controller, int64_t now_us)
{
    const fl_elastic *e = &controller->elastic;
    return e->n_refused > 0 && (!fl_status_is_regroup(e->refusal) ||
                                e->n_ready + e->n_refused == fl_plan_members(&controller->plan) ||
                                now_us > e->opinion_us || now_us > e->deadline_us);
}

void fl_elastic_watch(fl_controller *controller, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    if (controller->shutdown.phase.state != FL_CONTROLLER_RUNNING ||
        controller->shutdown.phase.n_stops > 0) {
        return;
    }
    if (e->state == FL_ELASTIC_IDLE) {
        fl_measure_watch(controller, false);
        look_at_all(controller, now_us);
    } else if (e->state == FL_ELASTIC_PREPARING &&
               e->n_ready == fl_plan_members(&controller->plan)) {
        /* A command is heard one step after the leader takes it. */
        if (controller->stats.steps + 1 >= e->due_step) {
            commit(controller, now_us);
        }
    } else if (e->state == FL_ELASTIC_PREPARING && is_refused(controller, now_us)) {
        cancel(controller, e->refusal_text);
    } else if (e->state == FL_ELASTIC_PREPARING && now_us > e->deadline_us) {
        cancel(controller, "not everybody was ready within fault.deadline");
    }
}

/* The first refusal counts, unless a later one has a cause of its own: who only lost its peer says
 * little. */
static void refused(fl_elastic *e, const fl_worker *worker, const fl_prepared_report *report)
{
    bool better = e->n_refused == 0 ||
                  (fl_status_is_regroup(e->refusal) && !fl_status_is_regroup(report->status));
    if (e->n_refused++ == 0) {
        e->opinion_us = fl_now_us() + SECOND_OPINION_MS * 1000;
    }
    if (better) {
        e->refusal = report->status;
        snprintf(e->refusal_text, sizeof e->refusal_text, "worker %d refuses: %s", worker->rank,
                 report->text);
    }
}

void fl_elastic_prepared(fl_controller *controller, const fl_worker *worker,
                         const fl_prepared_report *report)
{
    fl_elastic *e = &controller->elastic;
    bool voted_down = e->state == FL_ELASTIC_COMMITTING && report->status != FL_OK;
    if (voted_down && report->generation == e->next.generation) {
        give_up(controller, report->text);
        settle(controller);
        return;
    }
    if (e->state != FL_ELASTIC_PREPARING || report->generation != e->next.generation) {
        fl_log(FL_LOG_DEBUG, "worker %d answers for generation %u, which nobody waits for",
               worker->rank, report->generation);
        return;
    }
    if (report->status != FL_OK) {
        refused(e, worker, report);
        return;
    }
    e->n_ready++;
    e->prepare_us = report->took_us > e->prepare_us ? report->took_us : e->prepare_us;
}

/* Everybody is a member of the generation that runs: nobody asks for the addresses of its group, or
 * of one before it, any more. */
static void forget_addresses(fl_controller *controller)
{
    fl_elastic *e = &controller->elastic;
    char prefix[32];
    while (e->last_forgotten < controller->plan.generation) {
        snprintf(prefix, sizeof prefix, "group/%u/", ++e->last_forgotten);
        fl_store_forget(controller->store, prefix);
        snprintf(prefix, sizeof prefix, "message/%u/", e->last_forgotten);
        fl_store_forget(controller->store, prefix);
    }
}

static void add_up(fl_elastic *e)
{
    e->sums.n_committed++;
    e->sums.stall_us += e->stall_us;
    e->sums.last_stall_us = e->stall_us;
    e->sums.moved_bytes += e->moved_bytes;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* When all have gone over who are there to go. */
static void look_whether_over(fl_controller *controller)
{
    fl_elastic *e = &controller->elastic;
    if (e->state == FL_ELASTIC_COMMITTING && e->n_over > 0 &&
        e->n_over >= fl_plan_members(&e->before)) {
        forget_addresses(controller);
        record(controller, true, e->first_step, e->why);
        add_up(e);
        fl_event_log_transition(controller);
        settle(controller);
    }
}

bool fl_elastic_counts_on(const fl_controller *controller, int rank)
{
    const fl_elastic *e = &controller->elastic;
    return e->state == FL_ELASTIC_COMMITTING && fl_plan_place(&e->next, rank).active;
}

void fl_elastic_without(fl_controller *controller, int rank, const char *why)
{
    fl_elastic *e = &controller->elastic;
    controller->usable.drained[rank] = true;
    controller->plan.departed[rank] = e->before.departed[rank] = e->next.departed[rank] = true;
    if (e->state == FL_ELASTIC_PREPARING && controller->shutdown.phase.n_stops == 0) {
        cancel(controller, why);
    }
    look_whether_over(controller);
}

/* The first worker that has gone over brings the controller along; the last one ends the
 * transition. Who departs has given away all that it had, and has reported all that it did. */
void fl_elastic_moved(fl_controller *controller, fl_worker *worker,
                      const fl_transition_parts *parts)
{
    fl_elastic *e = &controller->elastic;
    if (parts->generation != e->next.generation) {
        fl_log(FL_LOG_WARN, "worker %d went over to generation %u, which was never asked for",
               worker->rank, parts->generation);
        return;
    }
    if (controller->plan.generation != parts->generation) {
        controller->generation_before = controller->plan.generation;
        fl_decide_switching(controller, parts->step);
        fl_measure_switching(controller);
        fl_learn_end(controller);
        controller->plan = e->next;
        fl_learn_begin(controller);
        for (int i = 0; i < controller->n_workers; i++) {
            controller->workers[i].place = fl_plan_place(&controller->plan, i);
        }
        e->first_step = parts->step;
        fl_progress_plan(&controller->log.progress, &controller->plan);
    }
    e->vote_us = larger(e->vote_us, parts->vote_us);
    e->migrate_us = larger(e->migrate_us, parts->migrate_us);
    e->switch_us = larger(e->switch_us, parts->switch_us);
    e->wait_us = larger(e->wait_us, parts->wait_us);
    e->stall_us =
        larger(e->stall_us, parts->wait_us + parts->vote_us + parts->migrate_us + parts->switch_us);
    e->moved_bytes += parts->received_bytes;
    e->kept_bytes += parts->kept_bytes;
    if (controller->plan.departed[worker->rank]) {
        worker->departed = true;
        worker->departed_us = fl_now_us();
    }
    e->n_over++;
    look_whether_over(controller);
}
