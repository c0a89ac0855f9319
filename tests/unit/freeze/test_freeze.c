/* Freezing policies: tables by hand, properties over random inputs. */
#include "freeze/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { L_MAX = 40 };

static fl_job job_of(fl_freeze_policy policy, double alpha, int64_t keep)
{
    fl_job job;
    fl_job_defaults(&job);
    job.freeze.policy = policy;
    job.freeze.start = (fl_period){.epochs = 1, .steps = -1};
    job.freeze.every = (fl_period){.epochs = 1, .steps = -1};
    job.freeze.alpha = alpha;
    job.freeze.keep = keep;
    return job;
}

static fl_freeze_decision decided(const fl_freeze_input *input)
{
    fl_freeze_decision decision;
    memset(&decision, 0xA5, sizeof decision);
    fl_freeze_decide(input, &decision);
    assert_non_null(memchr(decision.why, '\0', sizeof decision.why));
    return decision;
}

static void expect(const fl_freeze_input *input, int F, const char *why)
{
    fl_freeze_decision decision = decided(input);
    if (decision.F != F || strcmp(decision.why, why) != 0) {
        fail_msg("expected F = %d (%s)\ngot F = %d (%s)", F, why, decision.F, decision.why);
    }
}

/* ---- gradnorm ---- */

typedef struct gradnorm_case {
    int L, F;
    double alpha;
    int64_t keep;
    double norm[9];
    int expected;
    const char *why;
} gradnorm_case;

static const gradnorm_case gradnorm_cases[] = {
    /* the smallest norm decides */
    {8,
     1,
     1.0 / 3,
     2,
     {0, 3, 0.012, 4, 5, 6, 7, 8},
     3,
     "block 3 has the smallest norm 0.012 of blocks 2..8"},
    {8,
     0,
     1.0 / 3,
     2,
     {1, 2, 3, 4, 5, 6, 7, 8},
     1,
     "block 1 has the smallest norm 1 of blocks 1..8"},
    /* the first of two that are alike */
    {9,
     0,
     0.5,
     2,
     {5, 2, 4, 2, 6, 7, 7, 7, 7},
     2,
     "block 2 has the smallest norm 2 of blocks 1..9"},
    /* alpha decides; a third of 9 is 3, of 8 rounded down 2, of 2 none */
    {9,
     0,
     1.0 / 3,
     2,
     {9, 8, 7, 6, 5, 4, 3, 2, 1},
     3,
     "block 9 has the smallest norm 1 of blocks 1..9; alpha 0.333 of 9 active blocks allows 3 "
     "more"},
    {8,
     0,
     1.0 / 3,
     2,
     {9, 8, 7, 6, 5, 4, 3, 2},
     2,
     "block 8 has the smallest norm 2 of blocks 1..8; alpha 0.333 of 8 active blocks allows 2 "
     "more"},
    {8,
     6,
     1.0 / 3,
     1,
     {0, 0, 0, 0, 0, 0, 3, 2},
     6,
     "block 8 has the smallest norm 2 of blocks 7..8; alpha 0.333 of 2 active blocks allows 0 "
     "more"},
    /* the norm of a frozen block is no norm */
    {8, 2, 0.5, 2, {0, 0, 3, 1, 5, 6, 7, 8}, 4, "block 4 has the smallest norm 1 of blocks 3..8"},
    /* freeze.keep decides */
    {4,
     1,
     0.9,
     2,
     {0, 3, 2, 1},
     2,
     "block 4 has the smallest norm 1 of blocks 2..4; alpha 0.9 of 3 active blocks allows 2 more; "
     "freeze.keep 2 of 4 blocks allows 2"},
    {4,
     0,
     0.9,
     9,
     {1, 2, 3, 4},
     0,
     "block 1 has the smallest norm 1 of blocks 1..4; freeze.keep 9 of 4 blocks allows 0"},
    /* more is frozen by hand than freeze.keep would: nothing thaws for it */
    {4,
     3,
     0.9,
     2,
     {0, 0, 0, 1},
     3,
     "block 4 has the smallest norm 1 of blocks 4..4; alpha 0.9 of 1 active blocks allows 0 more"},
    {4, 4, 0.9, 2, {0, 0, 0, 0}, 4, "all 4 blocks are frozen"},
    /* norms that say nothing */
    {3, 1, 0.9, 1, {0, NAN, 1}, 1, "block 2 has the norm nan in the interval just ended"},
    {3, 1, 0.9, 1, {0, 1, INFINITY}, 1, "block 3 has the norm inf in the interval just ended"},
    {3, 1, 0.9, 1, {NAN, 1, 2}, 2, "block 2 has the smallest norm 1 of blocks 2..3"},
};

static void test_freeze__gradnorm_is_equation_1(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof gradnorm_cases / sizeof gradnorm_cases[0]; i++) {
        const gradnorm_case *c = &gradnorm_cases[i];
        fl_job job = job_of(FL_FREEZE_GRADNORM, c->alpha, c->keep);
        expect(&(fl_freeze_input){.job = &job,
                                  .L = c->L,
                                  .F = c->F,
                                  .step = 100,
                                  .steps_per_epoch = 100,
                                  .norm = c->norm},
               c->expected, c->why);
    }
}

static void test_freeze__policies_by_norms_wait_for_them(void **state)
{
    (void)state;
    double norm[3] = {1, 2, 3};
    fl_job job = job_of(FL_FREEZE_GRADNORM, 0.9, 1);
    fl_freeze_input input = {.job = &job, .L = 3, .step = 100, .steps_per_epoch = 100};
    expect(&input, 0, "no norms of the interval just ended");
    job.freeze.policy = FL_FREEZE_STABILITY;
    expect(&input, 0, "no norms of the interval just ended");
    input.norm = norm;
    expect(&input, 0, "no norms of the interval before");
    job.freeze.policy = FL_FREEZE_NONE;
    expect(&input, 0, "freeze.policy is none");
}

/* ---- schedule ---- */

static void test_freeze__schedule_follows_the_closed_form(void **state)
{
    (void)state;
    /* ceil(12 (1 - (2/3)^e)), ceil(9 (1 - (2/3)^e)), ceil(8 (1 - (1/2)^e)); one block is kept */
    static const struct {
        int L;
        double alpha;
        int F[6]; /* in epoch 0, 1, 2 ... */
    } cases[] = {
        {12, 1.0 / 3, {0, 4, 7, 9, 10, 11}},
        {9, 1.0 / 3, {0, 3, 5, 7, 8, 8}},
        {8, 0.5, {0, 4, 6, 7, 7, 7}},
        {1, 0.5, {0, 0, 0, 0, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fl_job job = job_of(FL_FREEZE_SCHEDULE, cases[i].alpha, 1);
        for (int epoch = 0; epoch < 6; epoch++) {
            for (int64_t step = 100 * epoch; step < 100 * (epoch + 1); step += 99) {
                fl_freeze_decision decision = decided(&(fl_freeze_input){
                    .job = &job, .L = cases[i].L, .step = step, .steps_per_epoch = 100});
                assert_int_equal(decision.F, cases[i].F[epoch]);
            }
        }
    }
}

static void test_freeze__schedule_says_why_and_never_thaws(void **state)
{
    (void)state;
    fl_job job = job_of(FL_FREEZE_SCHEDULE, 1.0 / 3, 2);
    fl_freeze_input input = {.job = &job, .L = 12, .step = 200, .steps_per_epoch = 100};
    expect(&input, 7, "interval 2: ceil(12 (1 - (1 - 0.333)^2)) is 7");
    input.F = 9;
    expect(&input, 9, "interval 2: ceil(12 (1 - (1 - 0.333)^2)) is 7");
    input.step = 1000;
    expect(&input, 10,
           "interval 10: ceil(12 (1 - (1 - 0.333)^10)) is 12; freeze.keep 2 of 12 "
           "blocks allows 10");
    input.step = 99;
    expect(&input, 9, "step 99 is before freeze.start");
}

static void test_freeze__a_list_is_followed_up_and_down(void **state)
{
    (void)state;
    fl_job job = job_of(FL_FREEZE_SCHEDULE, 1.0 / 3, 2);
    job.freeze.every = (fl_period){.steps = 10};
    job.freeze.n_list = 3;
    job.freeze.list[0] = 2;
    job.freeze.list[1] = 50;
    job.freeze.list[2] = 1;
    fl_freeze_input input = {.job = &job, .L = 8, .step = 100, .steps_per_epoch = 100};
    expect(&input, 2, "interval 1: entry 1 of 3 of freeze.list is 2");
    input.step = 110, input.F = 2;
    expect(&input, 6,
           "interval 2: entry 2 of 3 of freeze.list is 50; there are 8 blocks; "
           "freeze.keep 2 of 8 blocks allows 6");
    input.step = 120, input.F = 6;
    expect(&input, 1, "interval 3: entry 3 of 3 of freeze.list is 1");
    input.step = 500, input.F = 1;
    expect(&input, 1, "interval 41: entry 3 of 3 of freeze.list is 1");
}

/* ---- stability ---- */

typedef struct stability_case {
    int L, F;
    double percentile;
    double before[6], norm[6];
    int expected;
    const char *why;
} stability_case;

static const stability_case stability_cases[] = {
    /* changes 1 2 30 40 50 60 %: the median lies between 30 and 40 */
    {6,
     0,
     50,
     {1, 1, 1, 1, 1, 1},
     {1.01, 0.98, 1.3, 0.6, 1.5, 1.6},
     3,
     "blocks 1..3 changed their norms by at most 30 %, below percentile 50 of blocks 1..6, 35 %"},
    /* what is not a prefix does not freeze */
    {4,
     0,
     50,
     {1, 1, 1, 1},
     {1.4, 1.01, 1.02, 1.5},
     0,
     "block 1 changed its norm by 40 %, not below percentile 50 of blocks 1..4, 21 %"},
    /* frozen blocks take no part in the percentile */
    {5,
     2,
     50,
     {0, 0, 1, 1, 1},
     {0, 0, 1.1, 1.2, 1.3},
     3,
     "block 3 changed its norm by 10 %, below percentile 50 of blocks 3..5, 20 %"},
    /* the change is relative, and of either sign */
    {3,
     0,
     100,
     {100, 10, 1},
     {99, 12, 4},
     2,
     "blocks 1..2 changed their norms by at most 20 %, below percentile 100 of blocks 1..3, 300 %"},
    /* all changes are equal: no block is below the percentile */
    {3,
     0,
     90,
     {1, 1, 1},
     {2, 2, 2},
     0,
     "block 1 changed its norm by 100 %, not below percentile 90 of blocks 1..3, 100 %"},
    /* the highest percentile stops at freeze.keep, here 1 */
    {2,
     1,
     50,
     {0, 1},
     {0, 1.5},
     1,
     "block 2 changed its norm by 50 %, not below percentile 50 of blocks 2..2, 50 %"},
    /* a block that had no gradient has no measure, and holds nothing else up */
    {4,
     0,
     50,
     {1, 1, 0, 0},
     {1, 1.1, 0, 3},
     1,
     "block 1 changed its norm by 0 %, below percentile 50 of blocks 1..4, 5 %"},
    {2, 2, 50, {0, 0}, {0, 0}, 2, "all 2 blocks are frozen"},
    {2, 0, 50, {1, NAN}, {1, 1}, 0, "block 2 has the norm nan in the interval before"},
};

static void test_freeze__stability_freezes_the_longest_stable_prefix(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof stability_cases / sizeof stability_cases[0]; i++) {
        const stability_case *c = &stability_cases[i];
        fl_job job = job_of(FL_FREEZE_STABILITY, 0.5, 1);
        job.freeze.percentile = c->percentile;
        expect(&(fl_freeze_input){.job = &job,
                                  .L = c->L,
                                  .F = c->F,
                                  .step = 100,
                                  .steps_per_epoch = 100,
                                  .norm = c->norm,
                                  .norm_before = c->before},
               c->expected, c->why);
    }
}

/* ---- pins ---- */

static void test_freeze__a_pinned_block_is_never_frozen(void **state)
{
    (void)state;
    double norm[6] = {5, 5, 5, 1, 5, 5};
    bool pinned[6] = {false, false, true, false, true, false};
    fl_job job = job_of(FL_FREEZE_GRADNORM, 0.9, 1);
    fl_freeze_input input = {
        .job = &job, .L = 6, .step = 100, .steps_per_epoch = 100, .norm = norm, .pinned = pinned};
    expect(&input, 2, "block 4 has the smallest norm 1 of blocks 1..6; block 3 is pinned");
    input.F = 3; /* it was pinned after it froze: it thaws */
    expect(&input, 2, "block 4 has the smallest norm 1 of blocks 4..6; block 3 is pinned");
    job.freeze.policy = FL_FREEZE_NONE;
    expect(&input, 2, "freeze.policy is none; block 3 is pinned");
    pinned[2] = false;
    expect(&input, 3, "freeze.policy is none");
}

/* ---- properties ---- */

static int below(unsigned short seed[3], int n)
{
    return (int)(erand48(seed) * n);
}

typedef struct random_case {
    fl_job job;
    fl_freeze_input input;
    double norm[L_MAX], before[L_MAX];
    bool pinned[L_MAX];
    int first_pin; /* 1 .. L, or L + 1 */
} random_case;

static void draw(unsigned short seed[3], random_case *c)
{
    static const double odd[] = {0, NAN, INFINITY, 1e-300, 1e300};
    int L = 1 + below(seed, L_MAX), F = below(seed, L + 1);
    c->job =
        job_of((fl_freeze_policy)below(seed, 4), 0.01 + 0.98 * erand48(seed), 1 + below(seed, 5));
    c->job.freeze.percentile = 100 * erand48(seed);
    c->job.freeze.n_list = below(seed, 4) == 0 ? 1 + below(seed, 6) : 0;
    for (int i = 0; i < c->job.freeze.n_list; i++) {
        c->job.freeze.list[i] = below(seed, 2 * L);
    }
    bool pins = below(seed, 3) == 0;
    c->first_pin = L + 1;
    for (int i = L - 1; i >= 0; i--) {
        c->norm[i] = i < F ? 0 : exp(10 * erand48(seed) - 5);
        c->before[i] = i < F ? 0 : exp(10 * erand48(seed) - 5);
        if (below(seed, 60) == 0) {
            c->norm[i] = odd[below(seed, 5)];
            c->before[i] = odd[below(seed, 5)];
        }
        c->pinned[i] = pins && below(seed, 6) == 0;
        c->first_pin = c->pinned[i] ? i + 1 : c->first_pin;
    }
    c->input = (fl_freeze_input){.job = &c->job,
                                 .L = L,
                                 .F = F,
                                 .step = below(seed, 2000),
                                 .steps_per_epoch = 1 + below(seed, 200),
                                 .norm = below(seed, 10) == 0 ? NULL : c->norm,
                                 .norm_before = below(seed, 10) == 0 ? NULL : c->before,
                                 .pinned = pins ? c->pinned : NULL};
}

/* F' in range, the kept and the pinned blocks active, up only except for pins and lists, the same
 * again from the same input, and always with a reason. */
static void test_freeze__every_decision_keeps_to_the_limits(void **state)
{
    (void)state;
    unsigned short seed[3] = {4, 5, (unsigned short)getpid()};
    print_message("seed 4 5 %u\n", seed[2]);
    int n_up = 0, n_down = 0, n_by_policy[4] = {0};
    for (int i = 0; i < 20000; i++) {
        random_case c;
        draw(seed, &c);
        int L = c.input.L, F = c.input.F;
        fl_freeze_decision d = decided(&c.input), again = decided(&c.input);
        int64_t kept = L - c.job.freeze.keep;
        bool may_fall = F >= c.first_pin ||
                        (c.job.freeze.policy == FL_FREEZE_SCHEDULE && c.job.freeze.n_list > 0);
        bool good = d.F >= 0 && d.F <= L && d.F < c.first_pin && (d.F <= F || d.F <= kept) &&
                    (d.F >= F || may_fall) && d.F == again.F && d.why[0] != '\0' &&
                    (c.job.freeze.policy != FL_FREEZE_NONE || d.F <= F);
        if (!good) {
            fail_msg("case %d: policy %d, L %d, F %d -> %d, keep %lld, first pin %d (%s)", i,
                     c.job.freeze.policy, L, F, d.F, (long long)c.job.freeze.keep, c.first_pin,
                     d.why);
        }
        n_up += d.F > F;
        n_down += d.F < F;
        n_by_policy[c.job.freeze.policy] += d.F > F;
    }
    assert_true(n_up > 1000 && n_down > 100);
    assert_true(n_by_policy[1] > 100 && n_by_policy[2] > 100 && n_by_policy[3] > 100);
}

/* Would catch: a policy that depends on the scale of all gradients, which loss scaling changes. */
static void test_freeze__scaling_all_norms_changes_no_decision(void **state)
{
    (void)state;
    unsigned short seed[3] = {6, 7, (unsigned short)getpid()};
    print_message("seed 6 7 %u\n", seed[2]);
    for (int i = 0; i < 2000; i++) {
        random_case c;
        draw(seed, &c);
        fl_freeze_decision d = decided(&c.input);
        for (int b = 0; b < c.input.L; b++) {
            c.norm[b] *= 1024;
            c.before[b] *= 1024;
        }
        assert_int_equal(decided(&c.input).F, d.F);
    }
}

/* Left alone, each policy comes to rest with freeze.keep blocks active or before, and a run of
 * decisions never goes down. */
static void test_freeze__a_run_of_decisions_only_goes_up(void **state)
{
    (void)state;
    unsigned short seed[3] = {8, 9, (unsigned short)getpid()};
    print_message("seed 8 9 %u\n", seed[2]);
    for (int i = 0; i < 300; i++) {
        random_case c;
        draw(seed, &c);
        c.job.freeze.n_list = 0;
        c.input.F = 0;
        c.input.pinned = NULL;
        for (int64_t step = 0; step < 40; step++) {
            for (int b = 0; b < c.input.L; b++) {
                c.before[b] = c.norm[b];
                c.norm[b] = b < c.input.F ? 0 : 1 + erand48(seed);
            }
            c.input.step = step * c.input.steps_per_epoch;
            int F = decided(&c.input).F;
            assert_true(F >= c.input.F);
            assert_true(F == 0 || F <= c.input.L - c.job.freeze.keep);
            c.input.F = F;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_freeze__gradnorm_is_equation_1),
        cmocka_unit_test(test_freeze__policies_by_norms_wait_for_them),
        cmocka_unit_test(test_freeze__schedule_follows_the_closed_form),
        cmocka_unit_test(test_freeze__schedule_says_why_and_never_thaws),
        cmocka_unit_test(test_freeze__a_list_is_followed_up_and_down),
        cmocka_unit_test(test_freeze__stability_freezes_the_longest_stable_prefix),
        cmocka_unit_test(test_freeze__a_pinned_block_is_never_frozen),
        cmocka_unit_test(test_freeze__every_decision_keeps_to_the_limits),
        cmocka_unit_test(test_freeze__scaling_all_norms_changes_no_decision),
        cmocka_unit_test(test_freeze__a_run_of_decisions_only_goes_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
