#include "pipe/plan/plan_options.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"

#include <stdlib.h>

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

static int max_stages(const fl_plan_input *input)
{
    return smaller(fl_model_n_layers(input->model), FL_MAX_STAGES);
}

static fl_status check_sizes(const fl_plan_input *input)
{
    int n_layers = fl_model_n_layers(input->model);
    if (n_layers < 1 || n_layers > FL_MAX_LAYERS) {
        return fl_fail(FL_EINVAL, "model: %d layers; allowed: 1 .. %d", n_layers, FL_MAX_LAYERS);
    }
    if (input->n_workers < 1 || input->n_workers > FL_MAX_WORKERS) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.count"), "%d workers; allowed: 1 .. %d",
                             input->n_workers, FL_MAX_WORKERS);
    }
    if (input->cluster != NULL && input->cluster->n_devices < input->n_workers) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.count"),
                             "%d workers, but the cluster has %d devices", input->n_workers,
                             input->cluster->n_devices);
    }
    return FL_OK;
}

static fl_status check_k(const fl_plan_input *input)
{
    char stages[FL_COUNT_BYTES], others[FL_COUNT_BYTES];
    int64_t k = input->job->pipe.k;
    if (k > max_stages(input)) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.k"),
                             "%s, but the model has %s; allowed: 1 .. %d",
                             fl_count(k, "stage", stages),
                             fl_count(fl_model_n_layers(input->model), "layer", others),
                             smaller(max_stages(input), input->n_workers));
    }
    if (k > input->n_workers) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.k", "devices.count"),
                             "%s, but only %s (devices.count); allowed: 1 .. %d",
                             fl_count(k, "stage", stages),
                             fl_count(input->n_workers, "worker", others),
                             smaller(max_stages(input), input->n_workers));
    }
    return FL_OK;
}

static fl_status check_r(const fl_plan_input *input)
{
    int64_t k = input->job->pipe.k == FL_JOB_AUTO ? 1 : input->job->pipe.k;
    int64_t r = input->job->autodp.r, batch = input->job->train.batch;
    int64_t most = input->n_workers / k < batch ? input->n_workers / k : batch;
    if (r > batch) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.r", "train.batch"),
                             "%lld replicas, but a batch has %lld samples (train.batch); "
                             "allowed: 1 .. %lld",
                             (long long)r, (long long)batch, (long long)most);
    }
    if (r > input->n_workers / k) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.r", "devices.count"),
                             "%lld replicas of %lld stages need %lld workers, but there are %d "
                             "(devices.count); allowed: 1 .. %lld",
                             (long long)r, (long long)k, (long long)(r * k), input->n_workers,
                             (long long)most);
    }
    return FL_OK;
}

static fl_status check_m(const fl_plan_input *input)
{
    int r = input->job->autodp.r == FL_JOB_AUTO ? 1 : (int)input->job->autodp.r;
    int64_t least = input->job->train.accumulate, m = input->job->pipe.m;
    int64_t share = fl_split_work_max(fl_sampler_batch(input->job), r);
    char found[FL_COUNT_BYTES], samples[FL_COUNT_BYTES];
    if (m > share) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.m", "train.batch", "autodp.r"),
                             "%s, but a replica has %s a step (train.batch %lld, autodp.r %d); "
                             "allowed: %lld .. %lld",
                             fl_count(m, "micro-batch", found), fl_count(share, "sample", samples),
                             (long long)input->job->train.batch, r, (long long)least,
                             (long long)share);
    }
    if (m != FL_JOB_AUTO && m < least) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("pipe.m", "train.accumulate"),
                             "%s, but a step has %lld batches (train.accumulate); allowed: %lld .. "
                             "%lld",
                             fl_count(m, "micro-batch", found), (long long)least, (long long)least,
                             (long long)share);
    }
    return FL_OK;
}

fl_status fl_plan_options_check(const fl_plan_input *input)
{
    FL_TRY(check_sizes(input));
    FL_TRY(check_k(input));
    FL_TRY(check_r(input));
    return check_m(input);
}

/* ---- what may be ---- */

typedef struct list {
    const fl_plan_input *input;
    const fl_cost_table *price;
    fl_plan_option *options;
    size_t n, capacity;
} list;

static fl_status list_one(list *l, int K, int R, int M)
{
    if (l->n == l->capacity) {
        size_t more = l->capacity == 0 ? 256 : 2 * l->capacity;
        FL_TRY(fl_realloc((void **)&l->options, l->n * sizeof(fl_plan_option),
                          more * sizeof(fl_plan_option)));
        l->capacity = more;
    }
    fl_grid grid = {.F = l->input->F, .K = K, .R = R, .M = M};
    l->options[l->n++] = (fl_plan_option){.grid = grid,
                                          .bound_us = fl_cost_model_bound(l->price, grid),
                                          .estimate_us = fl_cost_model_estimate(l->price, grid)};
    return FL_OK;
}

/* The M that comes after `M`, which begins at one for each batch that a step accumulates. One stage
 * has no bubble to fill, so M only divides its memory: 1, 2, 3, 4, 6, 8, 12 ... A pipeline does
 * best somewhere in K .. 6 K, which is walked closely; beyond it only memory can ask for more. */
static int next_m(int K, int M)
{
    if (K == 1) {
        bool power = (M & (M - 1)) == 0;
        return M < 4 ? M + 1 : (power ? M + M / 2 : M + M / 3);
    }
    int step = K <= 4 ? 1 : (K <= 16 ? K / 4 : K);
    return M < 6 * K ? M + step : 2 * M;
}

static fl_status list_m(list *l, int K, int R)
{
    const fl_job *job = l->input->job;
    int64_t share = fl_split_work_max(fl_sampler_batch(job), R), least = job->train.accumulate;
    int most = share < INT32_MAX / 4 ? (int)share : INT32_MAX / 4;
    if (job->pipe.m != FL_JOB_AUTO) {
        return job->pipe.m >= least && job->pipe.m <= most ? list_one(l, K, R, (int)job->pipe.m)
                                                           : FL_OK;
    }
    int M = smaller((int)least * K, most);
    for (; M < most; M = next_m(K, M)) {
        FL_TRY(list_one(l, K, R, M));
    }
    return list_one(l, K, R, most);
}

/* As many replicas as there is room for, and fewer: every number up to 8, then by halves. Fewer
 * pay where a batch is small and links are slow. */
static fl_status list_r(list *l, int K)
{
    const fl_job *job = l->input->job;
    int room = l->input->n_workers / K;
    int most = job->train.batch < room ? (int)job->train.batch : room;
    if (job->autodp.r != FL_JOB_AUTO) {
        return job->autodp.r <= most ? list_m(l, K, (int)job->autodp.r) : FL_OK;
    }
    for (int R = most; R >= 1; R = R <= 8 ? R - 1 : R / 2) {
        FL_TRY(list_m(l, K, R));
    }
    return FL_OK;
}

static int by_estimate(const void *a, const void *b)
{
    const fl_plan_option *x = a, *y = b;
    if (x->estimate_us != y->estimate_us) {
        return x->estimate_us < y->estimate_us ? -1 : 1;
    }
    fl_grid g = x->grid, h = y->grid;
    return g.K != h.K ? g.K - h.K : (g.M != h.M ? g.M - h.M : g.R - h.R);
}

static fl_status list_all(list *l)
{
    int64_t fixed = l->input->job->pipe.k;
    int most = smaller(max_stages(l->input), l->input->n_workers);
    for (int K = fixed == FL_JOB_AUTO ? 1 : (int)fixed;
         K <= (fixed == FL_JOB_AUTO ? most : (int)fixed); K++) {
        FL_TRY(list_r(l, K));
    }
    if (l->n > 0) {
        qsort(l->options, l->n, sizeof(fl_plan_option), by_estimate);
    }
    return FL_OK;
}

fl_status fl_plan_options_list(const fl_plan_input *input, const fl_cost_table *price,
                               fl_plan_option **options, size_t *n)
{
    list l = {.input = input, .price = price};
    fl_status status = list_all(&l);
    if (status != FL_OK) {
        fl_free(l.options);
        return status;
    }
    *options = l.options;
    *n = l.n;
    return FL_OK;
}
