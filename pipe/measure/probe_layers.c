/* Times a chain of layers forward and backward, each call where it stands: with its input fresh
 * from the layer before and everything older pushed out of the caches, as in a step. Two sizes of
 * micro-batch tell apart what a call costs and what a sample costs. Where samples differ in length,
 * a third one, of as many short samples, tells what a token costs. */
#include "data/loader.h"
#include "device/system/alloc.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/measure/probe_chain.h"
#include "pipe/measure/quantile.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { SMALL, LARGE, SHORT, N_SIZES };
enum { FORWARD, BACKWARD, FROZEN, N_PASSES };
enum {
    REPEATS = 7,
    FEWEST_REPEATS = 3,
    SPLIT_OF_SIZES = 8,
    SMALLEST_OPTIMIZER = 1024,
    FIRST_BYTES = 64
};

static const double BUDGET_US = 400e3;      /* repeating ends when this much is spent */
static const double LONGEST_RUN_US = 150e3; /* of the whole chain, once */
static const int64_t LARGEST_OPTIMIZER = (int64_t)4 << 20; /* parameters */

/* The times of one pass of one kind of layer at one size. */
typedef struct series {
    double *us; /* [copies * REPEATS] */
    int n;
} series;

typedef struct timing {
    const fl_probe_options *o;
    fl_probe *shared;
    fl_chain chain;
    int64_t n[N_SIZES], tokens[N_SIZES];
    fl_event *begun, *ended; /* of what is being timed */
    fl_batch batch;
    double *square; /* device memory: the norm that a step computes */
    series *series; /* [n_layers + 1][N_SIZES][N_PASSES]; the last layer is the loss */
} timing;

static double read_us(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

double fl_probe_now_us(void)
{
    return read_us(CLOCK_MONOTONIC);
}

double fl_probe_cpu_us(void)
{
    return read_us(CLOCK_PROCESS_CPUTIME_ID);
}

/* Time that is ours: on a machine with other work, a call that lost its processor on the way is
 * counted by what it computed. Several threads have no such count, so theirs is the wall's. */
typedef struct watch {
    double wall_us, thread_us;
    long n_preempted;
} watch;

static watch watch_start(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return (watch){.wall_us = fl_probe_now_us(),
                   .thread_us = read_us(CLOCK_THREAD_CPUTIME_ID),
                   .n_preempted = usage.ru_nivcsw};
}

static double watch_stop(const watch *begun, int n_threads)
{
    watch now = watch_start();
    bool preempted = now.n_preempted != begun->n_preempted;
    return preempted && n_threads == 1 ? now.thread_us - begun->thread_us
                                       : now.wall_us - begun->wall_us;
}

static series *series_of(timing *t, int kind, int size, int pass)
{
    return &t->series[((size_t)kind * N_SIZES + (size_t)size) * N_PASSES + (size_t)pass];
}

static fl_status start(timing *t, watch *begun)
{
    __atomic_fetch_add(&t->shared->n_calls, 1, __ATOMIC_RELAXED);
    *begun = watch_start();
    return t->o->device->ops->event_record(t->o->device, t->begun, t->o->stream);
}

/* Wait for the device. *us: what it took since `begun`, by its own events unless it computes in the
 * threads of this process. */
static fl_status stop(timing *t, const watch *begun, double *us)
{
    fl_device *d = t->o->device;
    FL_TRY(d->ops->event_record(d, t->ended, t->o->stream));
    FL_TRY(d->ops->sync(d, t->o->stream));
    *us = watch_stop(begun, d->n_threads);
    return d->ops->host_memory ? FL_OK : d->ops->event_elapsed(d, t->begun, t->ended, us);
}

/* Note what has passed since `begun`; size < 0: a warm-up. */
static fl_status note(timing *t, int kind, int size, int pass, const watch *begun)
{
    double us;
    FL_TRY(stop(t, begun, &us));
    if (size >= 0) {
        series *s = series_of(t, kind, size, pass);
        s->us[s->n++] = us;
    }
    return FL_OK;
}

static fl_exec exec_of(timing *t)
{
    return (fl_exec){.device = t->o->device,
                     .stream = t->o->stream,
                     .batch = &t->batch,
                     .training = true,
                     .keep = &t->chain.keep,
                     .scratch = &t->chain.scratch};
}

static fl_status run_forward(timing *t, fl_probe_layer *l, int size)
{
    fl_exec x = exec_of(t);
    t->shared->layer = l->layer;
    watch begun;
    FL_TRY(start(t, &begun));
    FL_TRY(fl_exec_forward(&x, t->o->model, l->layer, &l->params, &l->frame, &l->in, &l->out));
    return note(t, l->kind, size, FORWARD, &begun);
}

/* Forward of a frozen layer: nothing is kept for a backward, and nothing is dropped. */
static fl_status run_frozen(timing *t, fl_probe_layer *l, int size)
{
    fl_exec x = exec_of(t);
    x.training = false;
    t->shared->layer = l->layer;
    watch begun;
    FL_TRY(start(t, &begun));
    FL_TRY(fl_exec_forward(&x, t->o->model, l->layer, &l->params, &l->frame, &l->in, &l->out));
    return note(t, l->kind, size, FROZEN, &begun);
}

static fl_status run_loss(timing *t, int size)
{
    fl_exec x = exec_of(t);
    fl_chain *c = &t->chain;
    fl_tensor *out = &c->at[c->n - 1].out, grad = *out;
    int64_t n = t->batch.n_samples;
    x.params = &c->at[c->n - 1].params;
    t->shared->phase = FL_PROBE_LOSS;
    grad.data = c->grad[0];
    watch begun;
    FL_TRY(start(t, &begun));
    FL_TRY(fl_exec_loss(&x, t->o->model, out, &c->targets, 1.0f / (float)n, &grad, c->sums));
    FL_TRY(note(t, c->n_layers, size, FORWARD, &begun));
    t->shared->phase = FL_PROBE_LAYER;
    return FL_OK;
}

static fl_status run_backward(timing *t, fl_probe_layer *l, int size, int turn)
{
    fl_exec x = exec_of(t);
    fl_tensor grad_out = l->out, grad_in = l->in;
    t->shared->layer = l->layer;
    grad_out.data = t->chain.grad[turn];
    grad_in.data = t->chain.grad[1 - turn];
    watch begun;
    FL_TRY(start(t, &begun));
    FL_TRY(fl_exec_backward(&x, t->o->model, l->layer, &l->params, &l->frame, &grad_out,
                            l->layer == 0 ? NULL : &grad_in));
    return note(t, l->kind, size, BACKWARD, &begun);
}

static fl_status run_chain(timing *t, int size, int64_t n)
{
    fl_chain *c = &t->chain;
    t->batch = (fl_batch){.n_samples = n,
                          .sample_ids = c->tables.ids,
                          .sample_ids_device = fl_mirror_at(&c->tables.mirror, c->tables.ids),
                          .targets_host = c->tables.targets,
                          .seed = t->o->job->train.seed,
                          .n_global = t->o->job->train.batch};
    int64_t tokens = fl_chain_resize(c, n, size == SHORT);
    if (size >= 0) {
        t->tokens[size] = tokens;
    }
    fl_arena_release(&c->keep, 0);
    for (int i = 0; i < c->n; i++) {
        FL_TRY(run_frozen(t, &c->at[i], size));
    }
    fl_arena_release(&c->keep, 0);
    for (int i = 0; i < c->n; i++) {
        FL_TRY(run_forward(t, &c->at[i], size));
    }
    if (size != SHORT) { /* the samples' targets are of their whole length */
        FL_TRY(run_loss(t, size));
    }
    for (int i = c->n - 1, turn = 0; i >= 0; i--, turn = 1 - turn) {
        FL_TRY(run_backward(t, &c->at[i], size, turn));
    }
    return FL_OK;
}

/* The second run's length may say that the larger size would take too long. */
static fl_status warm_up(timing *t)
{
    FL_TRY(run_chain(t, -1, t->n[SMALL]));
    watch begun = watch_start();
    FL_TRY(run_chain(t, -1, t->n[SMALL]));
    double per_sample = watch_stop(&begun, t->o->device->n_threads) / (double)t->n[SMALL];
    while (t->n[LARGE] / 2 > t->n[SMALL] && per_sample * (double)t->n[LARGE] > LONGEST_RUN_US) {
        t->n[LARGE] /= 2;
    }
    return run_chain(t, -1, t->n[LARGE]);
}

static fl_status run_all(timing *t)
{
    double begun = fl_probe_now_us();
    t->shared->phase = FL_PROBE_LAYER;
    t->n[LARGE] = t->chain.n_large;
    t->n[SMALL] = t->n[LARGE] / SPLIT_OF_SIZES > 0 ? t->n[LARGE] / SPLIT_OF_SIZES : 1;
    FL_TRY(warm_up(t));
    for (int i = 0; i < REPEATS; i++) {
        if (i >= FEWEST_REPEATS && fl_probe_now_us() - begun > BUDGET_US) {
            break;
        }
        /* In turn, so that a disturbance falls on all. */
        FL_TRY(run_chain(t, LARGE, t->n[LARGE]));
        FL_TRY(run_chain(t, SMALL, t->n[SMALL]));
        if (t->chain.ragged) {
            t->n[SHORT] = t->n[LARGE];
            FL_TRY(run_chain(t, SHORT, t->n[SHORT]));
        }
    }
    return FL_OK;
}

/* The norm, the step and the clearing, over as many parameters as the model has. */
static fl_status step_once(timing *t, float *w, int64_t n, int64_t step, double *us)
{
    fl_device *d = t->o->device;
    const fl_job *job = t->o->job;
    fl_stream *s = t->o->stream;
    const fl_square_sum square = {.x = w + n, .n = n, .out = t->square};
    const fl_update update = {.w = w,
                              .g = w + n,
                              .moment = {w + 2 * n, w + 3 * n},
                              .n = n,
                              .weight_decay = (float)job->train.weight_decay,
                              .rate = 1.0f};
    watch begun;
    FL_TRY(start(t, &begun));
    FL_TRY(d->ops->sum_squares_many(d, s, &square, 1));
    FL_TRY(fl_optimizer_step(d, s, job, step, job->train.lr, 1.0, &update, 1));
    FL_TRY(d->ops->fill_zero(d, s, w + n, (size_t)n * sizeof *w));
    return stop(t, &begun, us);
}

static fl_status time_optimizer(timing *t, double *us_per_param)
{
    int64_t n = fl_model_n_params(t->o->model);
    n = n < SMALLEST_OPTIMIZER ? SMALLEST_OPTIMIZER : n;
    n = n > LARGEST_OPTIMIZER ? LARGEST_OPTIMIZER : n;
    int n_pieces = 2 + fl_optimizer_n_moments(t->o->job->train.optimizer);
    size_t total = FIRST_BYTES + (size_t)n_pieces * (size_t)n * sizeof(float);
    void *memory = NULL;
    double took[REPEATS];
    t->shared->phase = FL_PROBE_OPTIMIZER;
    FL_TRY(fl_device_alloc(t->o->device, total, "the profile", &memory));
    t->square = memory;
    float *w = (float *)(void *)((char *)memory + FIRST_BYTES);
    fl_status status = step_once(t, w, n, 0, &took[0]);
    for (int i = 0; status == FL_OK && i < REPEATS; i++) {
        status = step_once(t, w, n, i + 1, &took[i]);
    }
    fl_device_free(t->o->device, memory, total);
    *us_per_param = status == FL_OK ? fl_quantile_lower(took, REPEATS) / (double)n : 0.0;
    return status;
}

/* ---- what comes of it ---- */

/* Of the times of one size the lower quartile counts: what is above it is mostly somebody else's
 * use of the processor. */
static void take_quartiles(timing *t, int kind, int pass, double us[N_SIZES])
{
    for (int size = 0; size < N_SIZES; size++) {
        series *s = series_of(t, kind, size, pass);
        us[size] = s->n > 0 ? fl_quantile_lower(s->us, s->n) : 0.0;
    }
}

/* A line through both sizes; a slope or a start below zero is noise. */
static void fit(timing *t, int kind, int pass, double *call_us, double *sample_us)
{
    double us[N_SIZES];
    take_quartiles(t, kind, pass, us);
    double span = (double)(t->n[LARGE] - t->n[SMALL]);
    *sample_us = span > 0.0 ? (us[LARGE] - us[SMALL]) / span : 0.0;
    *call_us = us[SMALL] - *sample_us * (double)t->n[SMALL];
    if (*sample_us <= 0.0 || *call_us < 0.0) {
        *sample_us = us[LARGE] / (double)t->n[LARGE];
        *call_us = 0.0;
    }
}

/* A plane through the three sizes; where it slopes down, or starts below zero, that is noise, and
 * all is counted as cost of tokens. */
static void fit_tokens(timing *t, int kind, int pass, double *call_us, double *sample_us,
                       double *token_us)
{
    double us[N_SIZES], n[N_SIZES], tokens[N_SIZES];
    take_quartiles(t, kind, pass, us);
    for (int size = 0; size < N_SIZES; size++) {
        n[size] = (double)t->n[size];
        tokens[size] = (double)t->tokens[size];
    }
    double fewer = tokens[LARGE] - tokens[SHORT], span = n[LARGE] - n[SMALL];
    *token_us = fewer > 0.0 ? (us[LARGE] - us[SHORT]) / fewer : 0.0;
    *sample_us = span > 0.0
                     ? (us[LARGE] - us[SMALL] - *token_us * (tokens[LARGE] - tokens[SMALL])) / span
                     : 0.0;
    *call_us = us[SMALL] - *sample_us * n[SMALL] - *token_us * tokens[SMALL];
    if (*token_us < 0.0 || *sample_us < 0.0 || *call_us < 0.0) {
        double more = tokens[LARGE] - tokens[SMALL];
        *token_us = more > 0.0 ? (us[LARGE] - us[SMALL]) / more : 0.0;
        *call_us = us[SMALL] - *token_us * tokens[SMALL];
        *sample_us = 0.0;
    }
    if (*token_us <= 0.0 || *call_us < 0.0) {
        *token_us = us[LARGE] / tokens[LARGE];
        *call_us = 0.0;
    }
}

static void fit_layer(timing *t, int kind, fl_layer_cost *cost)
{
    if (!t->chain.ragged) {
        fit(t, kind, FORWARD, &cost->fwd_call_us, &cost->fwd_us);
        fit(t, kind, BACKWARD, &cost->bwd_call_us, &cost->bwd_us);
        fit(t, kind, FROZEN, &cost->frozen_call_us, &cost->frozen_us);
        return;
    }
    fit_tokens(t, kind, FORWARD, &cost->fwd_call_us, &cost->fwd_us, &cost->fwd_token_us);
    fit_tokens(t, kind, BACKWARD, &cost->bwd_call_us, &cost->bwd_us, &cost->bwd_token_us);
    fit_tokens(t, kind, FROZEN, &cost->frozen_call_us, &cost->frozen_us, &cost->frozen_token_us);
}

static void conclude(timing *t)
{
    const fl_chain *c = &t->chain;
    fl_profile *out = &t->shared->profile;
    out->n_layers = c->n_layers;
    out->in_bytes = c->memory[0].in_bytes / c->n_large;
    fit(t, c->n_layers, FORWARD, &out->loss_call_us, &out->loss_us);
    for (int i = 0; i < c->n_layers; i++) {
        fl_layer_cost *cost = &out->layer[i];
        fit_layer(t, c->kind_of[i], cost);
        cost->out_bytes = c->memory[i].out_bytes / c->n_large;
        cost->kept_bytes = c->memory[i].kept_bytes / c->n_large;
        cost->scratch_bytes = c->memory[i].scratch_bytes / c->n_large;
        cost->n_params = fl_model_layer_n_params(t->o->model, i);
    }
}

static fl_status create_series(timing *t, double **all)
{
    size_t n = (size_t)(t->chain.n_layers + 1) * N_SIZES * N_PASSES;
    size_t room = (size_t)t->chain.copies * REPEATS;
    FL_TRY(fl_alloc_array(n, sizeof *t->series, (void **)&t->series));
    FL_TRY(fl_alloc_array(n * room, sizeof **all, (void **)all));
    for (size_t i = 0; i < n; i++) {
        t->series[i].us = *all + i * room;
    }
    return FL_OK;
}

static fl_status measure(timing *t, double **all)
{
    fl_device *d = t->o->device;
    FL_TRY(d->ops->event_create(d, &t->begun));
    FL_TRY(d->ops->event_create(d, &t->ended));
    FL_TRY(fl_chain_init(&t->chain, t->o));
    FL_TRY(create_series(t, all));
    FL_TRY(run_all(t));
    conclude(t);
    return time_optimizer(t, &t->shared->profile.optimizer_us_per_param);
}

fl_status fl_probe_layers(const fl_probe_options *options, fl_probe *probe)
{
    timing *t = NULL;
    double *all = NULL;
    FL_TRY(fl_alloc(sizeof *t, (void **)&t));
    t->o = options;
    t->shared = probe;
    t->chain.o = options;
    fl_status status = measure(t, &all);
    fl_chain_fini(&t->chain);
    fl_device_event_destroy(options->device, &t->begun);
    fl_device_event_destroy(options->device, &t->ended);
    fl_free(t->series);
    fl_free(all);
    fl_free(t);
    return status;
}
