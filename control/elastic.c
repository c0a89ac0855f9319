/* Transitions as the head sees them: a small transaction.
 *
 *     IDLE ── something is due ──> PREPARE to all ──> PREPARING ──(all ready)──> COMMIT to all
 *      ^                                                  │                            │
 *      │<── CANCEL to all ──(a refusal, or too late)──────┘                            v
 *      └<──────────────(all have gone over)──────────────────────────────────── COMMITTING
 *
 * Verdicts go to the speaker, who tells them at a control point; answers come over the link. What
 * is lost in the middle is for ending.c: a transition adds no way of its own to end a run. */
#include "control/controller.h"

#include "device/clock.h"
#include "device/log.h"

#include <stdio.h>
#include <string.h>

enum {
    STEPS_AHEAD = 6,          /* a scripted transition is prepared that long before it is due */
    SECOND_OPINION_MS = 1000, /* who lost a peer may be heard before that peer has said why */
};

/* For whoever asked. */
static void record(fl_head *head, bool committed, int64_t step, const char *why)
{
    fl_elastic_outcome *o = &head->elastic.outcome;
    *o = (fl_elastic_outcome){
        .generation = head->elastic.next.generation, .committed = committed, .step = step};
    snprintf(o->why, sizeof o->why, "%s", why);
}

static void give_up(fl_head *head, const char *why)
{
    record(head, false, head->tally.steps, why);
    head->elastic.sums.n_cancelled++;
    fl_story_cancel(head, why);
}

static void cancel(fl_head *head, const char *why)
{
    fl_verdict verdict = {.kind = FL_VERDICT_CANCEL, .due_step = head->elastic.due_step};
    head->elastic.state = FL_ELASTIC_IDLE;
    give_up(head, why);
    fl_inbox_verdict(head, &verdict);
}

/* A commit is over, with or without a change. Who wished to stop meanwhile was not told to whoever
 * spoke then: it may be another now, and others stand by. */
static void settle(fl_head *head)
{
    head->elastic.state = FL_ELASTIC_IDLE;
    if (head->n_stops > 0) {
        fl_inbox_verdict(head, &(fl_verdict){.kind = FL_VERDICT_STOP});
    }
}

/* ---- beginning one ---- */

/* A number is used once, also when its generation was cancelled: what it left in the store, or has
 * still on its way, is nobody else's. */
static uint32_t next_generation(const fl_head *head)
{
    uint32_t asked = head->elastic.last_asked, now = head->plan.generation;
    return (asked > now ? asked : now) + 1;
}

/* The plan that an entry of the script asks for; what it does not name stays or is chosen. */
static fl_status scripted_plan(fl_head *head, const fl_script_entry *entry, fl_plan *plan)
{
    fl_job job = *head->options->job;
    fl_plan_input input = *head->options->plan_input;
    job.pipe.k = entry->k >= 0 ? entry->k : head->plan.K;
    job.pipe.m = entry->m >= 0 ? entry->m : head->plan.M;
    job.autodp.r = entry->r >= 0 ? entry->r : head->plan.R;
    input.job = &job;
    input.F = entry->f >= 0 ? entry->f : head->plan.F;
    input.generation = next_generation(head);
    FL_TRY(fl_usable_choose(&head->usable, &input, plan));
    fl_decide_place(head, plan);
    return FL_OK;
}

static void prepare(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    fl_verdict verdict = {.kind = FL_VERDICT_PREPARE, .plan = e->next};
    fl_decide_measure(head, true);
    fl_usable_members(&head->usable, &verdict.plan);
    fl_usable_members(&head->usable, &e->next);
    e->before = head->plan;
    e->old_step_ms = fl_decide_step_ms(head);
    e->predicted_ms = fl_decide_predict_ms(head, &e->next);
    e->state = FL_ELASTIC_PREPARING;
    e->last_asked = e->next.generation;
    e->deadline_us = now_us + head->options->job->fault.deadline_ms * 1000;
    e->n_ready = e->n_refused = e->n_over = 0;
    e->prepare_us = e->wait_us = e->vote_us = e->migrate_us = e->switch_us = e->stall_us = 0;
    e->moved_bytes = e->kept_bytes = 0;
    fl_story_prepare(head);
    fl_inbox_verdict(head, &verdict);
}

static void look_at_script(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    const fl_job *job = head->options->job;
    if (e->n_scripted == job->elastic.n_script) {
        return;
    }
    const fl_script_entry *entry = &job->elastic.script[e->n_scripted];
    if (head->tally.steps + STEPS_AHEAD < entry->step) {
        return;
    }
    e->n_scripted++;
    e->due_step = entry->step;
    e->next.generation = 0;
    snprintf(e->why, sizeof e->why, "elastic.script, step %lld", (long long)entry->step);
    if (scripted_plan(head, entry, &e->next) != FL_OK) {
        cancel(head, fl_errmsg());
        return;
    }
    prepare(head, now_us);
}

static void look_at_policy(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    if (fl_decide_next(head, &e->next, e->why, sizeof e->why)) {
        e->next.generation = next_generation(head);
        e->policy_asked = e->next.generation;
        e->due_step = 0;
        prepare(head, now_us);
    }
}

/* Everybody waits at a step of the script, so what is asked for must be over by then. */
static fl_status check_script(const fl_head *head, int64_t due_step)
{
    const fl_elastic *e = &head->elastic;
    const fl_job *job = head->options->job;
    if (e->n_scripted < job->elastic.n_script &&
        due_step + STEPS_AHEAD >= job->elastic.script[e->n_scripted].step) {
        return fl_fail(FL_EBUSY, "elastic.script has a transition at step %lld",
                       (long long)job->elastic.script[e->n_scripted].step);
    }
    return FL_OK;
}

static fl_status check_asked(const fl_head *head, const fl_plan *next, int64_t due_step)
{
    const fl_elastic *e = &head->elastic;
    if (head->state != FL_HEAD_RUNNING || head->n_stops > 0) {
        return fl_fail(FL_EBUSY, "the run is %s",
                       head->state == FL_HEAD_STARTING ? "still starting" : "about to end");
    }
    if (e->state != FL_ELASTIC_IDLE) {
        return fl_fail(FL_EBUSY, "generation %u is on its way (%s)", e->next.generation, e->why);
    }
    FL_TRY(check_script(head, due_step > head->tally.steps ? due_step : head->tally.steps));
    FL_TRY(fl_plan_check(next));
    if (next->n_workers != head->plan.n_workers || next->n_layers != head->plan.n_layers) {
        return fl_fail(FL_EINVAL, "a plan for %d layers on %d workers; the run has %d on %d",
                       next->n_layers, next->n_workers, head->plan.n_layers, head->plan.n_workers);
    }
    return FL_OK;
}

fl_status fl_elastic_ask(fl_head *head, const fl_plan *next, int64_t due_step, const char *why)
{
    fl_elastic *e = &head->elastic;
    fl_plan placed = *next;
    FL_TRY(check_asked(head, next, due_step));
    fl_decide_place(head, &placed);
    FL_TRY(fl_decide_check_room(head, &placed));
    e->next = placed;
    e->next.generation = next_generation(head);
    e->due_step = due_step;
    snprintf(e->why, sizeof e->why, "%s", why);
    prepare(head, fl_now_us());
    return FL_OK;
}

static void look_at_tuner(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    if (fl_tune_next_plan(head, &e->next, e->why, sizeof e->why)) {
        e->next.generation = next_generation(head);
        e->due_step = 0;
        fl_tune_asked(head, e->next.generation);
        prepare(head, now_us);
    }
}

/* ---- driving it ---- */

static void commit(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    e->state = FL_ELASTIC_COMMITTING;
    e->deadline_us = now_us + head->options->job->fault.deadline_ms * 1000;
    fl_inbox_verdict(head, &(fl_verdict){.kind = FL_VERDICT_COMMIT, .due_step = e->due_step});
}

/* All that is to be heard of a refusal has been heard, or it has been waited for long enough. */
static bool is_refused(const fl_head *head, int64_t now_us)
{
    const fl_elastic *e = &head->elastic;
    return e->n_refused > 0 && (!fl_status_is_regroup(e->refusal) ||
                                e->n_ready + e->n_refused == fl_plan_members(&head->plan) ||
                                now_us > e->opinion_us || now_us > e->deadline_us);
}

void fl_elastic_watch(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    if (head->state != FL_HEAD_RUNNING || head->n_stops > 0) {
        return;
    }
    if (e->state == FL_ELASTIC_IDLE) {
        fl_decide_measure(head, false);
        look_at_script(head, now_us);
        if (e->state == FL_ELASTIC_IDLE) {
            look_at_policy(head, now_us);
        }
        if (e->state == FL_ELASTIC_IDLE) {
            look_at_tuner(head, now_us);
        }
    } else if (e->state == FL_ELASTIC_PREPARING && e->n_ready == fl_plan_members(&head->plan)) {
        /* A verdict is heard one step after the speaker takes it. */
        if (head->tally.steps + 1 >= e->due_step) {
            commit(head, now_us);
        }
    } else if (e->state == FL_ELASTIC_PREPARING && is_refused(head, now_us)) {
        cancel(head, e->refusal_text);
    } else if (e->state == FL_ELASTIC_PREPARING && now_us > e->deadline_us) {
        cancel(head, "not everybody was ready within fault.deadline");
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

void fl_elastic_prepared(fl_head *head, const fl_worker *worker, const fl_prepared_report *report)
{
    fl_elastic *e = &head->elastic;
    bool voted_down = e->state == FL_ELASTIC_COMMITTING && report->status != FL_OK;
    if (voted_down && report->generation == e->next.generation) {
        give_up(head, report->text);
        settle(head);
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
static void forget_addresses(fl_head *head)
{
    fl_elastic *e = &head->elastic;
    char prefix[32];
    while (e->last_forgotten < head->plan.generation) {
        snprintf(prefix, sizeof prefix, "group/%u/", ++e->last_forgotten);
        fl_store_forget(head->store, prefix);
        snprintf(prefix, sizeof prefix, "message/%u/", e->last_forgotten);
        fl_store_forget(head->store, prefix);
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
static void look_whether_over(fl_head *head)
{
    fl_elastic *e = &head->elastic;
    if (e->state == FL_ELASTIC_COMMITTING && e->n_over > 0 &&
        e->n_over >= fl_plan_members(&e->before)) {
        forget_addresses(head);
        record(head, true, e->first_step, e->why);
        add_up(e);
        fl_decide_switched(head);
        fl_story_transition(head);
        settle(head);
    }
}

bool fl_elastic_counts_on(const fl_head *head, int rank)
{
    const fl_elastic *e = &head->elastic;
    return e->state == FL_ELASTIC_COMMITTING && fl_plan_place(&e->next, rank).active;
}

void fl_elastic_without(fl_head *head, int rank, const char *why)
{
    fl_elastic *e = &head->elastic;
    head->usable.drained[rank] = true;
    head->plan.departed[rank] = e->before.departed[rank] = e->next.departed[rank] = true;
    if (e->state == FL_ELASTIC_PREPARING && head->n_stops == 0) {
        cancel(head, why);
    }
    look_whether_over(head);
}

/* The first worker that has gone over brings the head along; the last one ends the transition. Who
 * departs has given away all that it had, and has reported all that it did. */
void fl_elastic_moved(fl_head *head, fl_worker *worker, const fl_transition_parts *parts)
{
    fl_elastic *e = &head->elastic;
    if (parts->generation != e->next.generation) {
        fl_log(FL_LOG_WARN, "worker %d went over to generation %u, which was never asked for",
               worker->rank, parts->generation);
        return;
    }
    if (head->plan.generation != parts->generation) {
        head->generation_before = head->plan.generation;
        fl_decide_switching(head);
        fl_learn_end(head);
        head->plan = e->next;
        fl_learn_begin(head);
        for (int i = 0; i < head->n_workers; i++) {
            head->workers[i].place = fl_plan_place(&head->plan, i);
        }
        e->first_step = parts->step;
        fl_progress_plan(&head->progress, &head->plan);
    }
    e->vote_us = larger(e->vote_us, parts->vote_us);
    e->migrate_us = larger(e->migrate_us, parts->migrate_us);
    e->switch_us = larger(e->switch_us, parts->switch_us);
    e->wait_us = larger(e->wait_us, parts->wait_us);
    e->stall_us =
        larger(e->stall_us, parts->wait_us + parts->vote_us + parts->migrate_us + parts->switch_us);
    e->moved_bytes += parts->received_bytes;
    e->kept_bytes += parts->kept_bytes;
    if (head->plan.departed[worker->rank]) {
        worker->departed = true;
        worker->departed_us = fl_now_us();
    }
    e->n_over++;
    look_whether_over(head);
}
