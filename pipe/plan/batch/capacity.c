#include "pipe/plan/batch/capacity.h"

#include "autodp/sampler.h"
#include "autodp/split_work.h"
#include "device/errors/failure.h"
#include "device/random/random.h"
#include "device/system/alloc.h"
#include "pipe/cost/plan.h"
#include "pipe/plan/batch/batch_split.h"
#include "pipe/plan/batch/evaluation.h"

#include <math.h>

/* A walk over all batches of a run. */
typedef struct walk {
    const fl_run_batches *run;
    fl_affinity affinity;
    fl_batch_split split;
    int64_t *ids;       /* [batch] */
    fl_extent share;    /* the most of each that a replica has of a batch */
    int64_t batch_work; /* of the batch that has the most */
    int64_t longest;    /* tokens of a sample that is used */
    fl_capacity *found;
} walk;

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- one batch ---- */

static fl_extent add_micro_batch(walk *w, int m)
{
    const fl_sample_sizes *sizes = w->run->sizes;
    fl_split split = w->split.batch.split;
    fl_extent e = {0};
    int64_t n_targets = 0;
    const int64_t *ids = fl_batch_split_micro(&w->split, m, &e.samples);
    for (int64_t i = 0; i < e.samples; i++) {
        int64_t tokens = fl_sample_tokens(sizes, split, ids[i]);
        e.tokens += tokens;
        w->longest = larger(w->longest, tokens);
        n_targets += fl_sample_n_targets(sizes, split, ids[i]);
    }
    if (e.samples > 0) {
        fl_capacity_add(w->found, e);
    }
    w->found->n_targets = larger(w->found->n_targets, n_targets);
    return e;
}

static void add_batch(walk *w, fl_split split, int64_t n)
{
    fl_global_batch batch = {.split = split, .ids = w->ids, .n = n};
    fl_batch_split_run(&w->split, &batch);
    w->batch_work = larger(w->batch_work, w->split.n_tokens);
    for (int r = 0; r < w->split.R; r++) {
        fl_extent share = {0};
        fl_batch_split_turn(&w->split, r);
        for (int m = 0; m < w->split.M; m++) {
            fl_extent e = add_micro_batch(w, m);
            share.samples += e.samples;
            share.tokens += e.tokens;
        }
        w->share.samples = larger(w->share.samples, share.samples);
        w->share.tokens = larger(w->share.tokens, share.tokens);
    }
}

/* ---- all batches ---- */

static void add_training(walk *w)
{
    const fl_run_batches *run = w->run;
    fl_cursor cursor = {0};
    for (int64_t step = 0; step < run->n_steps; step++) {
        int64_t n;
        fl_sampler_next(run->job->train.seed, run->n_samples, fl_sampler_batch(run->job), &cursor,
                        w->ids, &n);
        add_batch(w, FL_TRAIN, n);
    }
}

static void add_set(walk *w, const fl_evaluation_set *set)
{
    int64_t batch = fl_sampler_batch(w->run->job);
    for (int64_t first = 0; first < set->n; first += batch) {
        int64_t n = set->n - first < batch ? set->n - first : batch;
        for (int64_t i = 0; i < n; i++) {
            w->ids[i] = fl_evaluation_sample(set, first + i);
        }
        add_batch(w, FL_TEST, n);
    }
}

static void add_evaluations(walk *w)
{
    const fl_run_batches *run = w->run;
    int64_t n = run->sizes->count[FL_TEST];
    if (!run->job->train.evaluate || n == 0) {
        return;
    }
    for (int last = 0; last < 2; last++) {
        fl_evaluation_set due = fl_evaluation_set_due(run->job, run->n_validation, n, last == 1);
        add_set(w, &due);
    }
    if (run->n_validation > 0) {
        fl_evaluation_set test = fl_evaluation_set_test(run->job, run->n_validation, n);
        add_set(w, &test);
    }
}

static fl_status walk_init(walk *w, const int *stores, int R, int M)
{
    int64_t batch = fl_sampler_batch(w->run->job);
    FL_TRY(fl_affinity_init(&w->affinity, stores, R));
    FL_TRY(fl_alloc_array((size_t)batch, sizeof *w->ids, (void **)&w->ids));
    return fl_batch_split_init(&w->split, w->run->sizes, batch, &w->affinity, M, 0);
}

static void walk_fini(walk *w)
{
    fl_batch_split_fini(&w->split);
    fl_affinity_fini(&w->affinity);
    fl_free(w->ids);
}

/* The step at work and the one after it; and in a ring, up to one micro-batch at its end may be
 * left unused. */
static void set_ahead(walk *w)
{
    fl_capacity *c = w->found;
    c->ahead.samples = 2 * w->share.samples + fl_capacity_samples(c);
    c->ahead.tokens = 2 * w->share.tokens + fl_capacity_tokens(c);
}

static fl_status find(const fl_run_batches *run, const int *stores, int R, int M, fl_capacity *out)
{
    walk w = {.run = run, .found = out};
    *out = (fl_capacity){0};
    fl_status status = walk_init(&w, stores, R, M);
    if (status == FL_OK) {
        add_training(&w);
        add_evaluations(&w);
        set_ahead(&w);
    }
    walk_fini(&w);
    return status;
}

/* ---- what is kept ---- */

static uint64_t question_of(const int *stores, int R, int M)
{
    uint64_t hash = fl_mix64((uint64_t)R, (uint64_t)M);
    for (int r = 0; r < R; r++) {
        hash = fl_mix64(hash, (uint64_t)stores[r]);
    }
    return hash;
}

static fl_status find_or_recall(fl_run_batches *run, const int *stores, int R, int M,
                                fl_capacity *out)
{
    uint64_t question = question_of(stores, R, M);
    for (int i = 0; i < run->n_kept && i < FL_CAPACITY_KEPT; i++) {
        if (run->kept[i].question == question) {
            *out = run->kept[i].capacity;
            return FL_OK;
        }
    }
    FL_TRY(find(run, stores, R, M, out));
    run->kept[run->n_kept++ % FL_CAPACITY_KEPT] =
        (fl_kept_capacity){.question = question, .capacity = *out};
    return FL_OK;
}

/* ---- the questions ---- */

static fl_capacity capacity_of_equal(const fl_run_batches *run, int R, int M)
{
    const fl_sample_sizes *s = run->sizes;
    int64_t share = fl_split_work_max(fl_sampler_batch(run->job), R);
    return fl_capacity_equal(fl_split_work_max(share, M), s->longest.tokens, s->most_targets, M);
}

fl_status fl_capacity_of_plan(fl_run_batches *run, const fl_plan *plan, fl_capacity *out)
{
    int stores[FL_MAX_WORKERS];
    if (run->sizes->equal) {
        *out = capacity_of_equal(run, plan->R, plan->M);
        return FL_OK;
    }
    for (int r = 0; r < plan->R; r++) {
        stores[r] = fl_store_map_of(&run->stores, fl_plan_rank(plan, r, 0));
    }
    return find_or_recall(run, stores, plan->R, plan->M, out);
}

fl_status fl_capacity_of_grid(fl_run_batches *run, int R, int M, fl_capacity *out)
{
    const int stores[FL_MAX_WORKERS] = {0};
    if (run->sizes->equal) {
        *out = capacity_of_equal(run, R, M);
        return FL_OK;
    }
    return fl_store_map_count(&run->stores) > 1 ? fl_capacity_bounds(run, R, M, NULL, out)
                                                : find_or_recall(run, stores, R, M, out);
}

/* ---- bounds ---- */

/* The batch with the most work is found as all micro-batches are: undivided, each is one. */
static fl_status find_batch_work(fl_run_batches *run)
{
    const int store = 0;
    walk w = {.run = run};
    fl_capacity unused = {0};
    w.found = &unused;
    fl_status status = walk_init(&w, &store, 1, 1);
    if (status == FL_OK) {
        add_training(&w);
        add_evaluations(&w);
        run->batch_work = w.batch_work;
        run->batch = w.share;
        run->longest = w.longest;
    }
    walk_fini(&w);
    return status;
}

/* The largest share exceeds the even one by at most the largest sample. */
static int64_t largest_share(int64_t work, int64_t n_shares, int64_t largest_sample)
{
    int64_t most = work / n_shares + (work % n_shares != 0) + largest_sample;
    return most < work ? most : work;
}

static fl_capacity upper_bound(const fl_run_batches *run, int R, int M)
{
    const fl_sample_sizes *s = run->sizes;
    int64_t share = largest_share(run->batch_work, R, s->most_work);
    int64_t micro = largest_share(share, M, s->most_work);
    fl_extent of_share = {.samples = smaller(run->batch.samples, share / s->least_work),
                          .tokens = (int64_t)ceil((double)share * s->tokens_per_work)};
    fl_extent of_micro = {.samples = smaller(run->batch.samples, micro / s->least_work),
                          .tokens = (int64_t)ceil((double)micro * s->tokens_per_work)};
    fl_capacity c = {.n = 1, .at = {of_micro}, .n_targets = of_micro.samples * s->most_targets};
    c.ahead.samples = 2 * of_share.samples + of_micro.samples;
    c.ahead.tokens = 2 * of_share.tokens + of_micro.tokens;
    return c;
}

/* Of the largest batch, some micro-batch has at least the mean of the samples, and some the mean of
 * the tokens; and some has the longest sample. */
static fl_capacity lower_bound(const fl_run_batches *run, int R, int M)
{
    const fl_sample_sizes *s = run->sizes;
    int64_t n = (int64_t)R * M;
    int64_t samples = (run->batch.samples + n - 1) / n, tokens = (run->batch.tokens + n - 1) / n;
    fl_extent many = {.samples = samples, .tokens = samples * s->shortest};
    fl_extent large = {.tokens = larger(tokens, run->longest)};
    large.samples = (large.tokens + s->longest.tokens - 1) / s->longest.tokens;
    fl_capacity c = {.ahead = {.samples = 1, .tokens = s->shortest}};
    fl_capacity_add(&c, many);
    fl_capacity_add(&c, large);
    return c;
}

fl_status fl_capacity_bounds(fl_run_batches *run, int R, int M, fl_capacity *least,
                             fl_capacity *most)
{
    bool equal = run->sizes->equal;
    if (!equal && run->batch_work == 0) {
        FL_TRY(find_batch_work(run));
    }
    if (least != NULL) {
        *least = equal ? capacity_of_equal(run, R, M) : lower_bound(run, R, M);
    }
    if (most != NULL) {
        *most = equal ? capacity_of_equal(run, R, M) : upper_bound(run, R, M);
    }
    return FL_OK;
}

fl_status fl_capacity_check_rows(const fl_sample_sizes *sizes, const fl_capacity *capacity)
{
    for (int boundary = 0; boundary <= sizes->n_layers; boundary++) {
        for (int i = 0; i < capacity->n; i++) {
            int64_t rows = fl_growth_at(&sizes->rows[boundary], capacity->at[i]);
            if (rows > INT32_MAX) {
                return fl_fail_field(FL_EINVAL, FL_FIELDS("train.batch", "pipe.m"),
                                     "a micro-batch of %lld samples would have %lld rows in front "
                                     "of layer %d; at most %d are allowed: use smaller batches, or "
                                     "more micro-batches (pipe.m)",
                                     (long long)capacity->at[i].samples, (long long)rows, boundary,
                                     INT32_MAX);
            }
        }
    }
    return FL_OK;
}
