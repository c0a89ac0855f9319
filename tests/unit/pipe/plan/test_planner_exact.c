/* Plans against every plan that there is, in situations drawn at random. */
#include "autodp/split_work.h"
#include "pipe/plan/planner.h"

#include "support/data/situation.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* To which plans are compared. */
static const double NANOSECOND_US = 1e-3;

static void situation_draw(situation *s)
{
    int n_layers = draw(1, 9);
    situation_init(s, n_layers, draw(1, 8), draw(1, 40));
    for (int i = 0; i < n_layers; i++) {
        fl_layer_cost *c = &s->profile.layer[i];
        c->fwd_call_us = draw(0, 5);
        c->bwd_call_us = draw(0, 5);
        c->fwd_us = draw(0, 10) * 0.5;
        c->bwd_us = draw(0, 20) * 0.5;
        c->frozen_us = draw(0, 8) * 0.5;
        s->memory[i].kept_bytes = 64 * draw(2, 40);
        s->memory[i].scratch_bytes = 64 * draw(0, 40);
    }
    s->profile.loss_us = draw(0, 3);
    s->profile.link_us = draw(0, 30);
    s->profile.link_bytes_per_us = draw(1, 1000);
    s->profile.reduce_bytes_per_us = draw(1, 1000);
    s->job.train.optimizer = draw(0, 1) ? FL_ADAMW : FL_SGD;
    s->job.pipe.schedule = draw(0, 1) ? FL_1F1B : FL_GPIPE;
    s->job.devices.memory_bytes = draw(10, 400) * (int64_t)1000;
    s->profile.reduce_cpu_share = draw(0, 10) * 0.1;
    s->input.n_processors = draw(0, 1) * draw(1, 8);
    s->input.F = draw(0, 1) * draw(0, n_layers);
}

/* Whether every stage of the plan is within the budget, from what its layers take. */
static bool fits(const situation *s, const fl_plan *plan)
{
    fl_candidate detail;
    fl_plan_predict(&s->input, plan, &detail);
    return detail.memory_bytes <= s->job.devices.memory_bytes;
}

/* The cheapest split of this K, R and M that fits, by trying all; INFINITY if no split fits.
 */
static double try_splits(const situation *s, fl_plan *plan, int stage)
{
    if (stage == plan->K - 1) {
        plan->first[plan->K] = plan->n_layers;
        return fits(s, plan) ? fl_plan_predict(&s->input, plan, NULL) : INFINITY;
    }
    double best = INFINITY;
    for (int next = plan->first[stage] + 1; next <= plan->n_layers - (plan->K - stage - 1);
         next++) {
        plan->first[stage + 1] = next;
        best = fmin(best, try_splits(s, plan, stage + 1));
    }
    return best;
}

static void check_candidates(const situation *s, const fl_plan *plan,
                             const fl_candidate *candidates, int n)
{
    assert_true(n >= 1);
    assert_int_equal(candidates[0].grid.K, plan->K);
    assert_int_equal(candidates[0].grid.R, plan->R);
    assert_int_equal(candidates[0].grid.M, plan->M);
    for (int i = 0; i < n; i++) {
        const fl_candidate *c = &candidates[i];
        assert_true(plan->predicted_step_us <= c->step_us + NANOSECOND_US);
        assert_true(i == 0 || candidates[i - 1].step_us <= c->step_us + NANOSECOND_US);
        assert_true(isinf(c->step_us) == (c->why_not != FL_OK));
        bool over = c->memory_bytes > s->job.devices.memory_bytes;
        assert_true(over == (c->why_not == FL_EBUDGET));
        assert_true(c->bubble >= 0.0 && c->bubble <= 1.0 && c->reduce_us >= 0.0);
        assert_true(c->grid.M <= fl_split_work_max(s->job.train.batch, c->grid.R));
        assert_true(c->grid.K * c->grid.R <= s->input.n_workers);
    }
}

/* Each candidate is the best of all its splits, and the plan the best of all candidates: to the
 * nanosecond, below which the planner prefers the simpler of two. */
static void check_exact(const situation *s, const fl_plan *plan, const fl_candidate *candidates,
                        int n)
{
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        const fl_candidate *c = &candidates[i];
        fl_plan other = *plan;
        other.K = c->grid.K;
        other.R = c->grid.R;
        other.M = c->grid.M;
        double least = try_splits(s, &other, 0);
        assert_true(isinf(least) == isinf(c->step_us));
        assert_true(isinf(least) || fabs(least - c->step_us) <= 1e-9 * least);
        best = fmin(best, least);
    }
    assert_true(fabs(best - plan->predicted_step_us) <= NANOSECOND_US);
}

/* A plan that is not one, is over the budget, or is worse than another that was there to take:
 * against every split of every K, R and M, with blocks frozen or not. */
static void test_planner__is_exact(void **state)
{
    (void)state;
    seed_random();
    int n_chosen = 0, n_refused = 0, n_frozen = 0, n_three_of_eight = 0;
    for (int round = 0; round < 400; round++) {
        situation s;
        fl_plan plan;
        fl_candidate candidates[CANDIDATES];
        int n = 0;
        situation_draw(&s);
        fl_status status = fl_plan_choose(&s.input, &plan, candidates, CANDIDATES, &n);
        if (status == FL_OK) {
            assert_int_equal(fl_plan_check(&plan), FL_OK);
            assert_true(fits(&s, &plan));
            check_candidates(&s, &plan, candidates, n);
            check_exact(&s, &plan, candidates, n);
            n_chosen++;
            n_frozen += s.input.F > 0;
            n_three_of_eight += s.input.n_workers == 8 && s.profile.n_layers >= 3;
        } else {
            assert_int_equal(status, FL_EBUDGET);
            n_refused++;
        }
        situation_fini(&s);
    }
    print_message("%d chosen, %d of them with frozen blocks, %d refused\n", n_chosen, n_frozen,
                  n_refused);
    assert_true(n_chosen > 100 && n_refused > 20 && n_frozen > 30 && n_three_of_eight > 5);
}

/* A refusal where some split would have fitted. */
static void test_planner__refuses_only_what_cannot_fit(void **state)
{
    (void)state;
    seed_random();
    int n_refused = 0;
    for (int round = 0; round < 300; round++) {
        situation s;
        fl_plan plan = {0};
        situation_draw(&s);
        s.job.devices.memory_bytes = draw(30, 250) * (int64_t)1000;
        int n_layers = s.profile.n_layers;
        int K = draw(1, n_layers < s.input.n_workers ? n_layers : s.input.n_workers);
        s.job.pipe.k = K;
        s.job.pipe.m = 1;
        s.job.autodp.r = 1;
        fl_status status = fl_plan_choose(&s.input, &plan, NULL, 0, NULL);
        fl_plan other = {.K = K,
                         .R = 1,
                         .M = 1,
                         .F = s.input.F,
                         .n_layers = n_layers,
                         .schedule = s.job.pipe.schedule,
                         .n_workers = s.input.n_workers};
        bool some = !isinf(try_splits(&s, &other, 0));
        assert_int_equal(status, some ? FL_OK : FL_EBUDGET);
        n_refused += !some;
        situation_fini(&s);
    }
    assert_true(n_refused > 20 && n_refused < 300);
}

/* Leaving candidates out by their lower bound must not change the answer: with room to report all
 * of them, none is left out. */
static void test_planner__bound_leaves_out_nothing_better(void **state)
{
    (void)state;
    seed_random();
    static fl_candidate candidates[200000];
    for (int round = 0; round < 20; round++) {
        situation s;
        fl_plan with_bound, all;
        int n = 0;
        situation_draw(&s);
        s.input.n_workers = draw(8, 60);
        s.job.train.batch = draw(20, 500);
        s.job.devices.memory_bytes = draw(50, 4000) * (int64_t)1000;
        fl_status a = fl_plan_choose(&s.input, &with_bound, NULL, 0, NULL);
        fl_status b = fl_plan_choose(&s.input, &all, candidates, 200000, &n);
        assert_int_equal(a, b);
        assert_true(a != FL_OK || memcmp(&with_bound, &all, sizeof all) == 0);
        situation_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_planner__is_exact),
        cmocka_unit_test(test_planner__refuses_only_what_cannot_fit),
        cmocka_unit_test(test_planner__bound_leaves_out_nothing_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
