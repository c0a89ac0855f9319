/* Plans against tables of situations whose best answer is known. */
#include "pipe/plan/planner.h"

#include "device/system/alloc.h"
#include "support/data/situation.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_planner__replicates_where_the_model_fits(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 4, 64);
    fl_plan plan = chosen(&s);
    /* No bubble: 4 replicas of one stage, and no reason to cut their share. */
    assert_int_equal(plan.K, 1);
    assert_int_equal(plan.R, 4);
    assert_int_equal(plan.M, 1);
    assert_int_equal(plan.generation, 7);
    assert_true(plan.predicted_bubble == 0.0);
    situation_fini(&s);
}

/* One device holds three quarters of the parameters. */
static void test_planner__cuts_where_memory_asks_for_it(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 4, 64);
    s.job.devices.memory_bytes = N_PARAMS * 4 * 4 * 9;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.K, 2);
    assert_int_equal(plan.R, 2);
    assert_true(plan.M >= 2);
    assert_true(plan.predicted_bubble > 0.0 && plan.predicted_bubble < 0.5);
    situation_fini(&s);
}

/* Nothing but smaller micro-batches makes it fit; the largest that do are taken. */
/* Ten layers of 1 + 2 us, six of them frozen: 1 us each forward, or 0.1 us for what they gave. */
static double priced(situation *s, const fl_read_cost *a, double missing, int kept)
{
    const fl_plan one = {.F = 6, .K = 1, .R = 1, .M = 1, .n_layers = 10, .first = {0, 10}};
    s->input.F = 6;
    s->input.cached_read = a;
    s->input.missing = missing;
    s->input.kept = kept;
    return fl_plan_predict(&s->input, &one, NULL);
}

static void test_planner__prices_the_epoch_that_fills_the_cache(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 10, 1, 100);
    const fl_read_cost fast = {.call_us = 0.1}, slow = {.call_us = 50.0};
    double without = priced(&s, NULL, 0.0, 0), there = priced(&s, &fast, 0.0, 0);
    assert_true(fabs(without - there - 100.0 * 5.9) < 1e-6);
    assert_true(fabs(priced(&s, &fast, 1.0, 0) - without) < 1e-6);
    assert_true(fabs(priced(&s, &fast, 0.25, 0) - (0.75 * there + 0.25 * without)) < 1e-6);
    /* Four of the six are read, two computed. */
    assert_true(fabs(priced(&s, &fast, 1.0, 4) - (there + 100.0 * 2.0)) < 1e-6);
    assert_true(fabs(priced(&s, &fast, 0.5, 4) - (there + 100.0 * 1.0)) < 1e-6);
    assert_true(fabs(priced(&s, &slow, 0.5, 4) - without) < 1e-6);
    situation_fini(&s);
}

/* Two devices: as long as frozen layers are computed, they share the work best in two stages or
 * replicas; what matters is that the choice follows the cache by the steps that remain. */
static void test_planner__follows_the_cache_only_where_it_is_filled(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 10, 2, 100);
    const fl_read_cost a = {.call_us = 0.01};
    s.job.pipe.k = 2;
    s.input.F = 6;
    s.input.cached_read = &a;
    s.input.missing = 1.0;
    int late = chosen(&s).first[1];
    s.input.missing = 0.0;
    int early = chosen(&s).first[1];
    print_message("the first stage ends at layer %d while filling, at %d afterwards\n", late,
                  early);
    assert_true(late < early);
    situation_fini(&s);
}

static void test_planner__cuts_micro_batches_where_activations_are_large(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 4, 1, 64);
    for (int i = 0; i < 4; i++) {
        s.profile.layer[i].fwd_call_us = 5.0;
    }
    int64_t params = N_PARAMS * 4 * 4 * 4, loader = 2 * 64 * 100;
    int64_t sample = 128 + 4 * 256 + 2 * 128 + 64; /* input, kept, two gradients, scratch */
    s.job.devices.memory_bytes = params + loader + 20 * sample;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.K, 1);
    assert_int_equal(plan.M, 4); /* 16 samples; 3 would be 22 */
    situation_fini(&s);
}

/* All-reduce of huge layers over a slow link against a thin cut between stages. */
static void test_planner__prefers_stages_where_gradients_are_dear(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 2, 64);
    s.profile.reduce_bytes_per_us = 0.5;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.K, 2);
    assert_int_equal(plan.R, 1);
    situation_fini(&s);
}

/* A batch of one sample cannot be shared, and links so slow that a second worker only costs. */
static void test_planner__leaves_workers_idle_where_they_cannot_help(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 4, 1);
    s.profile.link_us = 1e4;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.K, 1);
    assert_int_equal(plan.R, 1);
    assert_int_equal(plan.n_workers, 4);
    assert_true(fl_plan_place(&plan, 0).active);
    assert_false(fl_plan_place(&plan, 3).active);
    situation_fini(&s);
}

/* The slow layer gets a stage of its own. */
static void test_planner__balances_stages_by_time(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 5, 2, 64);
    s.job.pipe.k = 2;
    s.profile.layer[4].bwd_us = 11.0;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.first[1], 4);
    s.job.pipe.partition = FL_PARTITION_GREEDY;
    plan = chosen(&s);
    assert_int_equal(plan.first[1], 2); /* by parameters, whatever they cost */
    situation_fini(&s);
}

/* What lies below the frost line has no backward: the cut moves up. */
static void test_planner__moves_the_cut_up_as_layers_freeze(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 2, 64);
    s.job.pipe.k = 2;
    assert_int_equal(chosen(&s).first[1], 6);
    s.input.F = 6;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.F, 6);
    assert_int_equal(plan.first[1], 8); /* 6 + 2 x 3 = 12 of 24 */
    situation_fini(&s);
}

static void test_planner__obeys_the_job(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 8, 64);
    s.job.pipe.k = 3;
    s.job.autodp.r = 2;
    s.job.pipe.m = 5;
    s.job.pipe.schedule = FL_GPIPE;
    fl_plan plan = chosen(&s);
    assert_int_equal(plan.K, 3);
    assert_int_equal(plan.R, 2);
    assert_int_equal(plan.M, 5);
    assert_int_equal(plan.schedule, FL_GPIPE);
    situation_fini(&s);
}

/* Four equal stages on two processors cannot be faster than two. */
static void test_planner__knows_that_devices_share_processors(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 4, 64);
    s.job.pipe.k = 4;
    s.job.pipe.m = 16;
    fl_plan plan = chosen(&s);
    double alone = plan.predicted_step_us;
    s.input.n_processors = 4;
    assert_true(chosen(&s).predicted_step_us == alone);
    s.input.n_processors = 2;
    double shared = chosen(&s).predicted_step_us;
    assert_true(shared >= 12 * 3 * 64 / 2.0);
    assert_true(shared > alone * 1.5);
    situation_fini(&s);
}

/* K = 2, M = 4 by hand: one micro-batch of 4 samples takes a stage of 3 layers 12 + 24 us. */
static void test_planner__prices_the_bubble_and_the_commit(void **state)
{
    (void)state;
    situation s;
    fl_candidate detail;
    situation_init(&s, 6, 2, 16);
    s.job.pipe.k = 2;
    s.job.pipe.m = 4;
    s.profile.link_bytes_per_us = 100.0;
    fl_plan plan = chosen(&s);
    double link = 1.0 + 4 * 100 / 100.0;
    double commit = 2.0 * 1.0, optimizer = 3 * N_PARAMS * 1e-4;
    /* Stage 0: F0 F1 wait B0 F2 wait B1 F3 wait B2 B3: each message there and back is waited for
     * in turn, as stage 1 alternates without a pause. */
    double step = fl_plan_predict(&s.input, &plan, &detail);
    assert_true(step >= 5 * 36.0 + 2 * link + commit + optimizer);
    assert_true(step <= 5 * 36.0 + 8 * link + commit + optimizer);
    assert_true(fabs(step - plan.predicted_step_us) < 1e-9);
    assert_true(detail.bubble > 1 / 5.0 && detail.bubble < 2 / 5.0);
    assert_true(detail.reduce_us == 0.0);
    assert_true(detail.memory_bytes > 0);
    situation_fini(&s);
}

/* The last bucket of a stage has nothing to hide behind; those above it have. */
static void test_planner__hides_all_reduce_behind_backward(void **state)
{
    (void)state;
    situation s;
    fl_candidate detail;
    situation_init(&s, 4, 2, 64);
    s.job.pipe.k = 1;
    s.job.autodp.r = 2;
    s.job.autodp.bucket_bytes = N_PARAMS * 4; /* a layer each */
    s.profile.reduce_bytes_per_us =
        N_PARAMS * 4 / 32.0; /* 32 us a bucket, 64 us a layer's backward */
    s.profile.link_us = 0.0;
    fl_plan plan = chosen(&s);
    fl_plan_predict(&s.input, &plan, &detail);
    double all = 4 * 32.0;
    assert_true(detail.reduce_us >= 32.0 - 1e-9 && detail.reduce_us < all);
    situation_fini(&s);
}

/* Three stages on eight workers: two replicas, two workers left over, and nothing in the way. */
static void test_planner__takes_three_stages_of_eight_workers(void **state)
{
    (void)state;
    situation s;
    fl_candidate candidates[CANDIDATES];
    fl_plan plan;
    int n = 0, n_of_three = 0;
    situation_init(&s, 12, 8, 64);
    s.job.devices.memory_bytes = N_PARAMS * 4 * 4 * 5; /* five layers of parameters: three stages */
    assert_int_equal(fl_plan_choose(&s.input, &plan, candidates, CANDIDATES, &n), FL_OK);
    for (int i = 0; i < n; i++) {
        n_of_three +=
            candidates[i].grid.K == 3 && candidates[i].grid.R == 2 && !isinf(candidates[i].step_us);
    }
    assert_true(n_of_three > 0);
    s.job.pipe.k = 3;
    plan = chosen(&s);
    assert_int_equal(plan.R, 2);
    assert_int_equal(plan.n_workers, 8);
    assert_false(fl_plan_place(&plan, 7).active);
    situation_fini(&s);
}

/* What was tuned on live steps is taken for the K and R that are best, if it fits. */
static void test_planner__takes_the_m_that_was_tuned(void **state)
{
    (void)state;
    situation s;
    situation_init(&s, 12, 2, 64);
    s.job.pipe.k = 2;
    int M = chosen(&s).M;
    s.profile.n_tuned = 2;
    s.profile.tuned[0] = (fl_tuned){.batch = 32, .K = 2, .R = 1, .M = M + 1, .step_us = 1.0};
    s.profile.tuned[1] =
        (fl_tuned){.batch = 64, .F = 1, .K = 2, .R = 1, .M = M + 1, .step_us = 1.0};
    assert_int_equal(chosen(&s).M, M); /* another batch, other frozen blocks */
    s.profile.tuned[1].F = 0;
    assert_int_equal(chosen(&s).M, M + 1);
    s.job.pipe.m = M;
    assert_int_equal(chosen(&s).M, M); /* the job's word counts */
    s.job.pipe.m = FL_JOB_AUTO;
    s.profile.tuned[1].M = 1; /* all of the batch at once */
    for (int i = 0; i < 12; i++) {
        s.memory[i].kept_bytes = 64 * 1024;
    }
    s.job.devices.memory_bytes = (int64_t)24 << 20;
    assert_true(chosen(&s).M > 1);
    s.profile.tuned[1].M = 65; /* more than a sample each */
    assert_true(chosen(&s).M > 1 && chosen(&s).M <= 64);
    situation_fini(&s);
}

/* One stage lists M = 1, 2, 3, 4, 6 ...; what was tuned lies between. Would catch: a choice that
 * the report of candidates does not have. */
static void test_planner__reports_the_m_that_was_tuned(void **state)
{
    (void)state;
    situation s;
    fl_candidate candidates[CANDIDATES];
    fl_plan plan;
    int n, n_chosen = 0;
    situation_init(&s, 12, 1, 64);
    s.profile.n_tuned = 1;
    s.profile.tuned[0] = (fl_tuned){.batch = 64, .K = 1, .R = 1, .M = 5, .step_us = 1.0};
    assert_int_equal(fl_plan_choose(&s.input, &plan, candidates, CANDIDATES, &n), FL_OK);
    assert_int_equal(plan.M, 5);
    for (int i = 0; i < n; i++) {
        n_chosen += fl_grid_is_same(candidates[i].grid, fl_plan_grid(&plan));
    }
    assert_int_equal(n_chosen, 1);
    situation_fini(&s);
}

/* A plan from a table that was never allocated, or memory that is not given back: the n-th
 * allocation fails, for every n there is. */
static void test_planner__survives_every_failed_allocation(void **state)
{
    (void)state;
    situation s;
    fl_plan plan;
    situation_init(&s, 4, 3, 8);
    fl_status status = FL_ENOMEM;
    int n = 0;
    while (status == FL_ENOMEM) {
        memset(&plan, 0, sizeof plan);
        fl_alloc_fail_at((uint64_t)++n);
        status = fl_plan_choose(&s.input, &plan, NULL, 0, NULL);
        assert_true((status == FL_ENOMEM) == (plan.K == 0));
    }
    fl_alloc_fail_at(0);
    assert_int_equal(status, FL_OK);
    assert_true(n > 5);
    situation_fini(&s);
}

/* ---- accumulation ---- */

static int64_t bytes_of(const situation *s, const fl_plan *plan)
{
    int64_t most = 0;
    for (int stage = 0; stage < plan->K; stage++) {
        fl_stage_memory memory;
        assert_int_equal(fl_plan_memory(&s->input, plan, stage, &memory), FL_OK);
        most = memory.total_bytes > most ? memory.total_bytes : most;
    }
    return most;
}

/* Eight batches a step need no more memory than one, and the planner knows it. Would catch: a step
 * whose activations grow with train.accumulate, a plan with fewer micro-batches than batches. */
static void test_planner__accumulates_in_the_memory_of_a_batch(void **state)
{
    (void)state;
    for (int K = 1; K <= 3; K++) {
        situation s;
        situation_init(&s, 12, K, 64);
        for (int i = 0; i < 12; i++) {
            s.memory[i].kept_bytes = 64 * 1024;
        }
        s.job.pipe.k = K;
        s.job.pipe.m = K;
        fl_plan plan = chosen(&s);
        int64_t of_one = bytes_of(&s, &plan);
        s.job.train.accumulate = 8;
        s.job.pipe.m = FL_JOB_AUTO;
        s.job.devices.memory_bytes = of_one;
        plan = chosen(&s);
        assert_true(plan.M >= 8 * K && plan.M <= 8 * 64);
        assert_true(bytes_of(&s, &plan) <= of_one);
        plan.M = 1; /* all at once would not fit */
        assert_true(bytes_of(&s, &plan) > 2 * of_one);
        s.job.pipe.m = 7;
        assert_int_equal(fl_plan_choose(&s.input, &plan, NULL, 0, NULL), FL_EINVAL);
        assert_string_equal(fl_errmsg(), "pipe.m: 7 micro-batches, but a step has 8 batches "
                                         "(train.accumulate); allowed: 8 .. 512");
        s.job.pipe.m = FL_JOB_AUTO;
        s.profile.n_tuned = 1; /* of a run that accumulated nothing */
        s.profile.tuned[0] = (fl_tuned){.batch = 512, .K = K, .R = 1, .M = 4, .step_us = 1.0};
        assert_true(chosen(&s).M >= 8);
        situation_fini(&s);
    }
}

/* ---- refusals ---- */

typedef struct refusal {
    int64_t k, r, m, batch, memory_bytes;
    int n_workers;
    fl_status status;
    const char *message; /* begins with */
} refusal;

static void test_planner__refuses_by_name_and_number(void **state)
{
    (void)state;
    const refusal cases[] = {
        {40, 0, 0, 64, 1 << 30, 64, FL_EINVAL,
         "pipe.k: 40 stages, but the model has 26 layers; allowed: 1 .. 26"},
        {4, 0, 0, 64, 1 << 30, 2, FL_EINVAL,
         "pipe.k: 4 stages, but only 2 workers (devices.count); allowed: 1 .. 2"},
        {2, 3, 0, 64, 1 << 30, 4, FL_EINVAL,
         "autodp.r: 3 replicas of 2 stages need 6 workers, but there are 4 (devices.count); "
         "allowed: 1 .. 2"},
        {0, 8, 0, 4, 1 << 30, 8, FL_EINVAL,
         "autodp.r: 8 replicas, but a batch has 4 samples (train.batch); allowed: 1 .. 4"},
        {1, 2, 40, 64, 1 << 30, 2, FL_EINVAL,
         "pipe.m: 40 micro-batches, but a replica has 32 samples a step (train.batch 64, "
         "autodp.r 2); allowed: 1 .. 32"},
        {0, 0, 65, 64, 1 << 30, 2, FL_EINVAL,
         "pipe.m: 65 micro-batches, but a replica has 64 samples a step"},
        {1, 1, 1, 64, 400000, 1, FL_EBUDGET,
         "devices.memory: stage 0 (layers 0 .. 25) of K = 1, R = 1, M = 1 needs 1.08 MiB: "
         "parameters 650.00 KiB, activations 422.25 KiB (1 micro-batch of 64), temporaries "
         "16.50 KiB, messages 0 B, samples read ahead 12.50 KiB; a device has 390.62 KiB"},
        {0, 0, 0, 64, 100, 2, FL_EBUDGET, "devices.memory: stage "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const refusal *c = &cases[i];
        situation s;
        situation_init(&s, 26, c->n_workers, c->batch);
        s.job.pipe.k = c->k;
        s.job.autodp.r = c->r;
        s.job.pipe.m = c->m;
        s.job.devices.memory_bytes = c->memory_bytes;
        fl_plan plan, before;
        memset(&plan, 0x55, sizeof plan);
        before = plan;
        assert_int_equal(fl_plan_choose(&s.input, &plan, NULL, 0, NULL), c->status);
        if (strncmp(fl_errmsg(), c->message, strlen(c->message)) != 0) {
            assert_string_equal(fl_errmsg(), c->message);
        }
        assert_memory_equal(&plan, &before, sizeof plan);
        situation_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planner__replicates_where_the_model_fits),
        cmocka_unit_test(test_planner__cuts_where_memory_asks_for_it),
        cmocka_unit_test(test_planner__prices_the_epoch_that_fills_the_cache),
        cmocka_unit_test(test_planner__follows_the_cache_only_where_it_is_filled),
        cmocka_unit_test(test_planner__cuts_micro_batches_where_activations_are_large),
        cmocka_unit_test(test_planner__prefers_stages_where_gradients_are_dear),
        cmocka_unit_test(test_planner__leaves_workers_idle_where_they_cannot_help),
        cmocka_unit_test(test_planner__balances_stages_by_time),
        cmocka_unit_test(test_planner__moves_the_cut_up_as_layers_freeze),
        cmocka_unit_test(test_planner__obeys_the_job),
        cmocka_unit_test(test_planner__knows_that_devices_share_processors),
        cmocka_unit_test(test_planner__prices_the_bubble_and_the_commit),
        cmocka_unit_test(test_planner__hides_all_reduce_behind_backward),
        cmocka_unit_test(test_planner__takes_three_stages_of_eight_workers),
        cmocka_unit_test(test_planner__takes_the_m_that_was_tuned),
        cmocka_unit_test(test_planner__reports_the_m_that_was_tuned),
        cmocka_unit_test(test_planner__survives_every_failed_allocation),
        cmocka_unit_test(test_planner__accumulates_in_the_memory_of_a_batch),
        cmocka_unit_test(test_planner__refuses_by_name_and_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
