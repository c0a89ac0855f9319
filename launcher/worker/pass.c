/* The pass of a worker that does not train: once over the test split, forward only.
 *
 *     read ahead batch i + 1 ──> gate admits batch i ──> all micro-batches of batch i
 *         ──> at the last stage, a report of its samples, with their lines ──> ...
 *
 * All workers end with the same batch: the gate closes for all of them. */
#include "launcher/worker/worker_state.h"

#include "autodp/sampler.h"
#include "data/view.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/worker/outputs/answers.h"
#include "launcher/worker/outputs/prediction.h"
#include "nn/model.h"

#include <string.h>
#include <time.h>

typedef fl_worker_state worker;

enum {
    LINES_SENT_BYTES = 1024 * 1024,    /* lines are reported when there are more */
    LINE_MAX_BYTES = 32 * 1024 * 1024, /* a report must fit into the link's queue */
};

static const struct timespec gate_nap = {.tv_nsec = 500 * 1000};

/* Lines that are not reported yet. */
typedef struct pass_lines {
    worker *w;
    fl_prediction prediction;
    fl_pass_report report; /* of the batch at work */
    unsigned char *bytes;
    size_t capacity;
} pass_lines;

/* ---- lines ---- */

static void send_lines(pass_lines *l)
{
    l->report.lines = l->bytes;
    fl_link_pass(l->w->link, &l->report);
    l->report.n_samples = 0;
    l->report.lines_bytes = 0;
}

static void put_number(unsigned char *to, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        to[i] = (unsigned char)(value >> (8 * i));
    }
}

/* As fl_pass_report has them. */
static fl_status add_line(pass_lines *l, int64_t id)
{
    enum { HEAD_BYTES = 8 + 4 };
    size_t used = l->report.lines_bytes, n = l->prediction.line.n;
    if (n > LINE_MAX_BYTES) {
        return fl_fail(FL_ENOTSUP, "the line of sample %lld has %zu bytes; at most %d are allowed",
                       (long long)id, n, LINE_MAX_BYTES);
    }
    FL_TRY(fl_alloc_room((void **)&l->bytes, used, HEAD_BYTES + n, 1, &l->capacity));
    put_number(l->bytes + used, (uint64_t)id, 8);
    put_number(l->bytes + used + 8, n, 4);
    memcpy(l->bytes + used + HEAD_BYTES, l->prediction.line.text, n);
    l->report.lines_bytes += (uint32_t)(HEAD_BYTES + n);
    l->report.n_samples++;
    if (l->report.lines_bytes > LINES_SENT_BYTES) {
        send_lines(l);
    }
    return FL_OK;
}

static fl_status take_outputs(void *context, const fl_outputs *outputs)
{
    pass_lines *l = context;
    for (int64_t s = 0; s < outputs->n_samples; s++) {
        int64_t id = fl_view_own(l->w->c->dataset, outputs->split, outputs->ids[s]).id;
        FL_TRY(fl_prediction_write(&l->prediction, outputs, s, id));
        FL_TRY(add_line(l, id));
    }
    return FL_OK;
}

/* ---- batches ---- */

/* Wait until the controller admits the batch. *over: it never will, to no worker. */
static fl_status wait_at_gate(worker *w, int64_t batch, bool *over)
{
    *over = false;
    while (!fl_pass_gate_admits(w->c->gate, batch, over) && !*over) {
        fl_link_doing(w->link, "waiting for the output");
        FL_TRY(fl_worker_check_abort(w));
        nanosleep(&gate_nap, NULL);
    }
    fl_link_doing(w->link, w->c->task == FL_WORKER_PREDICT ? "prediction" : "evaluation");
    return FL_OK;
}

static fl_status run_batch(pass_lines *l, const fl_global_batch *batch, int64_t number,
                           fl_loss_sums *sums)
{
    worker *w = l->w;
    l->report = (fl_pass_report){.batch = number};
    if (w->c->task == FL_WORKER_PREDICT) {
        FL_TRY(fl_pipeline_predict(w->now->pipeline, batch, take_outputs, l));
    } else {
        FL_TRY(fl_pipeline_evaluate(w->now->pipeline, batch, sums));
        (void)fl_pipeline_samples(w->now->pipeline, &l->report.n_samples);
    }
    if (w->now->place.stage == w->now->plan.K - 1) {
        send_lines(l);
    }
    return FL_OK;
}

static fl_status run_batches(pass_lines *l, const fl_evaluation_set *set, fl_loss_sums *sums,
                             bool *over)
{
    worker *w = l->w;
    int64_t most = fl_sampler_batch(w->c->job);
    fl_global_batch batch = fl_worker_test_batch(w, set, 0);
    FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &batch));
    for (int64_t first = 0; first < set->n; first += most) {
        fl_global_batch next = batch;
        FL_TRY(wait_at_gate(w, first / most, over));
        if (*over) {
            return FL_OK;
        }
        if (first + most < set->n) {
            next = fl_worker_test_batch(w, set, first + most);
            FL_TRY(fl_pipeline_prefetch(w->now->pipeline, &next));
        }
        FL_TRY(run_batch(l, &batch, first / most, sums));
        batch = next;
    }
    return FL_OK;
}

/* ---- the pass ---- */

static fl_status report_sums(worker *w, fl_loss_sums *sums, fl_answers *answers, int64_t n,
                             int64_t begun_us)
{
    FL_TRY(fl_pipeline_total(w->now->pipeline, sums));
    FL_TRY(fl_answers_end(answers, w->now->pipeline, w->leads, sums));
    if (w->leads) {
        fl_eval_report report = {.loss = sums->loss / sums->n_targets,
                                 .ms = (double)(fl_now_us() - begun_us) * 1e-3,
                                 .metrics = fl_loss_sums_means(sums, fl_model_metrics(w->c->model)),
                                 .samples = n};
        fl_link_eval(w->link, &report);
    }
    return FL_OK;
}

fl_status fl_worker_pass(worker *w)
{
    const fl_dataset *d = w->c->dataset;
    int64_t n = d->ops->count(d->self, FL_TEST), begun_us = fl_now_us();
    fl_evaluation_set set = fl_evaluation_set_of(0, n, 0, w->c->job->train.seed);
    fl_loss_sums sums = {0};
    pass_lines lines = {.w = w};
    fl_answers answers = {0};
    bool over = false;
    fl__reach("pass", w);
    fl_flight_enter(FL_FLIGHT_EVALUATION, -1, -1, 0);
    fl_status status = fl_prediction_init(&lines.prediction, w->c->model, d);
    if (status == FL_OK && w->c->task == FL_WORKER_EVALUATE) {
        status = fl_answers_init(&answers, w->c->model, d, 0);
        fl_answers_watch(&answers, w->now->pipeline);
    }
    if (status == FL_OK) {
        status = run_batches(&lines, &set, &sums, &over);
    }
    if (status == FL_OK && !over && w->c->task == FL_WORKER_EVALUATE) {
        status = report_sums(w, &sums, &answers, n, begun_us);
    }
    fl_pipeline_watch_outputs(w->now->pipeline, NULL, NULL);
    fl_answers_fini(&answers);
    fl_flight_leave();
    fl_prediction_fini(&lines.prediction);
    fl_free(lines.bytes);
    return status;
}
