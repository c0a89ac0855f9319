/* What to do when the frost line is to move: the numbers of the tables are worked out by hand.
 *
 * Six layers, each a block of its own, forward 1 ms and backward 2 ms a sample; a frozen layer's
 * forward takes 1 ms, too. Links and all-reduces are free, but for the state that a transition
 * moves: 100 bytes a millisecond, 6400 bytes of weights a layer and as many of moments (SGD).
 * A batch of 16 runs as K = 2, R = 1, M = 2, cut in the middle: 8 samples a micro-batch, so a stage
 * takes 24 ms forward and 48 ms backward, and a step (M + K - 1) * 72 = 216 ms.
 *
 * With F' = 4 (times in ms; s0, s1: the stages; F0: forward of micro-batch 0):
 *   keep       s0 F0 0-24 F1 24-48; s1 F0 24-48 B0 48-80 F1 80-104 B1 104-136: 136, moves nothing
 *   rebalance  cuts 0 5 6: s0 F0 0-40 F1 40-80; s1 F0 40-48 B0 48-64 F1 80-88 B1 88-104;
 *              s0 B0 80-96 B1 104-120: 120; layers 3 and 4 move, 6400 + 12800 bytes: 192 ms
 *   repack     K = 1, R = 2, M = 1: 8 samples, 48 + 32: 80; layers 3, 4 and 5 move to one worker,
 *              0, 1 and 2 to the other, 32000 + 19200 bytes: 512 ms */
#include "pipe/plan/decision.h"

#include "support/data/situation.h"
#include "support/draw.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 6, WORKERS = 2, BATCH = 16, STEP = 100 };

typedef struct rig {
    situation s;
    fl_plan running;
    fl_worker_pool usable;
    int parked[FL_MAX_LAYERS];
    fl_decision_input input;
    fl_decision d;
} rig;

static void set_costs(rig *r, int n_layers)
{
    fl_profile *p = &r->s.profile;
    p->optimizer_us_per_param = p->link_us = 0.0;
    p->link_bytes_per_us = 0.1;
    p->reduce_bytes_per_us = 1e30;
    for (int i = 0; i < n_layers; i++) {
        p->layer[i].fwd_us = 1000.0;
        p->layer[i].bwd_us = 2000.0;
        p->layer[i].frozen_us = 1000.0;
        p->layer[i].out_bytes = 0;
    }
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    situation_init(&r->s, LAYERS, WORKERS, BATCH);
    set_costs(r, LAYERS);
    r->s.job.train.optimizer = FL_SGD;
    r->s.job.elastic.enabled = true;
    r->s.job.freeze.must_pay = true;
    r->running = (fl_plan){.generation = 7,
                           .K = 2,
                           .R = 1,
                           .M = 2,
                           .schedule = FL_1F1B,
                           .n_layers = LAYERS,
                           .n_workers = WORKERS,
                           .first = {0, 3, 6},
                           .rank_of = {0, 1}};
    for (int i = 0; i < FL_MAX_LAYERS; i++) {
        r->parked[i] = -1;
    }
    r->input = (fl_decision_input){.costs = &r->s.input,
                                   .running = &r->running,
                                   .own_m = 2,
                                   .wanted = 4,
                                   .step = STEP,
                                   .n_steps = STEP + 10,
                                   .steps_per_epoch = 10,
                                   .ratio = 1.0,
                                   .fixed_ms = 10.0,
                                   .parked = r->parked,
                                   .usable = &r->usable};
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    situation_fini(&r->s);
    free(r);
    return 0;
}

static const char *decide(rig *r)
{
    fl_decision_make(&r->input, &r->d);
    assert_true(r->d.why[0] != '\0');
    return r->d.chosen == FL_DECISION_STAY ? "stay" : r->d.option[r->d.chosen].name;
}

static const fl_decision_option *named(const rig *r, const char *name)
{
    for (int i = 0; i < r->d.n_options; i++) {
        if (strcmp(r->d.option[i].name, name) == 0) {
            return &r->d.option[i];
        }
    }
    fail_msg("%s was not considered", name);
    return NULL;
}

static void assert_near(double a, double b)
{
    if (fabs(a - b) > 1e-6 * fabs(b)) {
        fail_msg("%.9g, wanted %.9g", a, b);
    }
}

/* Would catch: an alternative without its cost, a plan under the wrong name. */
static void test_decision__prices_every_way(void **state)
{
    rig *r = *state;
    const struct {
        const char *name;
        int K, R, M, cut;
        double step_ms, cost_ms;
        int64_t move_bytes;
    } wanted[] = {
        {"keep", 2, 1, 2, 3, 136.0, 10.0, 0},
        {"rebalance", 2, 1, 2, 5, 120.0, 202.0, 19200},
        {"repack", 1, 2, 1, 6, 80.0, 522.0, 51200},
    };
    assert_string_equal(decide(r), "repack");
    assert_int_equal(r->d.n_options, 3);
    assert_near(r->d.stay_ms, 216.0);
    assert_int_equal(r->d.left, 10);
    for (int i = 0; i < 3; i++) {
        const fl_decision_option *o = &r->d.option[i];
        assert_string_equal(o->name, wanted[i].name);
        assert_int_equal(o->status, FL_OK);
        assert_int_equal(o->plan.F, 4);
        assert_int_equal(o->plan.K, wanted[i].K);
        assert_int_equal(o->plan.R, wanted[i].R);
        assert_int_equal(o->plan.M, wanted[i].M);
        assert_int_equal(o->plan.first[1], wanted[i].cut);
        assert_near(o->step_ms, wanted[i].step_ms);
        assert_near(o->change.cost_ms, wanted[i].cost_ms);
        assert_int_equal(o->change.move_bytes, wanted[i].move_bytes);
    }
    assert_string_equal(r->d.why, "repack: 80 ms a step over 10 steps, 522 ms to change; keep: 136 "
                                  "and 10; rebalance: 120 and 202");
}

/* Totals over n steps, 3 % added to steps of what moves state: stay 216 n, keep 136 n + fixed,
 * rebalance 123.6 n + 192 + fixed, repack 82.4 n + 512 + fixed. Would catch: a choice by step time
 * alone, a cost that is compared with a single step, a freeze that does not pay for its transition.
 */
static void test_decision__the_steps_that_remain_decide(void **state)
{
    rig *r = *state;
    const struct {
        int left;
        double fixed_ms;
        bool any; /* K, R and M are open */
        const char *choice;
    } cases[] = {
        {1, 10.0, true, "keep"},        /* 146 < 216 */
        {9, 10.0, true, "keep"},        /* 1234; repack 1263.6 */
        {10, 10.0, true, "repack"},     /* 1370; repack 1346 */
        {15, 10.0, false, "keep"},      /* 2050; rebalance 2056 */
        {16, 10.0, false, "rebalance"}, /* 2186; rebalance 2179.6 */
        {2, 200.0, true, "stay"},       /* keep 472, stay 432 */
        {3, 200.0, true, "keep"},       /* keep 608, stay 648 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r->input.n_steps = STEP + cases[i].left;
        r->input.fixed_ms = cases[i].fixed_ms;
        r->s.job.pipe.k = r->s.job.pipe.m = cases[i].any ? FL_JOB_AUTO : 2;
        r->s.job.autodp.r = cases[i].any ? FL_JOB_AUTO : 1;
        const char *choice = decide(r);
        if (strcmp(choice, cases[i].choice) != 0) {
            fail_msg("case %zu: %s: %s", i, choice, r->d.why);
        }
        assert_int_equal(r->d.n_options, cases[i].any ? 3 : 2); /* repack would be rebalance */
    }
}

/* Frozen layers that take 4 ms forward instead of 1 + 2: keep takes F0 0-96 F1 96-192 in stage 0
 * and F0 96-120 B0 120-168 F1 192-216 B1 216-264 in stage 1. */
static void make_freezing_slow(rig *r)
{
    for (int i = 0; i < LAYERS; i++) {
        r->s.profile.layer[i].frozen_us = 4000.0;
    }
    r->input.wanted = 3;
    r->s.job.elastic.enabled = false;
}

/* The guarantee: freezing alone never makes a run slower. Would catch: following a policy although
 * the step becomes slower, a reason without the numbers. */
static void test_decision__what_is_slower_stays_unfrozen(void **state)
{
    rig *r = *state;
    make_freezing_slow(r);
    r->input.n_steps = STEP + 100000;
    assert_string_equal(decide(r), "stay");
    assert_int_equal(r->d.best, 0);
    assert_int_equal(r->d.n_options, 1); /* not elastic: only the line moves */
    assert_near(r->d.option[0].step_ms, 264.0);
    assert_non_null(strstr(r->d.why, "keep is predicted to take 264 ms a step"));
    assert_non_null(strstr(r->d.why, "without freezing a step takes 216 ms"));
}

/* A manual request, and a policy with freeze.must_pay false, are always carried out; the reason
 * states the cost. */
static void test_decision__what_is_asked_for_is_done(void **state)
{
    rig *r = *state;
    make_freezing_slow(r);
    r->input.by_hand = true;
    assert_string_equal(decide(r), "keep");
    assert_non_null(strstr(r->d.why, "keep: 264 ms a step"));
    assert_non_null(strstr(r->d.why, "slower than the 216 ms a step"));
    r->input.by_hand = false;
    r->s.job.freeze.must_pay = false;
    assert_string_equal(decide(r), "keep");
    assert_non_null(strstr(r->d.why, "slower than the 216 ms a step"));
}

/* One worker trains, and another has joined: 16 samples of 6 * 3 ms are 288 ms a step, two replicas
 * take 144 and move all 76800 bytes of weights and moments, 768 ms. 1.03 * 144 n + 778 < 288 n from
 * n = 6 on. */
static void test_decision__a_worker_that_has_joined_must_pay(void **state)
{
    rig *r = *state;
    r->running.K = r->running.R = r->running.M = 1;
    r->running.first[1] = LAYERS;
    r->s.job.pipe.k = r->s.job.pipe.m = r->s.job.autodp.r = FL_JOB_AUTO;
    r->input.joined = true;
    r->input.wanted = 0;
    r->input.own_m = 1;
    r->input.n_steps = STEP + 6;
    assert_string_equal(decide(r), "repack");
    assert_int_equal(r->d.n_options, 1);
    assert_near(r->d.stay_ms, 288.0);
    assert_near(r->d.option[0].step_ms, 144.0);
    assert_near(r->d.option[0].change.cost_ms, 778.0);
    r->input.n_steps = STEP + 5;
    assert_string_equal(decide(r), "stay");
    assert_non_null(strstr(r->d.why, "would not pay over the 5 steps that remain"));
    r->running = r->d.option[0].plan;
    assert_string_equal(decide(r), "stay");
    assert_string_equal(r->d.why,
                        "the running plan is the best for the workers that are there now");
}

/* A thaw makes steps slower, and is no matter of time. */
static void test_decision__a_thaw_is_carried_out(void **state)
{
    rig *r = *state;
    r->running.F = 4;
    r->input.wanted = 0;
    for (int i = 0; i < 4; i++) {
        r->parked[i] = i < 3 ? 0 : 1;
    }
    assert_string_equal(decide(r), "keep");
    assert_near(r->d.stay_ms, 136.0);
    assert_near(r->d.option[0].step_ms, 216.0);
}

/* The cache computes in its first epoch (10 steps) and reads afterwards: a frozen sample takes
 * 12 ms of stage 0 cold and 0.1 ms warm, in the mean of n steps c = 12 * 10 / n + 0.1 * (n - 10)
 * / n. Stage 0 takes 8 c a micro-batch:
 *   n = 10  c = 12       264, as above: stay
 *   n = 12  c = 10.0167  s1 F1 from 160.27 to 184.27, B1 to 232.27: stay
 *   n = 20  c = 6.05     s1 F0 48.4-72.4 B0 -120.4 F1 -144.4 B1 -192.4: 3858 < 4320, keep */
static void test_decision__what_the_cache_saves_later_counts(void **state)
{
    rig *r = *state;
    static const fl_read_cost read = {.call_us = 100.0};
    const struct {
        int left;
        double step_ms;
        const char *choice;
    } cases[] = {{10, 264.0, "stay"}, {12, 232.0 + 4.0 / 15.0, "stay"}, {20, 192.4, "keep"}};
    make_freezing_slow(r);
    r->s.input.cached_read = &read;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r->input.n_steps = STEP + cases[i].left;
        assert_string_equal(decide(r), cases[i].choice);
        assert_near(r->d.option[0].step_ms, cases[i].step_ms);
    }
}

/* Would catch: predictions that are not corrected by the measured step. */
static void test_decision__predictions_are_corrected(void **state)
{
    rig *r = *state;
    r->input.ratio = 5.0;
    decide(r);
    assert_near(r->d.stay_ms, 1080.0);
    assert_near(named(r, "keep")->step_ms, 680.0);
    assert_near(named(r, "keep")->change.cost_ms, 10.0);
}

static int64_t largest(const rig *r, const fl_plan *plan)
{
    int64_t most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory m;
        assert_int_equal(fl_plan_memory(&r->s.input, plan, s, &m), FL_OK);
        most = m.total_bytes > most ? m.total_bytes : most;
    }
    return most;
}

/* More blocks frozen under the same cuts need no room for a second copy of anything; blocks that
 * thaw need memory, and without it every request is refused. */
static void test_decision__memory_refuses_only_what_does_not_fit(void **state)
{
    rig *r = *state;
    r->s.job.devices.memory_bytes = largest(r, &r->running); /* to the byte */
    decide(r);
    assert_int_equal(named(r, "keep")->status, FL_OK);

    r->running.F = 4;
    r->input.wanted = 0;
    r->input.by_hand = true;
    r->s.job.devices.memory_bytes = largest(r, &r->running);
    for (int i = 0; i < 4; i++) {
        r->parked[i] = i < 3 ? 0 : 1;
    }
    assert_string_equal(decide(r), "stay");
    assert_int_equal(r->d.best, -1);
    for (int i = 0; i < r->d.n_options; i++) {
        assert_int_equal(r->d.option[i].status, FL_EBUDGET);
        assert_non_null(strstr(r->d.option[i].why_not, "devices.memory"));
    }
    assert_non_null(strstr(r->d.why, "no plan is possible: devices.memory"));
}

/* The running plan goes before the next one comes: both need not fit side by side. */
static void test_decision__plans_need_not_fit_side_by_side(void **state)
{
    rig *r = *state;
    fl_plan whole = r->running;
    whole.K = 1;
    whole.R = 2;
    whole.M = 1;
    whole.first[1] = LAYERS;
    r->input.wanted = 5;
    r->input.n_steps = STEP + 1000;
    int64_t now = largest(r, &r->running);
    assert_true(largest(r, &whole) > now); /* does not fit before it is frozen */
    r->s.job.devices.memory_bytes = now;
    assert_string_equal(decide(r), "repack");
    const fl_plan *next = &named(r, "repack")->plan;
    assert_int_equal(next->R, 2);
    assert_true(largest(r, next) <= now && largest(r, next) + now > now);
}

/* Would catch: a plan with a place for a worker that was drained. */
static void test_decision__plans_for_usable_workers_only(void **state)
{
    rig *r = *state;
    r->input.n_steps = STEP + 1000;
    r->running = (fl_plan){.K = 1,
                           .R = 1,
                           .M = 2,
                           .schedule = FL_1F1B,
                           .n_layers = LAYERS,
                           .n_workers = WORKERS,
                           .first = {0, 6},
                           .rank_of = {1}};
    r->usable.drained[0] = true;
    decide(r);
    for (int i = 0; i < r->d.n_options; i++) {
        assert_int_equal(r->d.option[i].status, FL_OK);
        assert_true(fl_worker_pool_covers(&r->usable, &r->d.option[i].plan));
    }
}

/* ---- properties ---- */

static void draw_costs(rig *r)
{
    for (int i = 0; i < LAYERS; i++) {
        fl_layer_cost *c = &r->s.profile.layer[i];
        c->fwd_us = draw(1, 1000);
        c->bwd_us = draw(0, 2000);
        c->frozen_us = draw(1, 2000);
    }
    r->s.profile.link_us = draw(0, 100);
    r->s.profile.link_bytes_per_us = draw(1, 1000);
    r->s.job.elastic.enabled = draw(0, 3) > 0;
    r->s.job.freeze.must_pay = draw(0, 3) > 0;
}

static void draw_question(rig *r)
{
    int K = draw(1, 2), cut = draw(1, LAYERS - 1), F = draw(0, LAYERS - 1);
    r->running.F = F;
    r->running.K = K;
    r->running.R = draw(1, WORKERS / K);
    r->running.M = draw(1, 4);
    r->running.first[1] = K == 1 ? LAYERS : cut;
    r->running.first[2] = LAYERS;
    for (int i = 0; i < LAYERS; i++) {
        r->parked[i] = i >= F ? -1 : K == 1 || i < cut ? 0 : 1;
    }
    r->input.wanted = draw(0, LAYERS - 1);
    r->input.own_m = draw(1, 4);
    r->input.by_hand = draw(0, 3) == 0;
    r->input.n_steps = STEP + draw(1, 200);
    r->input.steps_per_epoch = draw(1, 100);
    r->input.ratio = draw(1, 30) / 10.0;
    r->input.fixed_ms = draw(0, 1000);
    r->input.warming = (fl_cache_warmup){.F = F, .since = draw(0, STEP)};
}

static void check_equal(const fl_decision *a, const fl_decision *b)
{
    assert_int_equal(a->chosen, b->chosen);
    assert_int_equal(a->n_options, b->n_options);
    assert_true(a->stay_ms == b->stay_ms);
    assert_string_equal(a->why, b->why);
    for (int i = 0; i < a->n_options; i++) {
        assert_true(a->option[i].step_ms == b->option[i].step_ms);
        assert_true(a->option[i].change.cost_ms == b->option[i].change.cost_ms);
        assert_memory_equal(a->option[i].plan.rank_of, b->option[i].plan.rank_of,
                            sizeof a->option[i].plan.rank_of);
    }
}

static void check_choice(const rig *r)
{
    const fl_decision *d = &r->d;
    double stay = d->stay_ms * (double)d->left;
    bool must_pay = r->input.wanted > r->running.F && !r->input.by_hand && r->s.job.freeze.must_pay;
    double chosen = d->chosen >= 0 ? fl_decision_total_ms(d, d->chosen) : INFINITY;
    assert_true(d->best >= 0); /* memory is plenty */
    assert_true(d->chosen >= 0 || must_pay);
    assert_true(d->chosen < 0 || !must_pay || chosen < stay);
    for (int i = 0; i < d->n_options; i++) {
        const fl_decision_option *o = &d->option[i];
        assert_int_equal(o->status, FL_OK);
        assert_int_equal(fl_plan_check(&o->plan), FL_OK);
        assert_int_equal(o->plan.F, r->input.wanted);
        assert_true(fl_decision_total_ms(d, i) >= (d->chosen >= 0 ? chosen : stay));
    }
}

static void test_decision__holds_for_any_input(void **state)
{
    rig *r = *state;
    static const fl_read_cost read = {.call_us = 50.0};
    static fl_decision again;
    int n_stays = 0, n_moves = 0;
    seed_random();
    for (int round = 0; round < 2000; round++) {
        draw_costs(r);
        draw_question(r);
        r->s.input.cached_read = draw(0, 1) == 0 ? &read : NULL;
        decide(r);
        check_choice(r);
        fl_decision_make(&r->input, &again);
        check_equal(&r->d, &again);
        n_stays += r->d.chosen == FL_DECISION_STAY;
        n_moves += r->d.chosen > 0;
    }
    print_message("%d of 2000 stay, %d change the plan\n", n_stays, n_moves);
    assert_true(n_stays > 50 && n_moves > 50);
}

int main(void)
{
#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_decision__prices_every_way),
        IN_A_RIG(test_decision__the_steps_that_remain_decide),
        IN_A_RIG(test_decision__what_is_slower_stays_unfrozen),
        IN_A_RIG(test_decision__what_is_asked_for_is_done),
        IN_A_RIG(test_decision__a_worker_that_has_joined_must_pay),
        IN_A_RIG(test_decision__a_thaw_is_carried_out),
        IN_A_RIG(test_decision__what_the_cache_saves_later_counts),
        IN_A_RIG(test_decision__predictions_are_corrected),
        IN_A_RIG(test_decision__memory_refuses_only_what_does_not_fit),
        IN_A_RIG(test_decision__plans_need_not_fit_side_by_side),
        IN_A_RIG(test_decision__plans_for_usable_workers_only),
        IN_A_RIG(test_decision__holds_for_any_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
