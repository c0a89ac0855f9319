/* The worker's way:
 *   ① device, control link            open_all
 *   ② message group: everybody        open_all
 *   ③ training group, pipeline        open_all
 *   ④ ready; all wait for all         meet
 *   ⑤ step, report, verdict           train
 *   ⑥ evaluation after each epoch     evaluate
 *   ⑦ close, innermost first          close_all */
#include "launcher/worker.h"

#include "autodp/message.h"
#include "autodp/sampler.h"
#include "control/link.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"
#include "nn/optimizer.h"
#include "pipe/pipeline.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

enum { HEARTBEATS_PER_DETECT = 10 };

typedef struct worker {
    const fl_worker_context *c;
    int rank;
    fl_place place;
    bool speaks; /* for the group: reports steps, carries verdicts */
    fl_device *device;
    fl_link *link;
    fl_message_group *messages;
    fl_group *group;
    fl_pipeline *pipeline;
    fl_stage_memory memory;
    fl_cursor cursor;
    int64_t *ids[2]; /* [train.batch] of the batch at work and of the one after it */
    /* Guards the two groups against the link's thread, which may abort them at any moment. */
    pthread_mutex_t lock;
    fl_status aborted;
} worker;

/* The link's thread: the head says that this generation is over, or is gone itself. */
static void on_abort(void *context, uint32_t generation, fl_status why)
{
    worker *w = context;
    (void)generation;
    pthread_mutex_lock(&w->lock);
    w->aborted = why;
    if (w->messages != NULL) {
        fl_message_abort(w->messages, why);
    }
    if (w->group != NULL) {
        fl_group_abort(w->group, why);
    }
    pthread_mutex_unlock(&w->lock);
}

/* Asked while a group is being opened: whether that has become pointless. */
static bool given_up(void *context)
{
    worker *w = context;
    pthread_mutex_lock(&w->lock);
    bool over = w->aborted != FL_OK;
    pthread_mutex_unlock(&w->lock);
    return over;
}

/* Publish a freshly opened group, or learn that it came too late. */
static fl_status publish(worker *w, fl_message_group *messages, fl_group *group)
{
    pthread_mutex_lock(&w->lock);
    fl_status why = w->aborted;
    w->messages = messages != NULL ? messages : w->messages;
    w->group = group != NULL ? group : w->group;
    pthread_mutex_unlock(&w->lock);
    return why == FL_OK ? FL_OK : fl_fail(why, "the head ended this generation");
}

/* ---- ① to ③ ---- */

/* Workers take processors in turn as long as there are enough for each to have its own. */
static fl_status open_device(worker *w)
{
    const fl_job *job = w->c->job;
    cpu_set_t set;
    int cpus[CPU_SETSIZE], mine[CPU_SETSIZE], n = 0;
    int cores = (int)job->devices.cores;
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        CPU_ZERO(&set);
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            cpus[n++] = (int)cpu;
        }
    }
    bool enough = cores * w->c->plan->n_workers <= n;
    for (int i = 0; enough && i < cores; i++) {
        mine[i] = cpus[w->rank * cores + i];
    }
    return fl_device_cpu_create(cores, enough ? mine : NULL, (size_t)job->devices.memory_bytes,
                                &w->device);
}

static fl_status open_messages(worker *w)
{
    const fl_job *job = w->c->job;
    fl_message_options options = {.membership = 1,
                                  .rank = w->rank,
                                  .size = w->c->plan->n_workers,
                                  .kv = fl_link_kv(w->link),
                                  .open_timeout_ms = job->fault.deadline_ms,
                                  .wait_timeout_ms = job->fault.deadline_ms,
                                  .given_up = given_up,
                                  .context = w};
    fl_message_group *messages = NULL;
    FL_TRY(fl_message_open(&options, &messages));
    return publish(w, messages, NULL);
}

static fl_status open_group(worker *w)
{
    const fl_job *job = w->c->job;
    const fl_plan *plan = w->c->plan;
    fl_group_options options = {.generation = plan->generation,
                                .index = w->place.replica * plan->K + w->place.stage,
                                .size = plan->K * plan->R,
                                .kv = fl_link_kv(w->link),
                                .open_timeout_ms = job->fault.deadline_ms,
                                .wait_timeout_ms = job->fault.deadline_ms,
                                .given_up = given_up,
                                .context = w};
    fl_group *group = NULL;
    FL_TRY(fl_group_open(&options, &group));
    return publish(w, NULL, group);
}

static fl_status plan_memory(worker *w)
{
    const fl_plan *plan = w->c->plan;
    fl_shape input;
    int64_t n_targets;
    void *layers = NULL;
    const fl_dataset *d = w->c->dataset;
    FL_TRY(d->ops->max_shape(d->self, &input, &n_targets));
    FL_TRY(fl_alloc_array((size_t)plan->n_layers, sizeof(fl_layer_memory), &layers));
    fl_status status =
        fl_memory_measure(w->c->model, &input, fl_plan_max_samples(w->c->job, plan), layers);
    if (status == FL_OK) {
        fl_memory_stage(w->c->model, w->c->job, layers, plan->schedule, plan->K, plan->M,
                        w->place.stage, plan->first[w->place.stage],
                        plan->first[w->place.stage + 1], &w->memory);
    }
    fl_free(layers);
    return status;
}

static fl_status open_pipeline(worker *w)
{
    FL_TRY(plan_memory(w));
    fl_pipeline_options options = {.model = w->c->model,
                                   .dataset = w->c->dataset,
                                   .job = w->c->job,
                                   .plan = w->c->plan,
                                   .rank = w->rank,
                                   .device = w->device,
                                   .group = w->group,
                                   .memory = &w->memory};
    return fl_pipeline_create(&options, &w->pipeline);
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
    FL_TRY(open_group(w));
    FL_TRY(open_pipeline(w));
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
    const fl_plan *plan = w->c->plan;
    void *all = NULL;
    struct {
        uint32_t generation;
        int32_t K, R, M, n_layers;
    } mine = {plan->generation, plan->K, plan->R, plan->M, plan->n_layers};
    FL_TRY(fl_alloc_array((size_t)plan->n_workers, sizeof mine, &all));
    fl_status status = fl_message_gather(w->messages, plan->generation, &mine, sizeof mine, all,
                                         fl_deadline_us(w->c->job->fault.deadline_ms));
    for (int i = 0; status == FL_OK && i < plan->n_workers; i++) {
        if (memcmp((char *)all + (size_t)i * sizeof mine, &mine, sizeof mine) != 0) {
            status = fl_fail(FL_EINTERNAL, "worker %d has another plan than worker %d", i, w->rank);
        }
    }
    fl_free(all);
    return status;
}

/* ---- ⑤ and ⑥ ---- */

static fl_global_batch next_batch(worker *w, int64_t step)
{
    fl_global_batch batch = {.split = FL_TRAIN, .step = step, .epoch = w->cursor.epoch};
    int64_t *ids = w->ids[step % 2];
    fl_sampler_next(w->c->job->train.seed, w->c->n_samples, w->c->job->train.batch, &w->cursor, ids,
                    &batch.n);
    batch.ids = ids;
    return batch;
}

static fl_global_batch test_batch(worker *w, const fl_global_batch *like, int64_t first)
{
    const fl_dataset *d = w->c->dataset;
    int64_t left = d->ops->count(d->self, FL_TEST) - first;
    int64_t most = w->c->job->train.batch;
    /* The training ids of this parity are done with: the next step's are not drawn yet. */
    int64_t *ids = w->ids[(first / most) % 2];
    fl_global_batch batch = {.split = FL_TEST, .step = like->step, .epoch = like->epoch};
    batch.n = left < most ? left : most;
    for (int64_t i = 0; i < batch.n; i++) {
        ids[i] = first + i;
    }
    batch.ids = ids;
    return batch;
}

static fl_status evaluate(worker *w, const fl_global_batch *after)
{
    const fl_dataset *d = w->c->dataset;
    int64_t n = d->ops->count(d->self, FL_TEST), most = w->c->job->train.batch;
    int64_t begun = fl_now_us();
    fl_loss_sums sums = {0};
    if (n == 0) {
        return FL_OK;
    }
    fl_link_doing(w->link, "evaluation");
    fl_global_batch batch = test_batch(w, after, 0);
    FL_TRY(fl_pipeline_prefetch(w->pipeline, &batch));
    for (int64_t first = 0; first < n; first += most) {
        fl_global_batch next = batch;
        if (first + most < n) {
            next = test_batch(w, after, first + most);
            FL_TRY(fl_pipeline_prefetch(w->pipeline, &next));
        }
        FL_TRY(fl_pipeline_evaluate(w->pipeline, &batch, &sums));
        batch = next;
    }
    FL_TRY(fl_pipeline_total(w->pipeline, &sums));
    if (w->speaks) {
        fl_eval_report report = {.epoch = after->epoch,
                                 .step = after->step,
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
    const fl_plan *plan = w->c->plan;
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
    if (w->place.stage == plan->K - 1) {
        fl_link_ledger(w->link, batch->epoch, batch->step, plan->generation, w->place.replica,
                       r->ids, r->n_ids);
    }
    fl_time_report times = {.step = batch->step,
                            .compute_us = r->compute_us,
                            .wait_us = r->wait_us,
                            .reduce_wait_us = r->reduce_wait_us,
                            .optimizer_us = r->optimizer_us,
                            .data_us = r->data_us};
    fl_link_time(w->link, &times);
}

/* A verdict waits: the speaker tells it to everybody, and all do the same. */
static fl_status hear_verdict(worker *w, fl_verdict *verdict)
{
    unsigned char message[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = sizeof *verdict;
    memcpy(message, verdict, sizeof *verdict);
    FL_TRY(fl_message_tell(w->messages, w->c->plan->rank_of[0], w->c->plan->generation, message,
                           &size_bytes, fl_deadline_us(w->c->job->fault.deadline_ms)));
    if (size_bytes != sizeof *verdict) {
        return fl_fail(FL_EINTERNAL, "a verdict of %zu bytes, %zu expected", size_bytes,
                       sizeof *verdict);
    }
    memcpy(verdict, message, sizeof *verdict);
    return FL_OK;
}

/* One step with its report. *stop is set when the run is to end after it. */
static fl_status one_step(worker *w, const fl_global_batch *batch, bool *stop)
{
    fl_verdict verdict = {0};
    bool waits = w->speaks && fl_link_take_verdict(w->link, &verdict);
    double lr = fl_learning_rate(w->c->job, batch->step, w->c->n_steps);
    int64_t begun = fl_now_us();
    fl_step_result result;
    fl_link_doing(w->link, "training step");
    FL_TRY(fl_pipeline_step(w->pipeline, batch, lr, waits ? 1.0 : 0.0, &result));
    report(w, batch, &result, lr, fl_now_us() - begun);
    if (result.flags > 0.0) {
        FL_TRY(hear_verdict(w, &verdict));
        *stop = verdict.kind == FL_VERDICT_STOP;
    }
    return FL_OK;
}

static fl_status train(worker *w)
{
    const fl_job *job = w->c->job;
    bool stop = false;
    fl_global_batch batch = next_batch(w, 0);
    FL_TRY(fl_pipeline_prefetch(w->pipeline, &batch));
    for (int64_t step = 0; step < w->c->n_steps && !stop; step++) {
        bool ends_epoch = w->cursor.epoch != batch.epoch;
        bool ends_run = step + 1 == w->c->n_steps;
        bool evaluates = job->train.evaluate && (ends_epoch || ends_run);
        fl_global_batch next = batch;
        if (!evaluates && !ends_run) {
            next = next_batch(w, step + 1);
            FL_TRY(fl_pipeline_prefetch(w->pipeline, &next));
        }
        FL_TRY(one_step(w, &batch, &stop));
        if (evaluates && !stop) {
            FL_TRY(evaluate(w, &batch));
            if (!ends_run) {
                next = next_batch(w, step + 1);
                FL_TRY(fl_pipeline_prefetch(w->pipeline, &next));
            }
        }
        batch = next;
    }
    return FL_OK;
}

/* ---- ⑦ ---- */

static void close_all(worker *w)
{
    fl_pipeline_destroy(&w->pipeline);
    pthread_mutex_lock(&w->lock);
    fl_group *group = w->group;
    fl_message_group *messages = w->messages;
    w->group = NULL;
    w->messages = NULL;
    pthread_mutex_unlock(&w->lock);
    fl_group_close(&group);
    fl_message_close(&messages);
    fl_device_destroy(&w->device);
    fl_link_close(&w->link);
    fl_free(w->ids[0]);
    fl_free(w->ids[1]);
}

static fl_status run(worker *w, const char *endpoint)
{
    FL_TRY(open_all(w, endpoint));
    fl_link_ready(w->link, (int64_t)w->device->peak_bytes);
    FL_TRY(meet(w));
    FL_TRY(train(w));
    /* Nobody closes its connections while another may still need them. */
    return meet(w);
}

int fl_worker_run(void *context, int rank, const char *endpoint)
{
    worker w = {.c = context, .rank = rank, .lock = PTHREAD_MUTEX_INITIALIZER};
    w.place = fl_plan_place(w.c->plan, rank);
    w.speaks = rank == w.c->plan->rank_of[0];
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
