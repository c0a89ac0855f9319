/* Transitions between plans: a small transaction.
 *
 *     IDLE ── a change is due ──> PREPARE to all ──> PREPARING ──(all ready)──> COMMIT to all
 *      ^                                                  │                            │
 *      │<── CANCEL to all ──(a refusal, or too late)──────┘                            v
 *      └<──────────────(all have switched)───────────────────────────────────── COMMITTING
 *
 * Commands go to the leader, who broadcasts them at a control point; answers arrive over the link.
 * If a worker is lost meanwhile, shutdown.c handles it: a transition has no way of its own to end a
 * run. */
#include "control/elastic/elastic.h"
#include "control/elastic/elastic_events.h"

#include "device/clock.h"
#include "device/log.h"

#include <stdio.h>
#include <string.h>

enum {
    SECOND_OPINION_MS = 1000
}; /* a worker that lost its peer may report before that peer reports the cause */

fl_status fl_elastic_open(fl_elastic *elastic)
{
    const fl_controller_options *o = elastic->run->options;
    FL_TRY(fl_stragglers_open(elastic));
    FL_TRY(fl_decide_open(elastic));
    FL_TRY(fl_learn_open(elastic));
    elastic->due = (fl_due_steps){.job = o->job,
                                  .steps_per_epoch = elastic->run->stats->steps_per_epoch,
                                  .n_steps = o->n_steps,
                                  .recording = o->recording,
                                  .lead = o->lead};
    return FL_OK;
}

void fl_elastic_close(fl_elastic *elastic)
{
    fl_stragglers_close(elastic);
    fl_decide_close(elastic);
    fl_learn_close(elastic);
}

void fl_elastic_end(fl_elastic *elastic)
{
    fl_measure_watch(elastic, true);
    fl_learn_end(elastic);
}

/* ---- the pool of later plans ---- */

void fl_elastic_pin(fl_elastic *elastic, int block, bool pinned)
{
    elastic->pinned[block - 1] = elastic->transition.terms.pinned[block - 1] = pinned;
}

/* ---- the end of a transition ---- */

/* Keep the outcome for the requester. Transitions of the script, the policy and the tuner have
 * none, and must not hide that of a request which ended in the same turn. */
static void record_outcome(fl_elastic *elastic, bool committed, int64_t step, const char *why)
{
    fl_transition *e = &elastic->transition;
    if (e->requested == 0 || e->next.generation != e->requested) {
        return;
    }
    fl_elastic_outcome *o = &e->outcomes[e->n_outcomes++ % FL_ELASTIC_OUTCOMES];
    *o = (fl_elastic_outcome){.generation = e->requested,
                              .committed = committed,
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

static void give_up(fl_elastic *elastic, const char *why)
{
    record_outcome(elastic, false, elastic->run->stats->steps, why);
    elastic->transition.sums.n_cancelled++;
    fl_event_log_cancel(elastic, why);
}

static void cancel_transition(fl_elastic *elastic, const char *why)
{
    fl_transition *e = &elastic->transition;
    fl_command command = {.kind = FL_COMMAND_CANCEL, .due_step = e->due_step, .due = e->due};
    e->state = FL_ELASTIC_IDLE;
    give_up(elastic, why);
    fl_router_command(elastic->router, &elastic->plan, &command);
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

/* ---- the start of a transition ---- */

/* Each generation number is used once, even if its generation was cancelled: entries in the store
 * and messages in flight that carry the number then never belong to another generation. */
static uint32_t next_generation(const fl_elastic *elastic)
{
    uint32_t asked = elastic->transition.last_asked, now = elastic->plan.generation;
    return (asked > now ? asked : now) + 1;
}

/* The plan that an entry of the script asks for; values that the entry leaves out stay or are
 * chosen. */
static fl_status scripted_plan(fl_elastic *elastic, const fl_script_entry *entry, fl_plan *plan)
{
    fl_job job = *elastic->run->options->job;
    fl_plan_input input = *elastic->run->options->plan_input;
    job.pipe.k = entry->k >= 0 ? entry->k : elastic->plan.K;
    job.pipe.m = entry->m >= 0 ? entry->m : elastic->plan.M;
    job.autodp.r = entry->r >= 0 ? entry->r : elastic->plan.R;
    input.job = &job;
    input.F = entry->f >= 0 ? entry->f : elastic->plan.F;
    input.generation = next_generation(elastic);
    FL_TRY(fl_worker_pool_choose(&elastic->usable, &input, plan));
    fl_decide_place(elastic, &elastic->usable, plan);
    return FL_OK;
}

fl_elastic_terms fl_elastic_terms_now(const fl_elastic *elastic)
{
    fl_elastic_terms terms = {.usable = elastic->usable, .m = elastic->job->pipe.m};
    memcpy(terms.pinned, elastic->pinned, sizeof terms.pinned);
    return terms;
}

void fl_elastic_terms_set(fl_elastic *elastic, const fl_elastic_terms *terms)
{
    elastic->usable = terms->usable;
    memcpy(elastic->pinned, terms->pinned, sizeof elastic->pinned);
    elastic->job->pipe.m = terms->m;
}

/* Ask the workers to prepare e->next, with which *terms come into force. */
static void prepare_next_with(fl_elastic *elastic, const fl_elastic_terms *terms, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    e->terms = *terms;
    fl_worker_pool_members(&e->terms.usable, &e->next);
    fl_command command = {.kind = FL_COMMAND_PREPARE, .due_step = e->due_step, .plan = e->next};
    fl_measure_watch(elastic, true);
    e->before = elastic->plan;
    e->old_step_ms = fl_measure_step_ms(elastic);
    e->predicted_ms = fl_measure_predict_ms(elastic, &e->next);
    e->state = FL_ELASTIC_PREPARING;
    e->last_asked = e->next.generation;
    e->deadline_us = now_us + elastic->run->options->job->fault.deadline_ms * 1000;
    e->n_ready = e->n_refused = e->n_over = 0;
    e->prepare_us = e->wait_us = e->vote_us = e->migrate_us = e->switch_us = e->stall_us = 0;
    e->moved_bytes = e->kept_bytes = 0;
    fl_event_log_prepare(elastic);
    fl_router_command(elastic->router, &elastic->plan, &command);
}

static void prepare_next(fl_elastic *elastic, int64_t now_us)
{
    fl_elastic_terms now = fl_elastic_terms_now(elastic);
    prepare_next_with(elastic, &now, now_us);
}

/* The next entry of elastic.script; NULL: none is left. */
static const fl_script_entry *next_entry(const fl_elastic *elastic)
{
    const fl_job *job = elastic->run->options->job;
    int i = elastic->transition.n_scripted;
    return elastic->run->options->recording == NULL && i < job->elastic.n_script
               ? &job->elastic.script[i]
               : NULL;
}

static void begin_scripted(fl_elastic *elastic, const fl_script_entry *entry, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    e->n_scripted++;
    e->due = FL_DUE_SCRIPT;
    e->due_step = entry->step;
    e->next.generation = 0;
    snprintf(e->why, sizeof e->why, "elastic.script, step %lld", (long long)entry->step);
    if (scripted_plan(elastic, entry, &e->next) != FL_OK) {
        cancel_transition(elastic, fl_errmsg());
        return;
    }
    prepare_next(elastic, now_us);
}

/* Workers wait at this step, so they must also learn that nothing changes there. */
static void begin_decided(fl_elastic *elastic, int64_t effect, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (!fl_decide_next(elastic, &e->next, e->why, sizeof e->why)) {
        fl_router_command(
            elastic->router, &elastic->plan,
            &(fl_command){.kind = FL_COMMAND_PASS, .due_step = effect, .due = FL_DUE_POLICY});
        return;
    }
    e->next.generation = next_generation(elastic);
    e->policy_asked = e->next.generation;
    e->due = FL_DUE_POLICY;
    e->due_step = effect;
    prepare_next(elastic, now_us);
}

/* Whether it is time to prepare this entry. Preparation starts `lead` steps ahead, but at most half
 * the gap to the entry before: between dense entries, requests of users must get their turn. */
static bool is_near(const fl_elastic *elastic, const fl_script_entry *entry)
{
    bool first = elastic->transition.n_scripted == 0;
    int64_t gap = entry->step - (first ? 0 : entry[-1].step);
    int64_t ahead = elastic->due.lead < gap / 2 ? elastic->due.lead : gap / 2;
    return elastic->run->stats->steps + ahead >= entry->step;
}

/* Between script and policy, the change that takes effect first is prepared first. Their order is
 * therefore the same in every run, and no worker waits at a step whose answer comes after a later
 * one. */
static void look_at_due(fl_elastic *elastic, int64_t now_us)
{
    const fl_script_entry *entry = next_entry(elastic);
    int64_t effect = fl_decide_due(elastic);
    if (effect > 0 && (entry == NULL || effect <= entry->step)) {
        begin_decided(elastic, effect, now_us);
    } else if (entry != NULL && is_near(elastic, entry)) {
        begin_scripted(elastic, entry, now_us);
    }
}

/* Workers wait at a step for which an answer is due, so a change that commits after that step must
 * not be prepared before it. */
static fl_status check_due(const fl_elastic *elastic, int64_t due_step)
{
    int64_t between = fl_due_first(&elastic->due, elastic->run->stats->steps + 1, due_step);
    return between == 0 ? FL_OK
                        : fl_fail(FL_EBUSY, "a decision is due at step %lld", (long long)between);
}

static fl_status check_asked(const fl_elastic *elastic, const fl_plan *next, int64_t due_step)
{
    const fl_transition *e = &elastic->transition;
    if (elastic->run->phase->state != FL_CONTROLLER_RUNNING || elastic->run->phase->n_stops > 0) {
        return fl_fail(FL_EBUSY, "the run is %s",
                       elastic->run->phase->state == FL_CONTROLLER_STARTING ? "still starting"
                                                                            : "about to end");
    }
    if (elastic->run->options->recording != NULL) {
        return fl_fail(FL_EBUSY, "the run repeats another one, which has its plans");
    }
    if (e->state != FL_ELASTIC_IDLE) {
        return fl_fail(FL_EBUSY,
                       "another change of the plan (generation %u: %s) is in progress; retry when "
                       "it has finished",
                       e->next.generation, e->why);
    }
    FL_TRY(check_due(elastic, due_step));
    FL_TRY(fl_plan_check(next));
    if (next->n_workers != elastic->plan.n_workers || next->n_layers != elastic->plan.n_layers) {
        return fl_fail(FL_EINVAL, "a plan for %d layers on %d workers; the run has %d on %d",
                       next->n_layers, next->n_workers, elastic->plan.n_layers,
                       elastic->plan.n_workers);
    }
    return FL_OK;
}

fl_status fl_elastic_ask_with(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                              const fl_elastic_terms *terms, const char *why)
{
    fl_transition *e = &elastic->transition;
    fl_plan placed = *next;
    FL_TRY(check_asked(elastic, next, due_step));
    fl_decide_place(elastic, &terms->usable, &placed);
    FL_TRY(fl_decide_check_room(elastic, &placed));
    e->next = placed;
    e->next.generation = e->requested = next_generation(elastic);
    e->due = FL_DUE_NONE;
    e->due_step = due_step;
    snprintf(e->why, sizeof e->why, "%s", why);
    prepare_next_with(elastic, terms, fl_now_us());
    return FL_OK;
}

fl_status fl_elastic_ask(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                         const char *why)
{
    fl_elastic_terms now = fl_elastic_terms_now(elastic);
    return fl_elastic_ask_with(elastic, next, due_step, &now, why);
}

/* The step at which a decision of the controller itself takes effect: at the latest the first step
 * at which workers wait anyway. */
static int64_t step_ahead(const fl_elastic *elastic)
{
    int64_t now = elastic->run->stats->steps, ahead = now + elastic->due.lead;
    int64_t first = fl_due_first(&elastic->due, now + 1, ahead);
    return first > 0 ? first : ahead;
}

static void look_at_tuner(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (fl_tune_next_plan(elastic, &e->next, e->why, sizeof e->why)) {
        e->next.generation = next_generation(elastic);
        e->due = FL_DUE_NONE;
        e->due_step = step_ahead(elastic);
        fl_tune_asked(elastic, e->next.generation);
        prepare_next(elastic, now_us);
    }
}

static void look_at_recording(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (fl_replay_next_plan(elastic, &e->next, &e->due_step, &e->due)) {
        e->next.generation = next_generation(elastic);
        snprintf(e->why, sizeof e->why, "repeated, step %lld", (long long)e->due_step);
        fl_elastic_terms terms = fl_elastic_terms_now(elastic);
        memcpy(terms.usable.drained, e->next.departed, sizeof e->next.departed);
        prepare_next_with(elastic, &terms, now_us);
    } else {
        fl_replay_watch(elastic);
    }
}

static void look_at_all(fl_elastic *elastic, int64_t now_us)
{
    if (elastic->run->options->recording != NULL) {
        look_at_recording(elastic, now_us);
        return;
    }
    look_at_due(elastic, now_us);
    if (elastic->transition.state == FL_ELASTIC_IDLE) {
        look_at_tuner(elastic, now_us);
    }
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
                                e->n_ready + e->n_refused == fl_plan_members(&elastic->plan) ||
                                now_us > e->opinion_us || now_us > e->deadline_us);
}

void fl_elastic_watch(fl_elastic *elastic, int64_t now_us)
{
    fl_transition *e = &elastic->transition;
    if (elastic->run->phase->state != FL_CONTROLLER_RUNNING || elastic->run->phase->n_stops > 0) {
        return;
    }
    if (e->state == FL_ELASTIC_IDLE) {
        fl_measure_watch(elastic, false);
        look_at_all(elastic, now_us);
    } else if (e->state == FL_ELASTIC_PREPARING && e->n_ready == fl_plan_members(&elastic->plan)) {
        /* A command is applied one step after the leader takes it. */
        if (elastic->run->stats->steps + 1 >= e->due_step) {
            commit_next(elastic, now_us);
        }
    } else if (e->state == FL_ELASTIC_PREPARING && is_refused(elastic, now_us)) {
        cancel_transition(elastic, e->refusal_text);
    } else if (e->state == FL_ELASTIC_PREPARING && now_us > e->deadline_us) {
        cancel_transition(elastic, "not every worker was ready within fault.deadline");
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
                 report->text);
    }
}

void fl_elastic_prepared(fl_elastic *elastic, const fl_worker *worker,
                         const fl_prepared_report *report)
{
    fl_transition *e = &elastic->transition;
    bool voted_down = e->state == FL_ELASTIC_COMMITTING && report->status != FL_OK;
    if (voted_down && report->generation == e->next.generation) {
        give_up(elastic, report->text);
        settle_transition(elastic);
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

/* Finish once every remaining member has switched to the new generation. */
static void look_whether_over(fl_elastic *elastic)
{
    fl_transition *e = &elastic->transition;
    if (e->state == FL_ELASTIC_COMMITTING && e->n_over > 0 &&
        e->n_over >= fl_plan_members(&e->before)) {
        forget_addresses(elastic);
        record_outcome(elastic, true, e->first_step, e->why);
        add_up(e);
        fl_event_log_transition(elastic);
        settle_transition(elastic);
    }
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
        cancel_transition(elastic, why);
    }
    look_whether_over(elastic);
}

/* When the first worker has switched, the controller switches, too; the last one ends the
 * transition. A departing worker has by then handed over all its state and sent all its reports. */
void fl_elastic_moved(fl_elastic *elastic, fl_worker *worker, const fl_transition_parts *parts)
{
    fl_transition *e = &elastic->transition;
    if (parts->generation != e->next.generation) {
        fl_log(FL_LOG_WARN, "worker %d switched to generation %u, which was never requested",
               worker->rank, parts->generation);
        return;
    }
    if (elastic->plan.generation != parts->generation) {
        elastic->generation_before = elastic->plan.generation;
        fl_decide_switching(elastic, parts->step);
        fl_measure_switching(elastic);
        fl_learn_end(elastic);
        elastic->plan = e->next;
        fl_elastic_terms_set(elastic, &e->terms);
        fl_learn_begin(elastic);
        fl_workers_place(elastic->workers, elastic->run->n_workers, &elastic->plan);
        e->first_step = parts->step;
        fl_progress_plan(&elastic->log->progress, &elastic->plan);
    }
    e->vote_us = larger(e->vote_us, parts->vote_us);
    e->migrate_us = larger(e->migrate_us, parts->migrate_us);
    e->switch_us = larger(e->switch_us, parts->switch_us);
    e->wait_us = larger(e->wait_us, parts->wait_us);
    e->stall_us =
        larger(e->stall_us, parts->wait_us + parts->vote_us + parts->migrate_us + parts->switch_us);
    e->moved_bytes += parts->received_bytes;
    e->kept_bytes += parts->kept_bytes;
    if (elastic->plan.departed[worker->rank]) {
        fl_worker_depart(worker, fl_now_us());
    }
    e->n_over++;
    look_whether_over(elastic);
}
