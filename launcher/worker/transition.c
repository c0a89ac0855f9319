/* A transition from generation g to g+1, on one worker:
 *   ① PREPARE received: the prepare thread opens g+1 beside g while    fl_transition_prepare
 *     training continues, and makes the transfers ready                open_next
 *   ② it is ready or refuses, and reports that to the controller       answer_prepare
 *   ③ COMMIT received at a control point: all vote. Where a member    take_vote
 *     is expendable, its death may have been seen by some voters only:
 *     those that train sum up, and the leader tells the standby ones   agree_on_vote
 *   ④ every layer's state goes to its new owners; if g and g+1 do      exchange_state
 *     not fit side by side, g first gives up all but its state
 *   ⑤ all meet: now each has what it needs, and none needs another     meet
 *   ⑥ each hands over what stays where it is; g+1 trains; the          fl_transition_finish
 *     prepare thread closes g
 * When the members of the run change, g+1 has a message group of its own. It is opened at ①, and
 * takes the old one's place at ⑥. A member that departs leaves after that.
 * If this worker ends ① itself, because it leaves g or the run, it does not answer ②: the
 * controller knows the reason. A refusal at ③ leaves g as it was, and so does a failure in ④ or ⑤.
 * Then rejoin.c asks whether another worker has passed ⑤: if so, every worker has all it needs for
 * ⑥. A worker that joins takes part in ① and ② alone, and then in ⑥: join.c. After a loss there is
 * no ① to ③: fl_transition_force does the rest with the workers that are left.
 * The prepare thread is in transition_prepare.c. */
#include "launcher/worker/worker_state.h"

#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/clock.h"

#include <string.h>

/* ---- ③ ---- */

typedef struct ballot {
    uint32_t generation; /* the proposed generation; 0: this worker knows of none */
    uint32_t ready;
} ballot;

/* The next generation, once the prepare thread has opened it; NULL before. */
static const fl_generation *opened_member(const fl_worker_state *w)
{
    return w->next != NULL && atomic_load(&w->prepare_thread.state) == FL_PREPARE_READY ? w->next
                                                                                        : NULL;
}

static ballot ballot_of(const fl_worker_state *w)
{
    const fl_generation *next = opened_member(w);
    bool sound = next != NULL && (next->group == NULL || fl_group_state(next->group) == FL_OK) &&
                 (next->messages == NULL || fl_message_state(next->messages) == FL_OK);
    return (ballot){.generation = w->next == NULL ? 0 : w->prepare_thread.generation,
                    .ready = sound};
}

/* Whether the vote needs this worker: a dead worker does not block a plan in which it has departed.
 */
static bool is_missed(const fl_worker_state *w, int rank)
{
    const fl_generation *next = opened_member(w);
    return next == NULL || !next->plan.departed[rank] || !fl_message_lost(w->messages, rank);
}

/* against  in: the worker against it, from this worker's view; out: the agreed one */
static fl_status agree_on_vote(fl_worker_state *w, int *against)
{
    const fl_plan *now = &w->now->plan;
    int64_t deadline_us = fl_deadline_us(w->c->job->fault.deadline_ms);
    unsigned char message[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = sizeof *against;
    if (fl_plan_members(now) == now->K * now->R) {
        return FL_OK; /* without standby workers, all have seen the same votes */
    }
    if (w->now->place.active) {
        double sums[2] = {*against >= 0, *against >= 0 ? *against : 0};
        FL_TRY(fl_group_all_reduce(w->now->group, sums, 2, deadline_us));
        *against = sums[0] > 0.0 ? (int)(sums[1] / sums[0]) : -1;
    }
    memcpy(message, against, sizeof *against);
    FL_TRY(fl_message_broadcast(w->messages, fl_plan_leader(now), now->generation, message,
                                &size_bytes, deadline_us));
    memcpy(against, message, sizeof *against);
    return FL_OK;
}

/* against  out: the first worker that is not ready to switch to the same generation as the others,
 *          -1: none */
static fl_status take_vote(fl_worker_state *w, int *against)
{
    int n = fl_plan_members(&w->now->plan);
    ballot mine = ballot_of(w), all[FL_MAX_WORKERS];
    fl_status status =
        fl_message_all_gather(w->messages, w->now->plan.generation, &mine, sizeof mine, all,
                              fl_deadline_us(w->c->job->fault.deadline_ms));
    *against = -1;
    for (int i = n - 1; status == FL_OK && i >= 0; i--) {
        int rank = fl_message_rank(w->messages, i);
        bool agrees = all[i].ready && all[i].generation == mine.generation;
        if (!agrees && is_missed(w, rank)) {
            *against = rank;
        }
    }
    return status == FL_OK ? agree_on_vote(w, against) : status;
}

/* The controller requested the vote and must learn its result. */
static void stay_in_generation(fl_worker_state *w, int against)
{
    if (w->next != NULL) {
        fl__transition_answer(
            w, w->prepare_thread.generation,
            fl_fail(FL_ESTALE, "worker %d was not ready when all voted", against));
    }
    fl_log(FL_LOG_WARN, "generation %u goes on: worker %d is not ready for the next",
           w->now->plan.generation, against);
    fl_transition_cancel(w);
}

/* ---- ④ ---- */

/* Both generations do not fit side by side. */
static bool gives_way(const fl_worker_state *w)
{
    return w->next->reserved && w->now->pipeline != NULL;
}

/* All memory was counted in prepare: this allocates nothing, and claims only memory that is there.
 */
static fl_status exchange_state(fl_worker_state *w)
{
    fl_params *to = fl_generation_params(w->next);
    if (w->now->pipeline != NULL) {
        FL_TRY(fl_pipeline_wait(w->now->pipeline));
    }
    if (gives_way(w)) {
        fl_pipeline_strip(w->now->pipeline);
    }
    fl_cache_tiers_fit(w->tiers, !gives_way(w) && w->next->memory.tier_bytes > 0);
    if (to != NULL) {
        FL_TRY(fl_params_claim_state(to));
    }
    return fl_migration_exchange(w->migration, fl_deadline_us(w->c->job->fault.deadline_ms));
}

/* ---- ⑤ ---- */

static fl_status meet(fl_worker_state *w)
{
    unsigned char mine = 0, all[FL_MAX_WORKERS];
    w->exchanged = true;
    return fl_message_all_gather(w->messages, w->next->plan.generation, &mine, sizeof mine, all,
                                 fl_deadline_us(w->c->job->fault.deadline_ms));
}

static fl_status migrate_state(fl_worker_state *w)
{
    fl_status status = exchange_state(w);
    fl__reach("exchanged", w);
    status = status == FL_OK ? meet(w) : status;
    return status == FL_OK
               ? FL_OK
               : fl_within(status, "moving state to generation %u", w->next->plan.generation);
}

/* ---- ⑥ ---- */

static fl_status hand_over(fl_worker_state *w, int64_t step, fl_migrate_stats *stats)
{
    fl_params *from = fl_generation_params(w->now);
    FL_TRY(fl_migration_finish(w->migration, step, stats));
    if (gives_way(w)) {
        fl_params_drop_state(from);
    }
    return w->next->pipeline == NULL ? FL_OK : fl_stage_claim(fl_pipeline_stage(w->next->pipeline));
}

static void change_messages(fl_worker_state *w, fl_generation *old)
{
    fl_message_group *before = w->messages;
    if (w->next->messages == NULL) {
        return;
    }
    if (before != NULL) {
        fl_message_counts counts = fl_message_count(before);
        fl_message_follow(w->next->messages, &counts);
        fl_worker_checkpoint_leave(w, false);
    }
    w->messages = w->next->messages;
    w->next->messages = NULL;
    old->messages = before;
}

static void switch_over(fl_worker_state *w)
{
    fl_generation *old = w->now;
    fl__transition_join_thread(w);
    fl_migration_close(&w->migration);
    w->has_joined = false;
    for (int rank = 0; rank < w->next->plan.n_workers; rank++) {
        w->has_joined = w->has_joined || fl__transition_joins(w, rank);
    }
    change_messages(w, old);
    w->now = w->next;
    w->next = NULL;
    w->exchanged = false;
    w->leads = fl_plan_leader(&w->now->plan) == w->rank;
    atomic_store(&w->prepare_thread.state, FL_PREPARE_NONE);
    if (w->c->activations != NULL) {
        fl_weight_prints_forget(w->c->activations->prints,
                                fl_frozen_layers(w->c->model, w->now->plan.F));
    }
    fl_link_generation(w->link, w->now->plan.generation);
    fl_flight_generation(w->now->plan.generation);
    fl_worker_report_comm(w);
    fl__transition_close_in_thread(w, old);
}

static void note_comm(const fl_generation *now, fl_transition_parts *done)
{
    if (now->group != NULL) {
        done->comm = fl_group_comm_get(now->group)->way;
        done->comm_us = fl_group_comm_get(now->group)->us;
    }
}

fl_status fl_transition_finish(fl_worker_state *w, int64_t step, fl_transition_parts *done)
{
    fl_migrate_stats stats;
    int64_t begun = fl_now_us();
    fl_flight_enter(FL_FLIGHT_SWITCH, -1, -1, 0);
    FL_TRY(hand_over(w, step, &stats));
    fl__reach("migrated", w);
    switch_over(w);
    fl_worker_checkpoint_follow(w, step);
    FL_TRY(fl_worker_release_standby(w, NULL));
    fl__reach("switch", w);
    fl_flight_leave();
    done->generation = w->now->plan.generation;
    done->step = step;
    done->switch_us = fl_now_us() - begun;
    done->received_bytes = stats.received_bytes;
    done->kept_bytes = stats.kept_bytes;
    done->device_bytes = stats.device_bytes;
    memcpy(done->part, stats.part, sizeof done->part);
    note_comm(w->now, done);
    fl_link_transition(w->link, done);
    return FL_OK;
}

static fl_status vote(fl_worker_state *w, int *against)
{
    fl_link_doing(w->link, "transition: vote");
    fl_flight_enter(FL_FLIGHT_VOTE, -1, -1, 0);
    fl__reach("vote", w);
    FL_TRY(take_vote(w, against));
    fl_flight_leave();
    return FL_OK;
}

static fl_status migrate(fl_worker_state *w)
{
    fl_link_doing(w->link, "transition: migration");
    fl_flight_enter(FL_FLIGHT_MIGRATION, -1, -1, 0);
    fl__reach("migrate", w);
    FL_TRY(migrate_state(w));
    fl_flight_leave();
    return FL_OK;
}

fl_status fl_transition_commit(fl_worker_state *w, int64_t step, bool *switched)
{
    int64_t started_us = fl_now_us();
    fl_transition_parts done = {.wait_us = w->held_us == 0 ? 0 : started_us - w->held_us};
    int against = -1;
    fl_flight_step(step);
    FL_TRY(vote(w, &against));
    if (against >= 0) {
        stay_in_generation(w, against);
        return FL_OK;
    }
    FL_TRY(fl_worker_release_standby(w, &w->next->plan));
    fl_worker_report_graphs(w, step - 1, true);
    fl_worker_report_cache(w, step - 1, w->cursor.epoch, true); /* the old counts end */
    int64_t voted = fl_now_us();
    done.vote_us = voted - started_us;
    FL_TRY(migrate(w));
    done.migrate_us = fl_now_us() - voted;
    FL_TRY(fl_transition_finish(w, step, &done));
    *switched = true;
    return FL_OK;
}

/* ---- after a loss ---- */

/* Open g+1 on this thread: nothing trains meanwhile, so g gives up all but its state first. */
static fl_status open_forced(fl_worker_state *w, const fl_plan *plan, const bool *lost)
{
    fl_message_group *before = w->messages;
    if (w->now->pipeline != NULL) {
        fl_pipeline_strip(w->now->pipeline);
    }
    fl_worker_checkpoint_leave(w, true);
    /* Its operations are counted anew: a loss leaves members with different counts. */
    FL_TRY(fl_worker_open_messages(w, plan, &w->messages));
    fl_message_close(&before);
    FL_TRY(fl__transition_make_next(w, plan));
    return fl__transition_open_member(w, plan, true, lost);
}

fl_status fl_transition_force(fl_worker_state *w, const fl_plan *plan, const bool *lost,
                              int64_t step)
{
    fl_transition_parts done = {0};
    int64_t begun = fl_now_us();
    fl_link_doing(w->link, "recovery: opening");
    fl_flight_enter(FL_FLIGHT_PREPARE, -1, -1, 0);
    fl__reach("prepare", w);
    FL_TRY(open_forced(w, plan, lost));
    fl_flight_leave();
    int64_t opened = fl_now_us();
    done.wait_us = opened - begun;
    FL_TRY(migrate(w));
    done.migrate_us = fl_now_us() - opened;
    return fl_transition_finish(w, step, &done);
}

fl_status fl_transition_enter(fl_worker_state *w, int64_t step)
{
    switch_over(w);
    fl_worker_checkpoint_follow(w, step);
    return fl_worker_release_standby(w, NULL);
}
