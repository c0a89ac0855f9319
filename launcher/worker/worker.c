/* A worker from its start to its end:
 *   ① device, control link            worker_open.c
 *   ② message group of all workers    worker_open.c
 *   ③ the first generation            worker_open.c, generation.c
 *   ④ ready; all wait for all         wait_for_all
 *   ⑤ step, report                    train_steps, batch_stream.c, worker_report.c
 *   ⑥ evaluation after each epoch     evaluate.c
 *   ⑦ commands, transitions           control_point.c, transition.c, setting.c, checkpoint.c
 *   ⑧ the trained weights             write_model
 *   ⑨ close, innermost first          worker_open.c
 * When a worker is lost between ⑤ and ⑧, the others regroup (rejoin.c) and go on with ⑤.
 * A worker that does not train (frostline evaluate, predict) makes one pass over samples instead of
 * ⑤ to ⑦: pass.c.
 * A worker that joins a run which trains already begins with join.c instead of ②, ③ and ④.
 * A standby worker runs no steps: it waits until the controller wakes it to receive a command. */
#include "launcher/worker/worker.h"

#include "autodp/sampler.h"
#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/worker/worker_state.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/plan/batch/evaluation.h"

#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <string.h>

typedef fl_worker_state worker;

/* ---- expendable workers ---- */

static bool keeps_moments(const worker *w, int rank)
{
    for (int layer = 0; layer < w->parked.n_layers; layer++) {
        if (w->parked.rank[layer] == rank) {
            return true;
        }
    }
    return false;
}

fl_status fl_worker_release_standby(worker *w, const fl_plan *next)
{
    const fl_plan *now = &w->now->plan;
    bool spare[FL_MAX_WORKERS];
    for (int rank = 0; rank < now->n_workers; rank++) {
        spare[rank] = !fl_plan_place(now, rank).active && !keeps_moments(w, rank) &&
                      (next == NULL || !fl_plan_place(next, rank).active);
    }
    FL_TRY(fl_message_gather_through(w->messages, fl_plan_leader(now)));
    return fl_message_release(w->messages, spare);
}

/* ---- ④ ---- */

/* All workers must be about to run the same plan; a difference is a defect, and ends the run. */
static fl_status wait_for_all(worker *w, int64_t timeout_ms)
{
    const fl_plan *plan = &w->now->plan;
    void *all = NULL;
    struct {
        uint32_t generation;
        int32_t K, R, M, n_layers;
    } mine = {plan->generation, plan->K, plan->R, plan->M, plan->n_layers};
    int n = fl_plan_members(plan);
    FL_TRY(fl_alloc_array((size_t)n, sizeof mine, &all));
    fl_status status = fl_message_all_gather(w->messages, plan->generation, &mine, sizeof mine, all,
                                             fl_deadline_us(timeout_ms));
    for (int i = 0; status == FL_OK && i < n; i++) {
        int rank = fl_message_rank(w->messages, i);
        const void *row = (char *)all + (size_t)i * sizeof mine;
        if (memcmp(row, &mine, sizeof mine) != 0 && !fl_message_lost(w->messages, rank)) {
            status =
                fl_fail(FL_EINTERNAL, "worker %d has another plan than worker %d", rank, w->rank);
        }
    }
    fl_free(all);
    return status;
}

/* ---- ⑤ and ⑥ ---- */

/* One step with the batch. *any: the leader has a command for the control point after it, which is
 * in its *what. */
static fl_status run_step(worker *w, const fl_stream_batch *next, fl_control_message *what,
                          bool *any)
{
    const fl_global_batch *batch = &next->batch;
    fl_step_result result;
    bool last = batch->step + 1 == w->end_step;
    bool waits = w->leads && fl_link_take_command(w->link, batch->step + 1, &what->command);
    double lr = w->lr_factor * fl_learning_rate(w->c->job, batch->step, w->c->n_steps);
    int64_t started_us = fl_now_us();
    fl_link_doing(w->link, "step");
    fl_flight_step(batch->step);
    fl_flight_enter(FL_FLIGHT_STEP, -1, -1, 0);
    FL_TRY(fl_pipeline_step(w->now->pipeline, batch, lr, waits ? 1.0 : 0.0, &result));
    w->step = batch->step + 1;
    w->cursor = next->after;
    fl_flight_enter(FL_FLIGHT_REPORT, -1, -1, 0);
    FL_TRY(fl_worker_report(w, batch, &result, lr, fl_now_us() - started_us));
    fl_flight_leave();
    fl_flight_leave();
    fl_worker_report_graphs(w, batch->step, last || next->after.epoch != batch->epoch);
    fl_worker_report_cache(w, batch->step, batch->epoch, last || next->after.epoch != batch->epoch);
    bool ends = false;
    if (!result.finite) {
        FL_TRY(fl_worker_nonfinite(w, batch, &result, &ends));
    }
    w->n_skipped = result.finite ? 0 : w->n_skipped;
    FL_TRY(fl_worker_hash_weights(w));
    w->end_step = ends ? w->step : w->end_step;
    fl_crowding_check(&w->crowding);
    fl__reach("step", w);
    what->step = w->step;
    *any = result.flags > 0.0;
    return FL_OK;
}

/* The samples are read as soon as a batch is drawn. */
static fl_status peek_batch(worker *w, int ahead, const fl_stream_batch **out)
{
    bool is_new = fl_batch_stream_peek(&w->batches, ahead, out);
    return is_new ? fl_pipeline_prefetch(w->now->pipeline, &(*out)->batch) : FL_OK;
}

/* An evaluation that is judged comes before the control point, where the workers then wait for the
 * decision, and for the command to write the best checkpoint; any other one after it. due: an
 * evaluation follows the step. */
static fl_status evaluate_before(worker *w, bool due, fl_control_message *what)
{
    what->evaluated = due && w->is_judged && w->step < w->end_step;
    what->evaluates = due && !what->evaluated;
    return what->evaluated ? fl_worker_evaluate(w, what->epoch) : FL_OK;
}

static fl_status evaluate_after(worker *w, const fl_control_message *what)
{
    bool ends = what->evaluated && w->step == w->end_step;
    return w->stop           ? FL_OK
           : what->evaluates ? fl_worker_evaluate(w, what->epoch)
           : ends            ? fl_worker_evaluate_end(w, what->epoch)
                             : FL_OK;
}

/* Run the next step, the evaluation that may follow it, and the control point. The next batch is
 * prefetched meanwhile, except across an evaluation, which prefetches its own. */
static fl_status train_step(worker *w)
{
    const fl_stream_batch *next, *ahead;
    bool switched = false, any = false;
    FL_TRY(peek_batch(w, 0, &next));
    int64_t step = next->batch.step, epoch = next->batch.epoch;
    bool last = step + 1 == w->end_step;
    bool evaluates = w->c->job->train.evaluate &&
                     fl_evaluation_is_due(step + 1, w->evaluation_period, w->end_step);
    if (!evaluates && !last) {
        FL_TRY(peek_batch(w, 1, &ahead));
    }
    fl_control_message what = {.epoch = epoch, .cursor = next->after};
    FL_TRY(run_step(w, next, &what, &any));
    FL_TRY(evaluate_before(w, evaluates, &what));
    FL_TRY(fl_control_point(w, any, &what, &switched));
    fl_batch_stream_take(&w->batches);
    if (switched) {
        fl_batch_stream_reset(&w->batches, w->step, w->cursor); /* a new pipeline */
    }
    FL_TRY(evaluate_after(w, &what));
    if (evaluates && !w->stop) {
        fl_worker_report_cache(w, step, epoch, true);
    }
    return FL_OK;
}

static fl_status stand_by(worker *w)
{
    fl_control_message what = {0};
    FL_TRY(fl_control_stand_by(w, &what));
    FL_TRY(evaluate_after(w, &what));
    fl_batch_stream_reset(&w->batches, w->step, w->cursor);
    return FL_OK;
}

/* What comes between the step that is done and the next: a decision that is due there, then an
 * evaluation, if it is still to come. */
static fl_status go_on(worker *w, bool evaluates)
{
    bool switched = false;
    fl_control_message what = {
        .step = w->step, .cursor = w->cursor, .epoch = w->cursor.epoch - (w->cursor.position == 0)};
    bool due = w->step > 0 && evaluates && w->c->job->train.evaluate &&
               fl_evaluation_is_due(w->step, w->evaluation_period, w->end_step);
    FL_TRY(evaluate_before(w, due, &what));
    FL_TRY(fl_control_begin(w, &what, &switched));
    FL_TRY(evaluate_after(w, &what));
    fl_batch_stream_reset(&w->batches, w->step, w->cursor);
    return FL_OK;
}

/* As the run that wrote the checkpoint did, or would have done. */
static fl_status continue_run(worker *w)
{
    const fl_worker_birth *birth = w->birth;
    if (birth->step == 0 && !birth->paused) {
        return FL_OK;
    }
    bool judged = birth->evaluates && w->c->job->train.evaluate && w->is_judged &&
                  w->step < w->end_step &&
                  fl_evaluation_is_due(w->step, w->evaluation_period, w->end_step);
    if (!judged) { /* nothing is decided on an evaluation before the checkpoint */
        w->answered[FL_DUE_STOP] = w->step;
    }
    return go_on(w, birth->evaluates);
}

static fl_status train_steps(worker *w)
{
    while (w->step < w->end_step && !w->stop && !fl_worker_departs(w)) {
        FL_TRY(w->now->place.active ? train_step(w) : stand_by(w));
    }
    return FL_OK;
}

/* ---- ⑧ ---- */

/* The replicas of a stage share its layers among them. */
static bool writes_layer(const worker *w, int layer)
{
    const fl_params *params = fl_generation_params(w->now);
    return w->now->place.active && layer >= params->first && layer < params->last &&
           layer % w->now->plan.R == w->now->place.replica;
}

static fl_status write_model(worker *w)
{
    if (w->c->model_file == NULL) {
        return FL_OK;
    }
    fl_link_doing(w->link, "writing the model");
    for (int layer = 0; layer < w->now->plan.n_layers; layer++) {
        if (writes_layer(w, layer)) {
            fl_status status =
                fl_model_file_write(w->c->model_file, fl_generation_params(w->now), NULL, layer);
            if (status != FL_OK) {
                return fl_within(status, "the trained weights");
            }
        }
    }
    return FL_OK;
}

/* Of what this host has written into a file of the head, as this host sees it. */
static fl_status hash_layers(const worker *w, fl_hashes_report *mine)
{
    for (int layer = 0; w->c->model_file->joined && layer < mine->n; layer++) {
        if (writes_layer(w, layer)) {
            FL_TRY(fl_model_file_hash(w->c->model_file, layer, &mine->hash[layer]));
        }
    }
    return FL_OK;
}

/* One worker has a hash of a layer, or none has. */
static bool add_hashes(fl_hashes_report *sum, const uint64_t *row)
{
    bool any = false;
    for (int layer = 0; layer < sum->n; layer++) {
        sum->hash[layer] |= row[layer];
        any = any || row[layer] != 0;
    }
    return any;
}

/* Each worker reports the layers of all: whichever is lost then, the head can compare them with
 * the file that it has. */
static fl_status report_saved(worker *w)
{
    const fl_plan *plan = &w->now->plan;
    int n = fl_plan_members(plan);
    void *all = NULL;
    fl_hashes_report mine = {.step = w->step, .n = plan->n_layers}, sum = mine;
    size_t row_bytes = (size_t)plan->n_layers * sizeof mine.hash[0];
    if (w->c->model_file == NULL || w->c->apart) {
        return FL_OK;
    }
    FL_TRY(hash_layers(w, &mine));
    FL_TRY(fl_alloc_array((size_t)n, row_bytes, &all));
    fl_status status = fl_message_all_gather(w->messages, plan->generation, mine.hash, row_bytes,
                                             all, fl_deadline_us(2 * w->c->job->fault.deadline_ms));
    bool any = false;
    for (int i = 0; status == FL_OK && i < n; i++) {
        if (!fl_message_lost(w->messages, fl_message_rank(w->messages, i))) {
            any = add_hashes(&sum, (const uint64_t *)all + (size_t)i * (size_t)sum.n) || any;
        }
    }
    if (any) {
        fl_link_saved(w->link, &sum);
    }
    fl_free(all);
    return status;
}

/* ---- the whole worker ---- */

/* ⑤ to ⑧, after what comes before the first of these steps. */
static fl_status finish_run(worker *w)
{
    FL_TRY(train_steps(w));
    fl__reach("end", w);
    if (fl_worker_departs(w)) {
        fl_crowding_end(&w->crowding);
        fl_log(FL_LOG_INFO, "leaves the run, which goes on with generation %u",
               w->now->plan.generation);
        fl_worker_snapshots_end(w);
        fl_worker_checkpoint_settle(w);
        return FL_OK;
    }
    fl_worker_snapshots_end(w);
    FL_TRY(fl_worker_checkpoint_last(w));
    FL_TRY(write_model(w));
    FL_TRY(fl_worker_collect_model(w));
    fl_worker_checkpoint_settle(w);
    fl__reach("saved", w);
    FL_TRY(report_saved(w));
    /* No worker closes its connections, or gives up the weights, while another may still need them:
     * if one is lost before its files are on the disk, the others write them. The disk may have
     * kept another worker for fault.deadline. */
    FL_TRY(wait_for_all(w, 2 * w->c->job->fault.deadline_ms));
    fl__reach("met", w);
    return FL_OK;
}

static bool regroups(const worker *w, fl_status status)
{
    return fl_status_is_regroup(status) && w->c->job->fault.on_loss == FL_ON_LOSS_CONTINUE;
}

static fl_status train_run(worker *w)
{
    fl_status status = w->birth->joins ? fl_worker_join(w) : continue_run(w);
    status = status == FL_OK ? finish_run(w) : status;
    while (regroups(w, status) && w->messages != NULL) { /* else it has not joined */
        fl_rejoin_outcome outcome;
        FL_TRY(fl_worker_rejoin(w, status, &outcome));
        if (outcome.leaves) {
            return FL_OK;
        }
        status = go_on(w, outcome.evaluates);
        status = status == FL_OK ? finish_run(w) : status;
    }
    return status;
}

static fl_status pass_run(worker *w)
{
    FL_TRY(fl_worker_pass(w));
    fl__reach("end", w);
    return wait_for_all(w, w->c->job->fault.deadline_ms);
}

static fl_status run_worker(worker *w, const char *endpoint)
{
    FL_TRY(fl_worker_open(w, endpoint));
    fl__reach("begin", w);
    FL_TRY(fl_link_await_store(w->link, fl_deadline_us(w->c->job->fault.deadline_ms)));
    fl_link_ready(w->link, (int64_t)w->device->peak_bytes);
    if (!w->birth->joins) {
        FL_TRY(wait_for_all(w, w->c->job->fault.deadline_ms));
        FL_TRY(fl_worker_release_standby(w, NULL));
    }
    return w->c->task == FL_WORKER_TRAIN ? train_run(w) : pass_run(w);
}

/* A new thread opens each generation. Memory that a generation releases goes back to the system,
 * not to a heap of its thread. */
static void share_one_heap(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 128 * 1024);
    mallopt(M_ARENA_MAX, 1);
#endif
}

/* The position at which the run begins. */
static void begin_at(worker *w)
{
    w->step = w->birth->step;
    w->cursor = w->birth->cursor;
    w->lr_factor = w->birth->lr_factor;
    w->end_step = w->birth->end_step;
    w->n_skipped = w->birth->n_skipped;
    w->paused = w->birth->paused;
}

int fl_worker_run(void *context, const fl_worker_birth *birth, const char *endpoint)
{
    share_one_heap();
    worker w = {.c = context, .birth = birth, .rank = birth->rank, .abort_set = FL_ABORT_SET_INIT};
    w.abort_set.limits_waits =
        w.c->task == FL_WORKER_TRAIN; /* control/controller/judge/standstill.h */
    begin_at(&w);
    int64_t n_an_epoch = fl_sampler_steps_per_epoch(w.c->n_samples, fl_sampler_batch(w.c->job));
    w.evaluation_period = fl_evaluation_period(w.c->job, n_an_epoch, w.c->n_steps);
    w.is_judged = fl_evaluation_patience(w.c->job, n_an_epoch, w.c->n_steps) > 0 ||
                  fl_evaluation_keeps_best(w.c->job);
    w.leads = w.rank == fl_plan_leader(&birth->plan);
    fl_flight_generation(birth->plan.generation);
    fl_status status = run_worker(&w, endpoint);
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
    fl_worker_close(&w);
    return status == FL_OK ? 0 : 3;
}
