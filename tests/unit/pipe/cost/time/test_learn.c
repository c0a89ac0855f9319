/* What live steps do to a profile. */
#include "pipe/cost/time/learn.h"

#include "nn/model.h"
#include "support/data/toy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 2, LAYERS = 6, BATCH = 16 };

typedef struct rig {
    fl_model *model;
    fl_job job;
    fl_profile profile;
    fl_plan_input input;
    fl_plan plan; /* K = 2: layers 0 .. 2 and 3 .. 5 */
} rig;

/* Each layer 1 + 2 us a sample, frozen 0.5: a stage of three takes 16 samples in 144 us. */
static void rig_init(rig *r)
{
    memset(r, 0, sizeof *r);
    assert_int_equal(fl_toy_model(BLOCKS, 0.0f, &r->model), FL_OK);
    assert_int_equal(fl_model_n_layers(r->model), LAYERS);
    r->job.train.batch = BATCH;
    r->job.train.accumulate = 1;
    r->profile.n_layers = LAYERS;
    for (int i = 0; i < LAYERS; i++) {
        r->profile.layer[i] = (fl_layer_cost){.fwd_us = 1.0, .bwd_us = 2.0, .frozen_us = 0.5};
    }
    r->input = (fl_plan_input){.model = r->model, .job = &r->job, .profile = &r->profile};
    r->plan = (fl_plan){.K = 2, .R = 1, .M = 4, .n_layers = LAYERS, .first = {0, 3, LAYERS}};
}

static void test_learn__moves_each_stage_towards_what_it_took(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    fl_live_stage live[2] = {{.n_steps = 20, .compute_us = 144.0 * 1.5},
                             {.n_steps = 20, .compute_us = 144.0}};
    fl_profile_learn(&r.profile, &r.input, &r.plan, live);
    /* 20 steps against measuring, which is worth 20: half of the way. */
    assert_true(fabs(r.profile.layer[0].fwd_us - 1.25) < 1e-9);
    assert_true(fabs(r.profile.layer[2].bwd_us - 2.5) < 1e-9);
    assert_true(r.profile.layer[0].frozen_us == 0.5);
    assert_true(r.profile.layer[3].fwd_us == 1.0);
    assert_int_equal(r.profile.live_steps, 20);
    fl_model_destroy(&r.model);
}

/* What was right stays right, and what was wrong comes right. */
static void test_learn__converges(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    fl_live_stage live[2] = {{.n_steps = 64, .compute_us = 288.0},
                             {.n_steps = 64, .compute_us = 72.0}};
    for (int i = 0; i < 100; i++) {
        fl_profile_learn(&r.profile, &r.input, &r.plan, live);
    }
    assert_true(fabs(r.profile.layer[1].fwd_us - 2.0) < 1e-3);
    assert_true(fabs(r.profile.layer[5].bwd_us - 1.0) < 1e-3);
    fl_model_destroy(&r.model);
}

/* A frozen layer's steps tell of its forward alone. */
static void test_learn__knows_what_is_frozen(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    r.plan.F = 1; /* layers 0 .. 2: the embedding and block 1 */
    fl_live_stage live[2] = {{.n_steps = 20, .compute_us = 24.0 * 2.0},
                             {.n_steps = 20, .compute_us = 144.0}};
    fl_profile_learn(&r.profile, &r.input, &r.plan, live);
    assert_true(fabs(r.profile.layer[0].frozen_us - 0.75) < 1e-9);
    assert_true(r.profile.layer[0].fwd_us == 1.0 && r.profile.layer[0].bwd_us == 2.0);
    fl_model_destroy(&r.model);
}

/* A worker that was stopped for a while, or a step or two, must not spoil what is known. */
static void test_learn__passes_over_what_is_odd(void **state)
{
    (void)state;
    static rig r;
    rig_init(&r);
    fl_profile before = r.profile;
    fl_live_stage live[2] = {{.n_steps = 20, .compute_us = 144.0 * 4.0},
                             {.n_steps = 20, .compute_us = 0.0}};
    fl_profile_learn(&r.profile, &r.input, &r.plan, live);
    assert_memory_equal(r.profile.layer, before.layer, sizeof before.layer);
    live[0] = live[1] = (fl_live_stage){.n_steps = 4, .compute_us = 200.0};
    fl_profile_learn(&r.profile, &r.input, &r.plan, live);
    assert_memory_equal(r.profile.layer, before.layer, sizeof before.layer);
    fl_model_destroy(&r.model);
}

/* The memory of captured work: a run's first report takes the place of what earlier runs left,
 * later ones of the run can only raise it. */
static void test_learn__keeps_the_memory_of_graphs(void **state)
{
    (void)state;
    static fl_profile p;
    p.graph_layer_bytes = 9000;
    fl_profile_learn_graphs(&p, 3, 2, 6001, true);
    assert_int_equal(p.graph_layer_bytes, 1001);
    fl_profile_learn_graphs(&p, 3, 2, 600, false);
    assert_int_equal(p.graph_layer_bytes, 1001);
    fl_profile_learn_graphs(&p, 1, 1, 2000, false);
    assert_int_equal(p.graph_layer_bytes, 2000);
}

static void test_tuned__remembers_the_newest(void **state)
{
    (void)state;
    static fl_profile p;
    for (int i = 0; i < FL_MAX_TUNED + 1; i++) {
        fl_profile_remember(&p, &(fl_tuned){.batch = 8, .F = i, .K = 2, .R = 1, .M = i + 1});
    }
    assert_int_equal(p.n_tuned, FL_MAX_TUNED);
    assert_null(fl_profile_tuned(&p, 8, 0, 2, 1)); /* the oldest made room */
    assert_int_equal(fl_profile_tuned(&p, 8, 5, 2, 1)->M, 6);
    fl_profile_remember(&p, &(fl_tuned){.batch = 8, .F = 5, .K = 2, .R = 1, .M = 9});
    assert_int_equal(p.n_tuned, FL_MAX_TUNED);
    assert_int_equal(fl_profile_tuned(&p, 8, 5, 2, 1)->M, 9);
    assert_null(fl_profile_tuned(&p, 9, 5, 2, 1));
    assert_null(fl_profile_tuned(&p, 8, 5, 1, 1));
    assert_null(fl_profile_tuned(&p, 8, 5, 2, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_learn__moves_each_stage_towards_what_it_took),
        cmocka_unit_test(test_learn__converges),
        cmocka_unit_test(test_learn__knows_what_is_frozen),
        cmocka_unit_test(test_learn__passes_over_what_is_odd),
        cmocka_unit_test(test_learn__keeps_the_memory_of_graphs),
        cmocka_unit_test(test_tuned__remembers_the_newest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
