/* Transitions between plans: a small transaction.
 *
 *     IDLE ── a change is due ──> PREPARE to all ──> PREPARING ──(all ready)──> COMMIT to all
 *      ^                                                  │                            │
 *      │<── CANCEL to all ──(a refusal, or too late)──────┘                            v
 *      └<──────────────(all have switched)───────────────────────────────────── COMMITTING
 *
 * Commands go to the leader, who broadcasts them at a control point; answers arrive over the link.
 * CANCEL answers for the step at which all wait, unless the change is taken up again (again.h).
 * If a worker is lost meanwhile, the others regroup:
 *
 *     any ── interrupt ──> RECOVERING ── resolve, force ──(all have switched)──> IDLE */
#include "control/elastic/elastic_transition.h"

#include "control/elastic/elastic_events.h"
#include "control/elastic/elastic_joining.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <string.h>

/* A worker that lost its peer may report before that peer reports the cause. */
enum { SECOND_OPINION_MS = 1000 };

/* ---- the end of a transition ---- */

/* Keep the outcome for the requester. Transitions of the script, the policy and the tuner have
 * none, and must not hide that of a request which ended in the same turn. */
static void record_outcome(fl_elastic *elastic, bool committed, int64_t step, const char *why,
                           bool may_pass)
{
    fl_transition *e = &elastic->transition;
    if (e->requested == 0 || e->next.generation != e->requested) {
        return;
    }
    fl_elastic_outcome *o = &e->outcomes[e->n_outcomes++ % FL_ELASTIC_OUTCOMES];
    *o = (fl_elastic_outcome){.generation = e->requested,
                              .committed = committed,
                              .may_pass = may_pass,
                              .step = step,
                              .grid = fl_plan_grid(&e->next)};
    snprintf(o->why, sizeof o->why, "%s", why);
}

const fl_elastic_outcome *fl_elastic_outcome_of(const fl_elastic *elastic, uint32_t generation)
{
    const fl_transition *e = &elastic->transition;
    for (int i = 0; i < e->n_outcomes && i < FL_ELASTIC_OUTCOMES; i++) {
        if (e->outcomes[i].generation == generation) {
            return &e->outcomes[i];
        }
    }
    return NULL;
}

static void give_up(fl_elastic *elastic, const char *why, bool may_pass)
{
    record_outcome(elastic, false, elastic->run->stats->steps, why, may_pass);
    elastic->transition.sums.n_cancelled++;
    fl_event_log_cancel(elastic, why, false);
}

/* The workers go on waiting at its step. */
static void take_up_again(fl_elastic *elastic, const char *why)
{
    fl_event_log_cancel(elastic, why, true);
    fl_again_put_back(elastic);
}

/* The workers drop the generation that they have prepared, and no answer is given. */
static void postpone(fl_elastic *elastic, const char *why)
{
    fl_command command = {.kind = FL_COMMAND_CANCEL};
    elastic->transition.state = FL_ELASTIC_IDLE;
    take_up_again(elastic, why);
    fl_router_command(elastic->router, &elastic->plan, &command);
    fl_elastic_tell_joining(elastic, &command);
}

static void cancel_change(fl_elastic *elastic, const char *why, bool may_pass)
{
    fl_transition *e = &elastic->transition;
    fl_command command = {.kind = FL_COMMAND_CANCEL, .due_step = e->due_step, .due = e->due};
    e->state = FL_ELASTIC_IDLE;
    give_up(elastic, why, may_pass);
    fl_router_command(elastic->router, &elastic->plan, &command);
    fl_elastic_tell_joining(elastic, &command);
}

void fl_elastic_cancel(fl_elastic *elastic, const char *why)
{
    cancel_change(elastic, why, false);
}

/* Connections that broke, or a limit of time: the workers are as they were. */
static bool may_pass(fl_status status)
{
    return fl_status_is_regroup(status) || status == FL_EIO || status == FL_EDEADLINE;
}

/* An attempt has failed. */
static void fail_attempt(fl_elastic *elastic, fl_status status, const char *why, int64_t now_us)
{
    if (fl_again_may_pass(elastic, status, now_us)) {
        fl_again_count(elastic, now_us);
        postpone(elastic, why);
    } else {
        cancel_change(elastic, why, may_pass(status));
    }
}

void fl_elastic_leave(fl_elastic *elastic)
{
    const char *why = elastic->run->phase->back.returns
                          ? "the run goes back before the change could take effect"
                          : "the run ended before the change could take effect";
    if (elastic->transition.state == FL_ELASTIC_PREPARING) {
        elastic->transition.state = FL_ELASTIC_IDLE;
        give_up(elastic, why, false);
    }
}

/* A commit is over, with or without a change. A stop requested during the commit was not forwarded.
 * Send it now: the leader and the standby workers may have changed. */
static void settle_transition(fl_elastic *elastic)
{
    elastic->transition.state = FL_ELASTIC_IDLE;
    if (elastic->run->phase->n_stops > 0) {
        fl_router_command(elastic->router, &elastic->plan, &(fl_command){.kind = FL_COMMAND_STOP});
    }
}

/* The answers of the workers to a transition to `next`. */
static void begin_counting(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    e->old_step_ms = fl_measure_step_ms(elastic);
    e->predicted_ms = fl_measure_predict_ms(elastic, &e->next);
    e->last_asked = e->next.generation;
    e->forced = false;
    e->n_ready = e->n_refused = e->n_over = 0;
    e->prepare_us = e->wait_us = e->vote_us = e->migrate_us = e->switch_us = e->stall_us = 0;
    e->moved_bytes = e->kept_bytes = e->device_bytes = 0;
    memset(e->part, 0, sizeof e->part);
    e->comm = FL_COMM_NONE;
    e->comm_us = 0;
}

void fl_elastic_prepare(fl_elastic *elastic, const fl_elastic_terms *terms, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    e->terms = *terms;
    fl_worker_pool_members(&e->terms.usable, &e->next);
    fl_command command = {.kind = FL_COMMAND_PREPARE, .due_step = e->due_step, .plan = e->next};
    fl_measure_watch(elastic, true);
    e->before = elastic->plan;
    memset(e->lost, 0, sizeof e->lost);
    begin_counting(elastic);
    e->state = FL_ELASTIC_PREPARING;
    e->deadline_us = now_us + elastic->run->options->job->fault.deadline_ms * 1000;
    fl_event_log_prepare(elastic);
    fl_router_command(elastic->router, &elastic->plan, &command);
    fl_elastic_tell_joining(elastic, &command);
}

/* ---- driving a transition ---- */

static void commit_next(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    e->state = FL_ELASTIC_COMMITTING;
    e->deadline_us = now_us + elastic->run->options->job->fault.deadline_ms * 1000;
    fl_router_command(
        elastic->router, &elastic->plan,
        &(fl_command){.kind = FL_COMMAND_COMMIT, .due_step = e->due_step, .due = e->due});
}

/* Whether to cancel: every answer has arrived, the refusal names a cause of its own, or the wait
 * for a better cause has lasted long enough. */
static bool is_refused(const fl_elastic *elastic, int64_t now_us)
{
    const fl_transition *e = &elastic->transition;
    return e->n_refused > 0 && (!fl_status_is_regroup(e->refusal) ||
                                e->n_ready + e->n_refused == fl_elastic_count_preparing(elastic) ||
                                now_us > e->opinion_us || now_us > e->deadline_us);
}

/* Whether the workers wait at the present step for another answer, while the commit belongs to a
 * later one: it would take effect too early. */
static bool is_too_early(const fl_elastic *elastic)
{
    int64_t now = elastic->run->stats->steps;
    return elastic->transition.due_step > now && elastic->run->stats->stop.judged < now &&
           fl_due_at(&elastic->due, FL_DUE_STOP, now);
}

/* A command is applied one step after the leader takes it, so a commit is sent one step ahead,
 * unless the workers are to save a state that is not older than the one at its step. */
static bool is_time_to_commit(const fl_elastic *elastic, int64_t save_step)
{
    int64_t due_step = elastic->transition.due_step;
    bool saves_first = due_step > 0 && save_step >= due_step;
    int64_t taken_at = elastic->run->stats->steps + (saves_first ? 0 : 1);
    return taken_at >= due_step && !is_too_early(elastic);
}

/* The workers' calls that open communicators never report by themselves: each may wait for the
 * others. */
static void cancel_late(fl_elastic *elastic, int64_t now_us)
{
    char calls[512], why[640];
    fl_flight_dump_openings(elastic->dump, calls, sizeof calls);
    fl_flight_dump_write(elastic->dump);
    snprintf(why, sizeof why, "not every worker was ready within fault.deadline%s%s",
             calls[0] == 0 ? "" : ": ", calls);
    fail_attempt(elastic, FL_EDEADLINE, why, now_us);
}

void fl_elastic_drive(fl_elastic *elastic, int64_t save_step, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (e->state != FL_ELASTIC_PREPARING) {
        return;
    }
    if (e->n_ready == fl_elastic_count_preparing(elastic)) {
        if (is_time_to_commit(elastic, save_step)) {
            commit_next(elastic, now_us);
        }
    } else if (is_refused(elastic, now_us)) {
        fail_attempt(elastic, e->refusal, e->refusal_text, now_us);
    } else if (now_us > e->deadline_us) {
        cancel_late(elastic, now_us);
    }
}

/* Keep the first refusal, unless a later one names a cause of its own: a worker that only lost its
 * peer does not know the cause. */
static void refused(fl_transition *e, const fl_worker *worker, const fl_prepared_report *report)
{
    bool better = e->n_refused == 0 ||
                  (fl_status_is_regroup(e->refusal) && !fl_status_is_regroup(report->status));
    if (e->n_refused++ == 0) {
        e->opinion_us = fl_now_us() + SECOND_OPINION_MS * 1000;
    }
    if (better) {
        e->refusal = report->status;
        snprintf(e->refusal_text, sizeof e->refusal_text, "worker %d refuses: %s", worker->rank,
                 fl_failure_reason(report->status, report->text));
    }
}

/* All workers stay in the running generation. Those that wait at the change's step go on waiting
 * for its answer. */
static void vote_down(fl_elastic *elastic, const fl_prepared_report *report)
{
    if (fl_again_is_possible(elastic)) {
        fail_attempt(elastic, report->status, fl_failure_reason(report->status, report->text),
                     fl_now_us());
    } else {
        give_up(elastic, fl_failure_reason(report->status, report->text), may_pass(report->status));
        fl_elastic_tell_joining(elastic, &(fl_command){.kind = FL_COMMAND_CANCEL});
    }
    settle_transition(elastic);
}

void fl_elastic_prepared(fl_elastic *elastic, const fl_worker *worker,
                         const fl_prepared_report *report)
{
    fl_transition *e = &elastic->transition;
    bool voted_down = e->state == FL_ELASTIC_COMMITTING && report->status != FL_OK;
    if (voted_down && report->generation == e->next.generation) {
        vote_down(elastic, report);
        return;
    }
    if (e->state != FL_ELASTIC_PREPARING || report->generation != e->next.generation) {
        fl_log(FL_LOG_DEBUG, "worker %d answers for generation %u, which is not being prepared",
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

/* Every worker is a member of the running generation, so none asks for the addresses of its group,
 * or of an earlier one, any more. */
static void forget_addresses(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    char prefix[32];
    while (e->last_forgotten < elastic->plan.generation) {
        snprintf(prefix, sizeof prefix, "group/%u/", ++e->last_forgotten);
        fl_store_forget(elastic->store, prefix);
        snprintf(prefix, sizeof prefix, "message/%u/", e->last_forgotten);
        fl_store_forget(elastic->store, prefix);
    }
}

static void add_up(fl_transition *e)
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

static void note_committed(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    forget_addresses(elastic);
    record_outcome(elastic, true, e->first_step, e->why, false);
    add_up(e);
    fl_event_log_transition(elastic);
}

/* Finish once every remaining member has switched to the new generation. */
static void look_whether_over(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    if (fl_elastic_is_switching(elastic) && !e->unresolved && e->n_over > 0 &&
        e->n_over >= fl_plan_members(&e->before)) {
        note_committed(elastic);
        settle_transition(elastic);
    }
}

void fl_elastic_forgive(fl_elastic *elastic, int64_t gap_us)
{
    elastic->transition.deadline_us += gap_us;
    elastic->transition.opinion_us += gap_us;
    elastic->transition.again.until_us += gap_us;
    fl_tune_forgive(elastic, gap_us);
}

bool fl_elastic_counts_on(const fl_elastic *elastic, int rank)
{
    const fl_transition *e = &elastic->transition;
    return e->state == FL_ELASTIC_COMMITTING && fl_plan_place(&e->next, rank).active;
}

void fl_elastic_without(fl_elastic *elastic, int rank, const char *why)
{
    fl_transition *e = &elastic->transition;
    elastic->usable.drained[rank] = e->terms.usable.drained[rank] = true;
    elastic->plan.departed[rank] = e->before.departed[rank] = e->next.departed[rank] = true;
    if (e->state == FL_ELASTIC_PREPARING && elastic->run->phase->n_stops == 0) {
        if (fl_again_is_possible(elastic)) {
            postpone(elastic, why);
        } else {
            fl_elastic_cancel(elastic, why);
        }
    }
    look_whether_over(elastic);
}

/* The running plan becomes `next`, whose first step is `step`. */
static void switch_plan(fl_elastic *elastic, int64_t step)
{
    fl_transition *e = &elastic->transition;
    elastic->generation_before = elastic->plan.generation;
    fl_decide_switching(elastic, step);
    fl_measure_switching(elastic);
    fl_learn_end(elastic);
    elastic->plan = e->next;
    fl_router_note_answer(elastic->router, e->due, e->due_step);
    fl_elastic_terms_set(elastic, &e->terms);
    fl_learn_begin(elastic);
    fl_workers_place(elastic->workers, elastic->run->n_workers, &elastic->plan);
    fl_elastic_enter_joining(elastic);
    e->first_step = step;
    fl_progress_plan(&elastic->log->progress, &elastic->plan);
}

/* The times of members that train or stand by in the next plan: those of one that departs hold
 * nobody up. */
static void add_times(fl_transition *e, const fl_transition_parts *parts)
{
    e->vote_us = larger(e->vote_us, parts->vote_us);
    e->migrate_us = larger(e->migrate_us, parts->migrate_us);
    e->switch_us = larger(e->switch_us, parts->switch_us);
    e->wait_us = larger(e->wait_us, parts->wait_us);
    e->stall_us =
        larger(e->stall_us, parts->wait_us + parts->vote_us + parts->migrate_us + parts->switch_us);
}

static void add_parts(fl_transition *e, const fl_transition_parts *parts)
{
    e->moved_bytes += parts->received_bytes;
    e->kept_bytes += parts->kept_bytes;
    e->device_bytes += parts->device_bytes;
    for (int way = 0; way < FL_TRANSFER_WAYS; way++) {
        e->part[way].pairs += parts->part[way].pairs;
        e->part[way].bytes += parts->part[way].bytes;
        e->part[way].us = larger(e->part[way].us, parts->part[way].us);
    }
    e->comm = parts->comm != FL_COMM_NONE ? parts->comm : e->comm; /* standby workers open none */
    e->comm_us = larger(e->comm_us, parts->comm_us);
    e->n_over++;
}

/* When the first worker has switched, the controller switches, too; the last one ends the
 * transition. A departing worker has by then handed over all its state and sent all its reports. */
void fl_elastic_moved(fl_elastic *elastic, fl_worker *worker, const fl_transition_parts *parts)
{
    fl_transition *e = &elastic->transition;
    if (parts->generation != e->next.generation) {
        if (parts->generation != elastic->plan.generation) { /* else it was resolved before */
            fl_log(FL_LOG_WARN, "worker %d switched to generation %u, which was never requested",
                   worker->rank, parts->generation);
        }
        return;
    }
    if (elastic->plan.generation != parts->generation) {
        switch_plan(elastic, parts->step);
    }
    if (elastic->plan.departed[worker->rank]) {
        fl_worker_depart(worker, fl_now_us());
    } else {
        add_times(e, parts);
    }
    add_parts(e, parts);
    look_whether_over(elastic);
}

/* ---- after a loss ---- */

bool fl_elastic_is_switching(const fl_elastic *elastic)
{
    fl_elastic_state state = elastic->transition.state;
    return state == FL_ELASTIC_COMMITTING || state == FL_ELASTIC_RECOVERING;
}

/* The members drop the generation that they have prepared by themselves when they regroup. */
static void leave_change(fl_elastic *elastic, const char *why)
{
    if (fl_again_is_possible(elastic)) {
        take_up_again(elastic, why);
    } else {
        give_up(elastic, why, false);
    }
    fl_elastic_tell_joining(elastic, &(fl_command){.kind = FL_COMMAND_CANCEL});
}

void fl_elastic_interrupt(fl_elastic *elastic, const char *why)
{
    fl_transition *e = &elastic->transition;
    e->unresolved = e->unresolved || e->state == FL_ELASTIC_COMMITTING ||
                    (e->state == FL_ELASTIC_RECOVERING && e->forced);
    if (e->state == FL_ELASTIC_PREPARING) {
        leave_change(elastic, why);
    }
    e->state = FL_ELASTIC_RECOVERING;
}

void fl_elastic_resolve(fl_elastic *elastic, uint32_t generation, int64_t step, const char *why)
{
    fl_transition *e = &elastic->transition;
    if (!e->unresolved) {
        return;
    }
    e->unresolved = false;
    if (generation != e->next.generation) {
        leave_change(elastic, why);
        return;
    }
    if (elastic->plan.generation != generation) {
        switch_plan(elastic, step);
    }
    note_committed(elastic);
}

void fl_elastic_force(fl_elastic *elastic, const fl_plan *next, const char *why)
{
    fl_transition *e = &elastic->transition;
    fl_measure_watch(elastic, true);
    e->before = elastic->plan;
    e->next = *next;
    for (int rank = 0; rank < next->n_workers; rank++) {
        e->lost[rank] = elastic->workers[rank].lost && !elastic->plan.departed[rank];
        e->before.departed[rank] = e->before.departed[rank] || e->lost[rank];
    }
    e->terms = fl_elastic_terms_now(elastic);
    begin_counting(elastic);
    e->forced = true;
    e->requested = 0;
    e->due = FL_DUE_NONE;
    e->due_step = 0;
    e->state = FL_ELASTIC_RECOVERING;
    snprintf(e->why, sizeof e->why, "%s", why);
}
