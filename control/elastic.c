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

enum { STEPS_AHEAD = 6 }; /* a scripted transition is prepared that long before it is due */

static void cancel(fl_head *head, const char *why)
{
    fl_verdict verdict = {.kind = FL_VERDICT_CANCEL, .due_step = head->elastic.due_step};
    head->elastic.state = FL_ELASTIC_IDLE;
    fl_story_cancel(head, why);
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
    return fl_plan_choose(&input, plan, NULL, 0, NULL);
}

static void prepare(fl_head *head, int64_t now_us)
{
    fl_elastic *e = &head->elastic;
    fl_verdict verdict = {.kind = FL_VERDICT_PREPARE, .plan = e->next};
    fl_decide_measure(head, true);
    e->before = head->plan;
    e->old_step_ms = fl_decide_step_ms(head);
    e->predicted_ms = fl_decide_predict_ms(head, &e->next);
    e->state = FL_ELASTIC_PREPARING;
    e->last_asked = e->next.generation;
    e->deadline_us = now_us + head->options->job->fault.deadline_ms * 1000;
    e->n_ready = e->n_over = 0;
    e->prepare_us = e->wait_us = e->vote_us = e->migrate_us = e->switch_us = e->stall_us = 0;
    e->moved_bytes = e->copied_bytes = 0;
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
        e->due_step = 0;
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
    } else if (e->state == FL_ELASTIC_PREPARING && e->n_ready == head->n_workers) {
        /* A verdict is heard one step after the speaker takes it. */
        if (head->tally.steps + 1 >= e->due_step) {
            commit(head, now_us);
        }
    } else if (e->state == FL_ELASTIC_PREPARING && now_us > e->deadline_us) {
        cancel(head, "not everybody was ready within fault.deadline");
    }
}

void fl_elastic_prepared(fl_head *head, const fl_worker *worker, const fl_prepared_report *report)
{
    fl_elastic *e = &head->elastic;
    bool voted_down = e->state == FL_ELASTIC_COMMITTING && report->status != FL_OK;
    if (voted_down && report->generation == e->next.generation) {
        fl_story_cancel(head, report->text);
        settle(head);
        return;
    }
    if (e->state != FL_ELASTIC_PREPARING || report->generation != e->next.generation) {
        fl_log(FL_LOG_DEBUG, "worker %d answers for generation %u, which nobody waits for",
               worker->rank, report->generation);
        return;
    }
    if (report->status != FL_OK) {
        char why[FL_WIRE_REFUSAL_MAX + 64];
        snprintf(why, sizeof why, "worker %d refuses: %s", worker->rank, report->text);
        cancel(head, why);
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
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The first worker that has gone over brings the head along; the last one ends the transition. */
void fl_elastic_moved(fl_head *head, const fl_worker *worker, const fl_transition_parts *parts)
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
        head->plan = e->next;
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
    e->copied_bytes += parts->copied_bytes;
    e->n_over++;
    if (e->n_over == head->n_workers) {
        forget_addresses(head);
        fl_decide_switched(head);
        fl_story_transition(head);
        settle(head);
    }
}
