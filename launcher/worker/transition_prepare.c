/* The prepare thread of a transition: ① and ② of launcher/worker/transition.c. */
#include "launcher/worker/worker_state.h"

#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <stdio.h>
#include <string.h>

/* ---- the next generation ---- */

void fl__transition_answer(fl_worker_state *w, uint32_t generation, fl_status status)
{
    fl_prepared_report report = {
        .generation = generation, .status = status, .took_us = w->prepare_thread.took_us};
    snprintf(report.text, sizeof report.text, "%s", status == FL_OK ? "" : fl_errmsg());
    fl_link_prepared(w->link, &report);
}

static bool members_change(const fl_worker_state *w)
{
    const fl_plan *now = &w->now->plan, *next = &w->next->plan;
    return memcmp(now->departed, next->departed, sizeof now->departed) != 0;
}

bool fl__transition_joins(const fl_worker_state *w, int rank)
{
    return w->now->plan.departed[rank] && !w->next->plan.departed[rank];
}

/* Workers that join are expendable from the first: none of their ends disturbs the others. */
static fl_status release_joining(fl_worker_state *w)
{
    bool spare[FL_MAX_WORKERS];
    for (int rank = 0; rank < w->next->plan.n_workers; rank++) {
        spare[rank] = fl__transition_joins(w, rank);
    }
    return fl_message_release(w->next->messages, spare);
}

/* A worker that departs is no member of the next message group. */
static fl_status open_messages(fl_worker_state *w)
{
    fl_generation *next = w->next;
    if (!members_change(w) || next->plan.departed[w->rank]) {
        return FL_OK;
    }
    FL_TRY(fl_worker_open_messages(w, &next->plan, &next->messages));
    return release_joining(w);
}

typedef struct migration_context {
    fl_worker_state *w;
    const bool *lost; /* as in fl_migrate_options */
} migration_context;

/* Nothing moves to a worker that joins, or from it. */
static fl_status open_migration(void *context)
{
    const migration_context *c = context;
    fl_worker_state *w = c->w;
    const fl_plan *next = &w->next->plan;
    if (w->messages == NULL) {
        return FL_OK;
    }
    fl_migrate_options options = {.model = w->c->model,
                                  .old = &w->now->plan,
                                  .next = next,
                                  .rank = w->rank,
                                  .from = fl_generation_params(w->now),
                                  .to = fl_generation_params(w->next),
                                  .parked = &w->parked,
                                  .lost = c->lost,
                                  .messages = w->messages,
                                  .group = w->next->group,
                                  .members = next->rank_of,
                                  .n_members = next->K * next->R};
    return fl_migration_open(&options, &w->migration);
}

fl_status fl__transition_open_member(fl_worker_state *w, const fl_plan *plan, bool after_loss,
                                     const bool *lost)
{
    migration_context migration = {.w = w, .lost = lost};
    fl_generation_options options = {.worker = w->c,
                                     .plan = plan,
                                     .rank = w->rank,
                                     .device = w->device,
                                     .tiers = w->tiers,
                                     .running = w->now,
                                     .parked = w->parked.rank,
                                     .kv = fl_link_kv(w->link),
                                     .abort_set = &w->abort_set,
                                     .keeper = &w->keeper,
                                     .transport = w->transport,
                                     .after_loss = after_loss,
                                     .open_migration = open_migration,
                                     .context = &migration};
    return fl_generation_open(&options, w->next);
}

/* ---- the thread ---- */

static void close_leaving(fl_worker_state *w)
{
    fl_generation *m = w->prepare_thread.leaving;
    if (m != NULL) {
        fl_generation_close(m);
        fl_free(m);
        w->prepare_thread.leaving = NULL;
    }
}

static void *close_old(void *worker)
{
    fl__reach("close", worker);
    close_leaving(worker);
    return NULL;
}

static void join_closer(fl_worker_state *w)
{
    if (w->prepare_thread.closes) {
        pthread_join(w->prepare_thread.closer, NULL);
        w->prepare_thread.closes = false;
    }
}

/* The next generation may need the memory of the last one. */
static void *open_next(void *worker)
{
    fl_worker_state *w = worker;
    int64_t started_us = fl_now_us();
    fl_plan plan = w->next->plan;
    fl_flight_thread(FL_FLIGHT_PREPARER, plan.generation);
    fl_flight_enter(FL_FLIGHT_PREPARE, -1, -1, 0);
    fl__reach("wait", w);
    join_closer(w);
    fl__reach("prepare", w);
    fl_status status = fl__transition_open_member(w, &plan, false, NULL);
    if (status == FL_OK) {
        status = open_messages(w);
    }
    w->prepare_thread.took_us = fl_now_us() - started_us;
    atomic_store(&w->prepare_thread.state, status == FL_OK ? FL_PREPARE_READY : FL_PREPARE_REFUSED);
    if (status == FL_OK || !atomic_load(&w->prepare_thread.given_up)) {
        fl__transition_answer(w, plan.generation, status);
    }
    fl_flight_leave();
    fl_flight_thread_end();
    return NULL;
}

void fl__transition_join_thread(fl_worker_state *w)
{
    if (w->prepare_thread.running) {
        pthread_join(w->prepare_thread.thread, NULL);
        w->prepare_thread.running = false;
    }
    join_closer(w); /* left if no thread opened a generation after it */
}

/* Training need not wait for a thread that still closes the last generation: closing it may take a
 * second. */
static void hand_over_closer(fl_worker_state *w)
{
    fl_prepare_thread *t = &w->prepare_thread;
    t->closer = t->thread;
    t->closes = t->running;
    t->running = false;
}

static fl_status start_thread(fl_worker_state *w, void *(*work)(void *))
{
    FL_TRY(fl_thread_start(&w->prepare_thread.thread, work, w, "the prepare thread"));
    w->prepare_thread.running = true;
    return FL_OK;
}

void fl__transition_close_in_thread(fl_worker_state *w, fl_generation *member)
{
    w->prepare_thread.leaving = member;
    if (member != NULL && start_thread(w, close_old) != FL_OK) {
        close_leaving(w);
    }
}

/* ---- ① ---- */

fl_status fl__transition_make_next(fl_worker_state *w, const fl_plan *plan)
{
    FL_TRY(fl_alloc(sizeof *w->next, (void **)&w->next));
    w->next->plan = *plan;
    w->prepare_thread.generation = plan->generation;
    return FL_OK;
}

static fl_status open_beside(fl_worker_state *w, const fl_plan *plan)
{
    FL_TRY(fl__transition_make_next(w, plan));
    atomic_store(&w->prepare_thread.state, FL_PREPARE_OPENING);
    return start_thread(w, open_next);
}

void fl_transition_prepare(fl_worker_state *w, const fl_plan *plan)
{
    if (w->next != NULL) {
        fl_transition_cancel(w);
    }
    hand_over_closer(w);
    w->prepare_thread.took_us = 0;
    atomic_store(&w->prepare_thread.given_up, false);
    fl_status status = open_beside(w, plan);
    if (status != FL_OK) {
        fl__transition_answer(w, plan->generation, status);
        fl_transition_cancel(w);
    }
}

void fl_transition_cancel(fl_worker_state *w)
{
    if (w->next != NULL) {
        atomic_store(&w->prepare_thread.given_up, true);
        fl_abort_set_abort(&w->abort_set, w->prepare_thread.generation, FL_ESTALE);
    }
    fl__transition_join_thread(w);
    fl_migration_close(&w->migration);
    fl__transition_close_in_thread(w, w->next);
    w->next = NULL;
    w->exchanged = false;
    atomic_store(&w->prepare_thread.state, FL_PREPARE_NONE);
}

void fl_transition_settle(fl_worker_state *w)
{
    fl_transition_cancel(w);
    fl__transition_join_thread(w);
}
