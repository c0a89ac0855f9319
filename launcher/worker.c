/* The worker's way:
 *   ① device, control link            open_all
 *   ② message group: everybody        open_all
 *   ③ the first generation            open_all, member.c
 *   ④ ready; all wait for all         meet
 *   ⑤ step, report, verdict           train
 *   ⑥ evaluation after each epoch     evaluate
 *   ⑦ transitions, at control points  apply, transition.c
 *   ⑧ close, innermost first          close_all
 * A standby worker has no step: it waits until the head wakes it to hear a verdict. */
#include "launcher/worker.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/flight.h"
#include "device/log.h"
#include "launcher/worker_state.h"
#include "nn/optimizer.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

enum { HEARTBEATS_PER_DETECT = 10, STANDBY_SLICE_MS = 50 };

typedef fl_worker_state worker;

/* ---- what the link's thread may do ---- */

/* The head says that this generation is over, or is gone itself. */
static void on_abort(void *context, uint32_t generation, fl_status why)
{
    worker *w = context;
    (void)generation;
    pthread_mutex_lock(&w->lock);
    w->aborted = why;
    if (w->messages != NULL) {
        fl_message_abort(w->messages, why);
    }
    if (w->next_messages != NULL) {
        fl_message_abort(w->next_messages, why);
    }
    for (int i = 0; i < 2; i++) {
        if (w->groups[i] != NULL) {
            fl_group_abort(w->groups[i], why);
        }
    }
    pthread_mutex_unlock(&w->lock);
}

/* Asked while a group is being opened: whether that has become pointless. */
bool fl_worker_given_up(void *state)
{
    worker *w = state;
    pthread_mutex_lock(&w->lock);
    bool over = w->aborted != FL_OK;
    pthread_mutex_unlock(&w->lock);
    return over;
}

static fl_status over(fl_status why)
{
    return why == FL_OK ? FL_OK : fl_fail(why, "the head ended this generation");
}

fl_status fl_worker_publish(void *state, fl_group *group)
{
    worker *w = state;
    pthread_mutex_lock(&w->lock);
    w->groups[w->groups[0] == NULL ? 0 : 1] = group;
    fl_status why = w->aborted;
    pthread_mutex_unlock(&w->lock);
    return over(why);
}

void fl_worker_withdraw(worker *w, fl_group *group)
{
    pthread_mutex_lock(&w->lock);
    for (int i = 0; i < 2; i++) {
        w->groups[i] = w->groups[i] == group ? NULL : w->groups[i];
    }
    pthread_mutex_unlock(&w->lock);
}

/* ---- ① to ③ ---- */

/* Workers take the run's processors in turn, if there are enough for each to have its own. */
static fl_status open_device(worker *w)
{
    const fl_job *job = w->c->job;
    const fl_cores *all = w->c->cores;
    int cores = (int)job->devices.cores, first = w->rank * cores;
    const int *mine = first + cores <= all->n ? all->cpu + first : NULL;
    for (int i = 0; mine != NULL && i < cores; i++) {
        fl_log(FL_LOG_INFO, "on processor %d%s", mine[i],
               all->mark[first + i] < 0 && all->n_shared > 0 ? ", as is another run" : "");
    }
    return fl_device_cpu_create(cores, mine, (size_t)job->devices.memory_bytes, &w->device);
}

fl_status fl_worker_open_messages(worker *w, const fl_plan *plan, bool (*given_up)(void *context),
                                  fl_message_group **out)
{
    const fl_job *job = w->c->job;
    int ranks[FL_MAX_WORKERS], n = 0;
    for (int rank = 0; rank < plan->n_workers; rank++) {
        if (!plan->departed[rank]) {
            ranks[n++] = rank;
        }
    }
    fl_message_options options = {.membership = plan->generation,
                                  .rank = w->rank,
                                  .size = n,
                                  .ranks = ranks,
                                  .kv = fl_link_kv(w->link),
                                  .open_timeout_ms = job->fault.deadline_ms,
                                  .wait_timeout_ms = job->fault.deadline_ms,
                                  .given_up = given_up,
                                  .context = w};
    return fl_message_open(&options, out);
}

static fl_status open_messages(worker *w)
{
    fl_message_group *messages = NULL;
    FL_TRY(fl_worker_open_messages(w, w->c->plan, fl_worker_given_up, &messages));
    pthread_mutex_lock(&w->lock);
    w->messages = messages;
    fl_status why = w->aborted;
    pthread_mutex_unlock(&w->lock);
    return over(why);
}

static fl_status open_member(worker *w)
{
    fl_member_options options = {.worker = w->c,
                                 .plan = w->c->plan,
                                 .rank = w->rank,
                                 .device = w->device,
                                 .kv = fl_link_kv(w->link),
                                 .draw = true,
                                 .opened = fl_worker_publish,
                                 .given_up = fl_worker_given_up,
                                 .context = w};
    FL_TRY(fl_alloc(sizeof *w->now, (void **)&w->now));
    FL_TRY(fl_attic_init(&w->attic, w->device, w->c->plan->n_layers));
    return fl_member_open(&options, w->now);
}

static fl_status open_all(worker *w, const char *endpoint)
{
    fl_link_options link = {.endpoint = endpoint,
                            .rank = w->rank,
                            .generation = w->c->plan->generation,
                            .heartbeat_ms = w->c->job->fault.detect_ms / HEARTBEATS_PER_DETECT,
                            .on_abort = on_abort,
                            .context = w};
    FL_TRY(fl_link_open(&link, &w->link));
    FL_TRY(open_device(w));
    FL_TRY(open_messages(w));
    FL_TRY(open_member(w));
    for (int i = 0; i < 2; i++) {
        FL_TRY(
            fl_alloc_array((size_t)w->c->job->train.batch, sizeof(int64_t), (void **)&w->ids[i]));
    }
    return FL_OK;
}

/* ---- ④ ---- */

/* Everybody must be about to run the same plan: a difference is a defect worth ending for. */
static fl_status meet(worker *w)
{
    const fl_plan *plan = &w->now->plan;
    void *all = NULL;
    struct {
        uint32_t generation;
        int32_t K, R, M, n_layers;
    } mine = {plan->generation, plan->K, plan->R, plan->M, plan->n_layers};
    int n = fl_plan_members(plan);
    FL_TRY(fl_alloc_array((size_t)n, sizeof mine, &all));
    fl_status status = fl_message_gather(w->messages, plan->generation, &mine, sizeof mine, all,
                                         fl_deadline_us(w->c->job->fault.deadline_ms));
    for (int i = 0; status == FL_OK && i < n; i++) {
        if (memcmp((char *)all + (size_t)i * sizeof mine, &mine, sizeof mine) != 0) {
            status = fl_fail(FL_EINTERNAL, "worker %d has another plan than worker %d",
                             fl_message_rank(w->messages, i), w->rank);
        }
    }
    fl_free(all);
    return status;
}

/* ---- ⑤ and ⑥ ---- */

static fl_global_batch draw(worker *w, int64_t step, fl_cursor from, fl_cursor *after)
{
    fl_global_batch batch = {.split = FL_TRAIN, .step = step, .epoch = from.epoch};
    int64_t *ids = w->ids[step % 2];
    *after = from;
    fl_sampler_next(w->c->job->train.seed, w->c->n_samples, w->c->job->train.batch, after, ids,
                    &batch.n);
    batch.ids = ids;
    return batch;
}

static fl_global_batch test_batch(worker *w, int64_t first)
{
    const fl_dataset *d = w->c->dataset;
    int64_t left = d->ops->count(d->self, FL_TEST) - first;
    int64_t most = w->c->job->train.batch;
    /* No training batch is drawn ahead of an evaluation, so both buffers are free. */
    int64_t *ids = w->ids[(first / most) % 2];
    fl_global_batch batch = {.split = FL_TEST, .ids = ids, .n = left < most ? left : most};
    for (int64_t i = 0; i < batch.n; i++) {
        ids[i] = first + i;
    }
    return batch;
}

static fl_status evaluate_all(worker *w, int64_t n, fl_loss_sums *sums)
{
    int64_t most = w->c->job->train.batch;
    fl_global_batch batch = test_batch(w, 0);
    FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &batch));
    for (int64_t first = 0; first < n; first += most) {
        fl_global_batch next = batch;
        if (first + most < n) {
            next = test_batch(w, first + most);
            FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &next));
        }
        FL_TRY(fl_pipeline_evaluate(w->now->pipeline, &batch, sums));
        batch = next;
    }
    return fl_pipeline_total(w->now->pipeline, sums);
}

static fl_status evaluate(worker *w, int64_t epoch)
{
    const fl_dataset *d = w->c->dataset;
    int64_t n = d->ops->count(d->self, FL_TEST);
    int64_t begun = fl_now_us();
    fl_loss_sums sums = {0};
    if (n == 0 || !w->now->place.active) {
        return FL_OK;
    }
    fl_link_doing(w->link, "evaluation");
    fl__reach("evaluate", w);
    fl_flight_enter(FL_FLIGHT_EVALUATION, -1, -1, 0);
    FL_TRY(evaluate_all(w, n, &sums));
    fl_flight_leave();
    if (w->speaks) {
        fl_eval_report report = {.epoch = epoch,
                                 .step = w->step - 1,
                                 .loss = sums.loss / sums.n_targets,
                                 .accuracy = sums.n_correct / sums.n_targets,
                                 .ms = (double)(fl_now_us() - begun) * 1e-3,
                                 .samples = n};
        fl_link_eval(w->link, &report);
    }
    return FL_OK;
}

static void report(worker *w, const fl_global_batch *batch, const fl_step_result *r, double lr,
                   int64_t took_us)
{
    const fl_plan *plan = &w->now->plan;
    const fl_place *place = &w->now->place;
    if (w->speaks) {
        fl_step_report step = {.step = batch->step,
                               .epoch = batch->epoch,
                               .loss = r->sums.loss / r->sums.n_targets,
                               .grad_norm = r->grad_norm,
                               .lr = lr,
                               .ms = (double)took_us * 1e-3,
                               .samples = r->samples,
                               .tokens = r->tokens,
                               .generation = plan->generation,
                               .f = plan->F,
                               .k = plan->K,
                               .r = plan->R,
                               .m = plan->M};
        fl_link_step(w->link, &step);
    }
    if (w->speaks && w->c->job->freeze.policy != FL_FREEZE_NONE) {
        fl_link_norms(w->link, batch->step, plan->generation, r->block_squares,
                      fl_model_n_blocks(w->c->model));
    }
    if (place->stage == plan->K - 1) {
        fl_link_ledger(w->link, batch->epoch, batch->step, plan->generation, place->replica, r->ids,
                       r->n_ids);
    }
    fl_time_report times = {.step = batch->step,
                            .compute_us = r->compute_us,
                            .wait_us = r->wait_us,
                            .reduce_wait_us = r->reduce_wait_us,
                            .optimizer_us = r->optimizer_us,
                            .data_us = r->data_us};
    fl_link_time(w->link, &times);
}

/* At the end of an epoch, and when a decision was taken. */
static void report_cache(worker *w, const fl_global_batch *batch, bool epoch_ends)
{
    fl_feed_report r;
    fl_cache_stats s;
    if (!w->now->place.active || !fl_pipeline_cache(w->now->pipeline, epoch_ends, &r)) {
        return;
    }
    fl_cache_get_stats(w->c->activations->cache, &s);
    fl_cache_report report = {.step = batch->step,
                              .epoch = batch->epoch,
                              .f = w->now->plan.F,
                              .on = r.on,
                              .decided = r.changed,
                              .n_hits = r.n_hits,
                              .n_upgrades = r.n_upgrades,
                              .n_misses = r.n_misses,
                              .read_us = r.read_us,
                              .compute_us = r.compute_us,
                              .n_values = s.n_values,
                              .used_bytes = s.used_bytes,
                              .n_evicted = s.n_evicted,
                              .n_damaged = s.n_damaged,
                              .n_recovered = s.n_recovered};
    fl_link_cache(w->link, &report);
}

/* What the speaker tells everybody at a control point, standby workers too. A worker that trains
 * knows where the run stands; one that joins learns it from here. */
typedef struct told {
    fl_verdict verdict;
    int64_t step;      /* that comes next */
    fl_cursor cursor;  /* from which its batch is drawn */
    int64_t epoch;     /* of the step before */
    int32_t evaluates; /* an evaluation comes first */
} told;

static fl_status hear(worker *w, told *what)
{
    _Static_assert(sizeof(told) <= FL_MESSAGE_MAX_BYTES, "a verdict is one message");
    unsigned char message[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = sizeof *what;
    memcpy(message, what, sizeof *what);
    FL_TRY(fl_message_tell(w->messages, w->now->plan.rank_of[0], w->now->plan.generation, message,
                           &size_bytes, fl_deadline_us(w->c->job->fault.deadline_ms)));
    if (size_bytes != sizeof *what) {
        return fl_fail(FL_EINTERNAL, "a verdict of %zu bytes, %zu expected", size_bytes,
                       sizeof *what);
    }
    memcpy(what, message, sizeof *what);
    return FL_OK;
}

/* ---- ⑦ ---- */

/* *switched becomes true when another generation trains from here on. */
static fl_status apply(worker *w, const told *what, bool *switched)
{
    int64_t due_step = what->verdict.due_step;
    switch (what->verdict.kind) {
    case FL_VERDICT_NONE:
        break;
    case FL_VERDICT_STOP:
        w->stop = true;
        break;
    case FL_VERDICT_PREPARE:
        fl_transition_prepare(w, &what->verdict.plan);
        break;
    case FL_VERDICT_CANCEL:
        fl_transition_cancel(w);
        w->answered = due_step > w->answered ? due_step : w->answered;
        break;
    case FL_VERDICT_STEER:
        fl_steer_apply(w, &what->verdict.steer, what->step);
        break;
    case FL_VERDICT_COMMIT:
        FL_TRY(fl_transition_commit(w, what->step, switched));
        w->step = what->step;
        w->cursor = what->cursor;
        w->answered = due_step > w->answered ? due_step : w->answered;
        break;
    }
    return FL_OK;
}

/* Everybody holds, standby workers too, and does what is told until the run goes on. */
static fl_status pause(worker *w, told *what, bool *switched)
{
    while (w->paused && !w->stop && !fl_worker_departs(w)) {
        bool standby = !w->now->place.active;
        fl_link_doing(w->link, "paused");
        if (w->speaks) {
            FL_TRY(fl_steer_wait(w, &what->verdict));
        }
        FL_TRY(hear(w, what));
        if (standby && what->verdict.kind != FL_VERDICT_NONE) {
            FL_TRY(fl_steer_take_wake(w));
        }
        FL_TRY(apply(w, what, switched));
    }
    return FL_OK;
}

/* A worker without a stage: the head wakes it when the speaker is about to tell something. */
static fl_status stand_by(worker *w)
{
    bool woken = false, switched = false;
    told what;
    fl_link_doing(w->link, "standby");
    fl_flight_enter(FL_FLIGHT_STANDBY, -1, -1, 0);
    while (!woken) {
        FL_TRY(over(fl_worker_given_up(w) ? w->aborted : FL_OK));
        woken = fl_link_wait_wake(w->link, STANDBY_SLICE_MS);
    }
    fl_flight_leave();
    FL_TRY(hear(w, &what));
    FL_TRY(apply(w, &what, &switched));
    FL_TRY(pause(w, &what, &switched));
    return what.evaluates && !w->stop ? evaluate(w, what.epoch) : FL_OK;
}

static bool has_standby(const worker *w)
{
    const fl_plan *plan = &w->now->plan;
    return fl_plan_members(plan) > plan->K * plan->R;
}

/* A script names the very step at which a plan begins: everybody waits there until it does, or
 * until the head says that it will not, which it may have said before. */
static bool is_due(const worker *w)
{
    const fl_job *job = w->c->job;
    bool due = false;
    for (int i = 0; w->answered < w->step && i < job->elastic.n_script; i++) {
        due = due || job->elastic.script[i].step == w->step;
    }
    return due;
}

static fl_status wait_verdict(worker *w, fl_verdict *verdict)
{
    int64_t deadline_us = fl_deadline_us(w->c->job->fault.deadline_ms);
    fl_flight_enter(FL_FLIGHT_VERDICT, -1, -1, 0);
    while (!fl_link_wait_verdict(w->link, STANDBY_SLICE_MS, verdict)) {
        FL_TRY(over(fl_worker_given_up(w) ? w->aborted : FL_OK));
        if (fl_left_ms(deadline_us) == 0) {
            return fl_fail(FL_EDEADLINE, "the head did not say what is to be at step %lld",
                           (long long)w->step);
        }
    }
    fl_flight_leave();
    return FL_OK;
}

/* The others hear the speaker. */
static fl_status hold(worker *w, told *what, bool *switched)
{
    FL_TRY(pause(w, what, switched));
    w->held_us = fl_now_us();
    while (!w->stop && !fl_worker_departs(w) && is_due(w)) {
        fl_link_doing(w->link, "scripted transition");
        if (w->speaks) {
            FL_TRY(wait_verdict(w, &what->verdict));
        }
        FL_TRY(hear(w, what));
        FL_TRY(apply(w, what, switched));
        FL_TRY(pause(w, what, switched));
    }
    w->held_us = 0;
    return FL_OK;
}

/* One step at the batch, and the control point behind it. */
static fl_status one_step(worker *w, const fl_global_batch *batch, fl_cursor after, bool evaluates,
                          bool *switched)
{
    told what = {0};
    fl_step_result result;
    bool last = batch->step + 1 == w->end_step;
    bool waits = w->speaks && fl_link_take_verdict(w->link, &what.verdict);
    double lr = w->lr_factor * fl_learning_rate(w->c->job, batch->step, w->c->n_steps);
    int64_t begun = fl_now_us();
    fl_link_doing(w->link, "step");
    fl_flight_step(batch->step);
    fl_flight_enter(FL_FLIGHT_STEP, -1, -1, 0);
    FL_TRY(fl_pipeline_step(w->now->pipeline, batch, lr, waits ? 1.0 : 0.0, &result));
    fl_flight_enter(FL_FLIGHT_REPORT, -1, -1, 0);
    report(w, batch, &result, lr, fl_now_us() - begun);
    fl_flight_leave();
    fl_flight_leave();
    report_cache(w, batch, last || after.epoch != batch->epoch);
    w->step = batch->step + 1;
    w->cursor = after;
    fl__reach("step", w);
    what.step = w->step;
    what.cursor = after;
    what.epoch = batch->epoch;
    what.evaluates = evaluates;
    if (last && has_standby(w)) {
        /* Standby workers wait to be told that this is the end; no other verdict matters now. */
        what.verdict.kind = FL_VERDICT_STOP;
        FL_TRY(hear(w, &what));
        return FL_OK;
    }
    if (result.flags > 0.0) {
        FL_TRY(hear(w, &what));
        FL_TRY(apply(w, &what, switched));
    }
    return hold(w, &what, switched);
}

static fl_status train(worker *w)
{
    fl_global_batch batch = {0}, next = {0};
    fl_cursor after = {0}, after_next = {0};
    bool drawn = false;
    while (w->step < w->end_step && !w->stop && !fl_worker_departs(w)) {
        bool switched = false;
        if (!w->now->place.active) {
            FL_TRY(stand_by(w));
            drawn = false;
            continue;
        }
        if (!drawn) {
            batch = draw(w, w->step, w->cursor, &after);
            FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &batch));
        }
        bool last = batch.step + 1 == w->end_step;
        bool evaluates = w->c->job->train.evaluate && (after.epoch != batch.epoch || last);
        drawn = !evaluates && !last;
        if (drawn) {
            next = draw(w, batch.step + 1, after, &after_next);
            FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &next));
        }
        int64_t epoch = batch.epoch;
        FL_TRY(one_step(w, &batch, after, evaluates, &switched));
        if (evaluates && !w->stop) {
            FL_TRY(evaluate(w, epoch));
            report_cache(w, &batch, true);
        }
        drawn = drawn && !switched;
        batch = next;
        after = after_next;
    }
    return FL_OK;
}

/* ---- ⑧ ---- */

static void close_member(worker *w, fl_member **member)
{
    if (*member != NULL) {
        fl_worker_withdraw(w, (*member)->group);
        fl_member_close(*member);
        fl_free(*member);
        *member = NULL;
    }
}

static void close_all(worker *w)
{
    fl_transition_settle(w);
    close_member(w, &w->now);
    pthread_mutex_lock(&w->lock);
    fl_message_group *messages = w->messages;
    w->messages = NULL;
    pthread_mutex_unlock(&w->lock);
    fl_message_close(&messages);
    fl_attic_fini(&w->attic);
    fl_device_destroy(&w->device);
    fl_link_close(&w->link);
    fl_free(w->ids[0]);
    fl_free(w->ids[1]);
}

static fl_status run(worker *w, const char *endpoint)
{
    FL_TRY(open_all(w, endpoint));
    fl__reach("begin", w);
    fl_link_ready(w->link, (int64_t)w->device->peak_bytes);
    FL_TRY(meet(w));
    FL_TRY(train(w));
    fl__reach("end", w);
    if (fl_worker_departs(w)) {
        fl_log(FL_LOG_INFO, "leaves the run, which goes on with generation %u",
               w->now->plan.generation);
        return FL_OK;
    }
    /* Nobody closes its connections while another may still need them. */
    return meet(w);
}

/* Generations come and go, and each is opened by another thread than the one before. What they give
 * back goes to the system, not to a heap of each of those threads. */
static void share_one_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_ARENA_MAX, 1);
#endif
}

int fl_worker_run(void *context, int rank, const char *endpoint)
{
    share_one_heap();
    worker w = {.c = context, .rank = rank, .lr_factor = 1.0, .lock = PTHREAD_MUTEX_INITIALIZER};
    w.end_step = w.c->n_steps;
    w.speaks = rank == w.c->plan->rank_of[0];
    fl_flight_generation(w.c->plan->generation);
    fl_status status = run(&w, endpoint);
    if (status != FL_OK) {
        fl_log(FL_LOG_ERROR, "%s: %s", fl_status_text(status), fl_errmsg());
    }
    if (w.link != NULL) {
        if (status == FL_OK) {
            fl_link_done(w.link);
        } else {
            fl_link_failed(w.link, status, fl_errmsg());
        }
    }
    close_all(&w);
    return status == FL_OK ? 0 : 3;
}
