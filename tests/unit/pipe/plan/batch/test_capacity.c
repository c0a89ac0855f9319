/* How large micro-batches get where samples differ in length: the capacity of a plan is exactly the
 * most that a step or an evaluation of the run can hold, the bound is never less, and the memory
 * that is computed from them is never less than what is measured. */
#include "autodp/sampler.h"
#include "pipe/cost/memory/memory_model.h"
#include "pipe/plan/batch/batch_split.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/batch/evaluation.h"
#include "support/data/ragged.h"
#include "support/draw.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 2, MOST_STORES = 3 };

/* A run over samples of these lengths. */
typedef struct rig {
    fl_dataset data;
    fl_model *model;
    fl_job job;
    fl_sample_sizes *sizes;
    fl_run_batches run;
} rig;

static void rig_init(rig *r, ragged_length *length, bool per_token, int64_t n, int64_t batch,
                     int64_t n_steps)
{
    memset(r, 0, sizeof *r);
    must(ragged_dataset(n, length, per_token, &r->data));
    must(ragged_model(BLOCKS, 0.0f, per_token, &r->model));
    r->job.train.batch = batch;
    r->job.train.accumulate = 1;
    r->job.train.seed = 5;
    r->job.train.evaluate = true;
    r->job.train.evaluate_samples = n / 8;
    must(fl_sample_sizes_create(r->model, &r->data, n, n / 4, &r->sizes));
    r->run = (fl_run_batches){.job = &r->job,
                              .sizes = r->sizes,
                              .n_samples = n,
                              .n_steps = n_steps,
                              .stores = {.n_stores = 1, .n_workers = 1}};
}

static void rig_fini(rig *r)
{
    fl_sample_sizes_destroy(&r->sizes);
    fl_model_destroy(&r->model);
    fl_dataset_destroy(&r->data);
}

/* ---- what the run really does ---- */

typedef struct most {
    int64_t samples, tokens, n_targets;
    fl_extent share;          /* of a replica */
    const fl_capacity *found; /* that must contain every micro-batch */
} most;

static bool contains(const fl_capacity *c, fl_extent e)
{
    for (int i = 0; i < c->n; i++) {
        if (c->at[i].samples >= e.samples && c->at[i].tokens >= e.tokens) {
            return true;
        }
    }
    return false;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* One batch as one replica sees it, with what the data set says of each sample. */
static void look_at_share(const rig *r, fl_batch_split *split, most *m)
{
    fl_extent share = {0};
    for (int i = 0; i < split->M; i++) {
        fl_extent e = {0};
        int64_t n_targets = 0, of_sample;
        const int64_t *ids = fl_batch_split_micro(split, i, &e.samples);
        for (int64_t s = 0; s < e.samples; s++) {
            fl_shape shape;
            must(r->data.ops->shape(r->data.self, split->batch.split, ids[s], &shape, &of_sample));
            e.tokens += shape.tokens;
            n_targets += of_sample;
        }
        assert_true(e.samples == 0 || contains(m->found, e));
        m->samples = larger(m->samples, e.samples);
        m->tokens = larger(m->tokens, e.tokens);
        m->n_targets = larger(m->n_targets, n_targets);
        share.samples += e.samples;
        share.tokens += e.tokens;
    }
    m->share.samples = larger(m->share.samples, share.samples);
    m->share.tokens = larger(m->share.tokens, share.tokens);
}

static void look_at_batch(const rig *r, const fl_affinity *affinity, int M, fl_split split,
                          const int64_t *ids, int64_t n, most *m)
{
    fl_global_batch batch = {.split = split, .ids = ids, .n = n};
    for (int replica = 0; replica < affinity->n_replicas; replica++) {
        fl_batch_split mine;
        must(fl_batch_split_init(&mine, r->sizes, r->job.train.batch, affinity, M, replica));
        fl_batch_split_run(&mine, &batch);
        look_at_share(r, &mine, m);
        fl_batch_split_fini(&mine);
    }
}

static most look_at_run(const rig *r, const int *stores, int R, int M, const fl_capacity *found)
{
    int64_t batch = r->job.train.batch, n, ids[256];
    most m = {.found = found};
    fl_affinity affinity;
    fl_cursor cursor = {0};
    assert_true(batch <= 256);
    must(fl_affinity_init(&affinity, stores, R));
    for (int64_t step = 0; step < r->run.n_steps; step++) {
        fl_sampler_next(r->job.train.seed, r->run.n_samples, batch, &cursor, ids, &n);
        look_at_batch(r, &affinity, M, FL_TRAIN, ids, n, &m);
    }
    for (int last = 0; last < 2; last++) { /* some test samples, and at the end all of them */
        fl_evaluation_set set =
            fl_evaluation_set_due(&r->job, 0, r->sizes->count[FL_TEST], last == 1);
        for (int64_t first = 0; first < set.n; first += batch) {
            for (n = 0; n < batch && first + n < set.n; n++) {
                ids[n] = fl_evaluation_sample(&set, first + n);
            }
            look_at_batch(r, &affinity, M, FL_TEST, ids, n, &m);
        }
    }
    fl_affinity_fini(&affinity);
    return m;
}

static fl_plan plan_of(int R, int M)
{
    fl_plan plan = {.K = 1, .R = R, .M = M};
    for (int i = 0; i < R; i++) {
        plan.rank_of[i] = i;
    }
    return plan;
}

static void check_plan(rig *r, int R, int M, int n_stores)
{
    int stores[FL_MAX_WORKERS];
    fl_capacity exact, bound, least;
    fl_plan plan = plan_of(R, M);
    r->run.stores.n_stores = n_stores;
    r->run.stores.n_workers = R;
    for (int i = 0; i < R; i++) {
        stores[i] = i * n_stores / R;
    }
    must(fl_capacity_of_plan(&r->run, &plan, &exact));
    must(fl_capacity_bounds(&r->run, R, M, &least, &bound));
    most real = look_at_run(r, stores, R, M, &exact);
    assert_int_equal(fl_capacity_samples(&exact), real.samples);
    assert_int_equal(fl_capacity_tokens(&exact), real.tokens);
    assert_int_equal(exact.n_targets, real.n_targets);
    assert_true(contains(&bound, (fl_extent){real.samples, real.tokens}));
    assert_true(bound.n_targets >= real.n_targets);
    assert_true(fl_capacity_samples(&least) <= real.samples);
    assert_true(fl_capacity_tokens(&least) <= real.tokens);
    assert_true(bound.ahead.samples >= exact.ahead.samples);
    assert_true(bound.ahead.tokens >= exact.ahead.tokens);
    if (!r->sizes->equal) {
        assert_int_equal(exact.ahead.tokens, 2 * real.share.tokens + real.tokens);
        assert_int_equal(exact.ahead.samples, 2 * real.share.samples + real.samples);
    }
}

static void test_capacity__is_the_most_of_all_batches(void **state)
{
    (void)state;
    static ragged_length *const lengths[] = {ragged_like_sst2, ragged_all_ones, ragged_one_giant,
                                             ragged_two_lengths};
    seed_random();
    for (int turn = 0; turn < 60; turn++) {
        static rig r;
        int64_t n = draw(8, 207), batch = draw(1, n < 64 ? (int)n : 64);
        int R = draw(1, 5), M = draw(1, 9);
        int n_stores = draw(1, MOST_STORES);
        rig_init(&r, lengths[draw(0, 3)], draw(0, 1) == 0, n, batch, draw(3, 22));
        check_plan(&r, R, M, n_stores <= R ? n_stores : 1);
        rig_fini(&r);
    }
}

/* Asked again, the answer comes without another walk; another R or M is another question. */
static void test_capacity__is_kept(void **state)
{
    (void)state;
    static rig r;
    fl_capacity a, b, c;
    rig_init(&r, ragged_like_sst2, false, 200, 16, 30);
    fl_plan plan = plan_of(1, 4), other = plan_of(2, 2);
    must(fl_capacity_of_plan(&r.run, &plan, &a));
    must(fl_capacity_of_plan(&r.run, &other, &c));
    assert_int_equal(r.run.n_kept, 2);
    must(fl_capacity_of_plan(&r.run, &plan, &b));
    assert_int_equal(r.run.n_kept, 2);
    assert_memory_equal(&a, &b, sizeof a);
    for (int M = 1; M < 2 * FL_CAPACITY_KEPT; M++) { /* more than are kept */
        plan.M = M;
        must(fl_capacity_of_plan(&r.run, &plan, &b));
    }
    plan.M = 4;
    must(fl_capacity_of_plan(&r.run, &plan, &b));
    assert_memory_equal(&a, &b, sizeof a);
    rig_fini(&r);
}

/* Where there are more sizes than extents, neighbours are joined: all stay contained. */
static void test_capacity__contains_what_was_added(void **state)
{
    (void)state;
    seed_random();
    for (int turn = 0; turn < 200; turn++) {
        enum { N = 40 };
        fl_extent all[N];
        fl_capacity c = {0};
        int64_t most_samples = 0, most_tokens = 0;
        for (int i = 0; i < N; i++) {
            all[i].samples = draw(1, 30);
            all[i].tokens = all[i].samples + draw(0, 199);
            most_samples = larger(most_samples, all[i].samples);
            most_tokens = larger(most_tokens, all[i].tokens);
            fl_capacity_add(&c, all[i]);
        }
        for (int i = 0; i < N; i++) {
            assert_true(contains(&c, all[i]));
        }
        assert_true(c.n >= 1 && c.n <= FL_CAPACITY_EXTENTS);
        assert_int_equal(fl_capacity_samples(&c), most_samples);
        assert_int_equal(fl_capacity_tokens(&c), most_tokens);
        for (int i = 1; i < c.n; i++) {
            assert_true(c.at[i].tokens > c.at[i - 1].tokens);
            assert_true(c.at[i].samples < c.at[i - 1].samples);
        }
    }
}

/* ---- memory ---- */

/* The planner's memory of a micro-batch covers what workers measure for it, and little more. */
static void test_memory_model__covers_what_is_measured(void **state)
{
    (void)state;
    seed_random();
    for (int per_token = 0; per_token < 2; per_token++) {
        static rig r;
        static fl_layer_memory predicted[FL_MAX_LAYERS], measured[FL_MAX_LAYERS];
        fl_memory_model *model = NULL;
        rig_init(&r, ragged_like_sst2, per_token == 1, 400, 64, 20);
        must(fl_memory_model_create(r.model, r.sizes, &model));
        for (int turn = 0; turn < 20; turn++) {
            fl_capacity c;
            fl_plan plan = plan_of(draw(1, 4), draw(1, 8));
            must(fl_capacity_of_plan(&r.run, &plan, &c));
            must(fl_memory_measure_capacity(r.model, r.sizes, &c, measured));
            fl_memory_model_at(model, &c, predicted);
            int64_t sum = 0, of_it = 0;
            for (int i = 0; i < r.sizes->n_layers; i++) {
                const fl_layer_memory *p = &predicted[i], *m = &measured[i];
                assert_true(p->kept_bytes >= m->kept_bytes);
                assert_true(p->scratch_bytes >= m->scratch_bytes);
                assert_true(p->frozen_kept_bytes >= m->frozen_kept_bytes);
                assert_true(p->frozen_scratch_bytes >= m->frozen_scratch_bytes);
                assert_int_equal(p->in_bytes, m->in_bytes);
                assert_int_equal(p->out_bytes, m->out_bytes);
                assert_int_equal(p->out_ahead_bytes, m->out_ahead_bytes);
                sum += p->kept_bytes;
                of_it += m->kept_bytes;
            }
            assert_true(sum <= of_it + of_it / 10);
        }
        fl_memory_model_destroy(&model);
        rig_fini(&r);
    }
}

/* ---- growth ---- */

/* Rows that halve, rounded up, are no line: the bound lies above each of them, so above all sums.
 */
static void test_growth__covers_every_length(void **state)
{
    (void)state;
    int64_t length[40], value[40];
    for (int64_t i = 0; i < 40; i++) {
        length[i] = 3 + i;
        value[i] = (length[i] + 1) / 2;
    }
    fl_growth g = fl_growth_over(length, value, 40);
    seed_random();
    for (int turn = 0; turn < 500; turn++) {
        fl_extent e = {.samples = draw(1, 20)};
        int64_t sum = 0;
        for (int64_t i = 0; i < e.samples; i++) {
            int64_t which = draw(0, 39);
            e.tokens += length[which];
            sum += value[which];
        }
        assert_true(fl_growth_at(&g, e) >= sum);
        assert_true(fl_growth_at(&g, e) <= sum + e.samples);
    }
    int64_t line[3] = {7, 9, 13}, at[3] = {3, 4, 6}; /* 1 + 2 a token: exactly */
    g = fl_growth_over(at, line, 3);
    assert_int_equal(fl_growth_at(&g, (fl_extent){5, 100}), 205);
}

/* ---- promises ---- */

static fl_shape lie;
static int64_t lie_targets;

static fl_status lying_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                             int64_t *n_targets)
{
    (void)self;
    *input = (fl_shape){.tokens = 5 + id % 3, .width = RAGGED_WIDTH, .dtype = FL_F32};
    *n_targets = 1;
    if (split == FL_TEST && id == 2) {
        *input = lie;
        *n_targets = lie_targets;
    }
    return FL_OK;
}

static void expect_refusal(const rig *r, fl_shape shape, int64_t n_targets, const char *says)
{
    fl_dataset_ops ops = *r->data.ops;
    fl_dataset data = {.ops = &ops, .self = r->data.self};
    fl_sample_sizes *sizes = NULL;
    ops.shape = lying_shape;
    lie = shape;
    lie_targets = n_targets;
    assert_int_equal(fl_sample_sizes_create(r->model, &data, 20, 5, &sizes), FL_EINVAL);
    assert_null(sizes);
    assert_string_equal(fl_errmsg(), says);
}

static void test_sizes__of_a_data_set_that_breaks_its_promise_are_refused(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r, ragged_like_sst2, false, 20, 4, 5);
    expect_refusal(&r, (fl_shape){0, RAGGED_WIDTH, FL_F32, 0}, 1,
                   "test sample 2 has 0 tokens of width 16 and type fp32, the data set (ragged) "
                   "promised 1 to 60 of width 16 and type fp32");
    expect_refusal(&r, (fl_shape){61, RAGGED_WIDTH, FL_F32, 0}, 1,
                   "test sample 2 has 61 tokens of width 16 and type fp32, the data set (ragged) "
                   "promised 1 to 60 of width 16 and type fp32");
    expect_refusal(&r, (fl_shape){6, 17, FL_F32, 0}, 1,
                   "test sample 2 has 6 tokens of width 17 and type fp32, the data set (ragged) "
                   "promised 1 to 60 of width 16 and type fp32");
    expect_refusal(&r, (fl_shape){6, RAGGED_WIDTH, FL_F32, 0}, 2,
                   "test sample 2 has 2 targets, the data set (ragged) promised 0 to 1");
    rig_fini(&r);
}

/* A micro-batch of more rows than a tensor's offsets can count is refused before it is allocated.
 */
static void test_memory__of_too_many_rows_is_refused(void **state)
{
    (void)state;
    static rig r;
    static fl_layer_memory memory[FL_MAX_LAYERS];
    rig_init(&r, ragged_like_sst2, false, 20, 4, 5);
    fl_shape huge = {.tokens = INT32_MAX, .width = RAGGED_WIDTH, .dtype = FL_F32};
    assert_int_equal(fl_memory_measure(r.model, &(fl_sample_shape){huge, 1, FL_I32}, 2, memory),
                     FL_EINVAL);
    assert_non_null(
        strstr(fl_errmsg(), "a micro-batch of 2 samples has more than 2147483647 rows"));
    rig_fini(&r);
}

/* What a job would ask for is refused before a worker starts; one row less is allowed. */
static void test_capacity__of_too_many_rows_is_refused(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r, ragged_like_sst2, false, 20, 4, 5);
    fl_capacity c = {.n = 1, .at = {{.samples = 1 << 26, .tokens = INT32_MAX}}};
    must(fl_capacity_check_rows(r.sizes, &c));
    c.at[0].tokens++;
    assert_int_equal(fl_capacity_check_rows(r.sizes, &c), FL_EINVAL);
    assert_non_null(strstr(fl_errmsg(), "would have 2147483648 rows in front of layer 0"));
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity__is_the_most_of_all_batches),
        cmocka_unit_test(test_capacity__is_kept),
        cmocka_unit_test(test_capacity__contains_what_was_added),
        cmocka_unit_test(test_memory_model__covers_what_is_measured),
        cmocka_unit_test(test_growth__covers_every_length),
        cmocka_unit_test(test_sizes__of_a_data_set_that_breaks_its_promise_are_refused),
        cmocka_unit_test(test_memory__of_too_many_rows_is_refused),
        cmocka_unit_test(test_capacity__of_too_many_rows_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
