/* What to do about a frost line that has moved: which ways there are, what each costs, which one is
 * taken. The controller is real, the run it decides about is only its numbers. */
#include "control/controller/parts.h"
#include "device/alloc.h"
#include "nn/model.h"
#include "nn/optimizer.h"
#include "pipe/plan/memory.h"
#include "pipe/plan/migrate_schedule.h"
#include "pipe/plan/plan.h"
#include "support/folder.h"
#include "support/toy.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 2, BLOCKS = 6, LAYERS_MAX = 32, STEPS = 2000, DUE = 10 };

typedef struct rig {
    char dir[FOLDER_SIZE];
    int dir_fd;
    FILE *out;
    fl_model *model;
    fl_job job;
    fl_profile profile;
    fl_layer_memory memory[LAYERS_MAX];
    fl_plan_input input;
    fl_plan plan;
    fl_controller_options options;
    fl_controller controller;
} rig;

static void make_input(rig *r)
{
    fl_dataset data;
    fl_shape shape;
    int64_t n_targets;
    assert_int_equal(fl_toy_model(BLOCKS, 0.0f, &r->model), FL_OK);
    assert_int_equal(fl_toy_dataset(64, &data), FL_OK);
    assert_int_equal(data.ops->max_shape(data.self, &shape, &n_targets), FL_OK);
    assert_int_equal(fl_memory_measure(r->model, &shape, 1, r->memory), FL_OK);
    fl_dataset_destroy(&data);
    r->profile = (fl_profile){.n_layers = fl_model_n_layers(r->model),
                              .link_us = 1.0,
                              .link_bytes_per_us = 1e3,
                              .reduce_bytes_per_us = 1e3};
    for (int i = 0; i < r->profile.n_layers; i++) {
        r->profile.layer[i] = (fl_layer_cost){.fwd_us = 10.0,
                                              .bwd_us = 20.0,
                                              .out_bytes = 64,
                                              .n_params = fl_model_layer_n_params(r->model, i)};
    }
    fl_job_defaults(&r->job);
    r->job.freeze.policy = FL_FREEZE_SCHEDULE;
    r->job.freeze.start = (fl_period){.steps = DUE};
    r->job.freeze.every = (fl_period){.steps = STEPS};
    r->job.freeze.keep = 1;
    r->job.freeze.n_list = 1;
    r->job.train.batch = 16;
    r->job.pipe.m = 2;
    r->job.devices.memory_bytes = (int64_t)1 << 30;
    r->input = (fl_plan_input){.model = r->model,
                               .job = &r->job,
                               .profile = &r->profile,
                               .memory_one = r->memory,
                               .n_workers = WORKERS,
                               .generation = 1};
}

/* A run of K stages and R replicas, F blocks frozen, that is to have `wanted` frozen after DUE of
 * n_steps steps. */
static void begin(rig *r, int K, int R, int F, int wanted, int64_t n_steps)
{
    fl_job fixed = r->job;
    fl_plan_input input = r->input;
    fixed.pipe.k = K;
    fixed.autodp.r = R;
    fixed.devices.memory_bytes = (int64_t)1 << 40;
    input.job = &fixed;
    input.F = F;
    assert_int_equal(fl_plan_choose(&input, &r->plan, NULL, 0, NULL), FL_OK);
    r->job.freeze.list[0] = wanted;
    r->options = (fl_controller_options){.job = &r->job,
                                         .plan = &r->plan,
                                         .plan_input = &r->input,
                                         .n_steps = n_steps,
                                         .n_epochs = 1};
    r->controller.options = &r->options;
    r->controller.plan = r->plan;
    r->controller.n_workers = WORKERS;
    fl_progress_init(&r->controller.progress, r->out, &r->plan);
    fl_run_stats_init(&r->controller.stats, n_steps * 16, 16, n_steps, 1, false);
    r->controller.stats.steps = DUE;
    fl_decide_close(&r->controller);
    assert_int_equal(fl_decide_open(&r->controller), FL_OK);
    for (int i = 0; i < fl_frozen_layers(r->model, F); i++) {
        r->controller.decide.parked[i] = 0; /* who kept the moments when they froze */
    }
    r->controller.decide.started = true;
    r->controller.decide.due_at = DUE;
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = fopen("/dev/null", "w");
    assert_int_equal(fl_runfiles_open(&r->controller.files, r->dir_fd), FL_OK);
    make_input(r);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_decide_close(&r->controller);
    fl_runfiles_close(&r->controller.files);
    fl_model_destroy(&r->model);
    fclose(r->out);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

static void assert_near(double a, double b)
{
    assert_true(fabs(a - b) <= 1e-6 * fabs(b));
}

static bool decide(rig *r, fl_plan *next)
{
    char why[512];
    return fl_decide_next(&r->controller, next, why, sizeof why);
}

static const fl_decide_option *named(const rig *r, const char *name)
{
    const fl_decision *d = &r->controller.decide.decision;
    for (int i = 0; i < d->n_options; i++) {
        if (strcmp(d->option[i].name, name) == 0) {
            return &d->option[i];
        }
    }
    fail_msg("%s was not considered", name);
    return NULL;
}

static const char *chosen(const rig *r)
{
    const fl_decision *d = &r->controller.decide.decision;
    return d->chosen < 0 ? "nothing" : d->option[d->chosen].name;
}

/* Each way is priced by what the planner predicts and by the bytes that it moves, and the cheapest
 * over the steps that remain is taken. Would catch: a price left out, a choice by step time alone.
 */
static void test_decide__prices_every_way(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    assert_true(decide(r, &next));
    const fl_decision *d = &r->controller.decide.decision;
    assert_int_equal(d->left, STEPS - DUE);
    assert_int_equal(d->wanted, 4);
    assert_true(d->ratio == 1.0); /* no step has been measured */
    double least = INFINITY;
    int best = -1;
    for (int i = 0; i < d->n_options; i++) {
        const fl_decide_option *o = &d->option[i];
        fl_plan_input input = r->input;
        input.F = 4;
        assert_int_equal(o->status, FL_OK);
        assert_int_equal(o->plan.F, 4);
        assert_near(o->step_ms, fl_plan_predict(&input, &o->plan, NULL) * 1e-3);
        assert_near(o->cost_ms, r->controller.decide.fixed_ms + (double)o->move_bytes / 1e6);
        double total = o->step_ms * (double)d->left + o->cost_ms;
        best = total < least ? i : best;
        least = total < least ? total : least;
    }
    assert_int_equal(named(r, "keep")->move_bytes, 0);
    assert_true(named(r, "repack")->move_bytes > 0);
    assert_int_equal(best, d->chosen);
    assert_string_equal(chosen(r), "repack"); /* no bubble */
    assert_true(next.K == 1 && next.R == 2 && next.F == 4);
    assert_true(named(r, "repack")->step_ms < named(r, "keep")->step_ms);
}

/* Would catch: a change that costs more than the rest of the run can bring back. */
static void test_decide__what_does_not_pay_keeps(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, DUE + 2);
    r->profile.link_bytes_per_us = 0.01;
    assert_true(decide(r, &next));
    assert_string_equal(chosen(r), "keep");
    assert_true(named(r, "repack")->step_ms < named(r, "keep")->step_ms);
    assert_true(next.K == 2 && next.R == 1 && next.F == 4);
    assert_memory_equal(next.first, r->plan.first, 3 * sizeof(int));
}

static void test_decide__without_elasticity_only_the_line_moves(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    r->job.elastic.enabled = false;
    assert_true(decide(r, &next));
    assert_int_equal(r->controller.decide.decision.n_options, 1);
    assert_string_equal(chosen(r), "keep");
}

/* Would catch: predictions that are not held against what the run shows. */
static void test_decide__what_is_measured_corrects_what_is_predicted(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    double predicted = fl_decide_predict_ms(&r->controller, &r->plan);
    for (int i = 0; i < DUE; i++) {
        r->controller.stats.window_ms[i] = 5.0 * predicted;
    }
    r->controller.stats.n_window = DUE;
    assert_true(decide(r, &next));
    assert_near(r->controller.decide.decision.ratio, 5.0);
    assert_near(r->controller.decide.decision.stay_ms, 5.0 * predicted);
}

static int64_t largest(const rig *r, const fl_plan *plan)
{
    int64_t most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory m;
        fl_plan_memory(&r->input, plan, s, &m);
        most = m.total_bytes > most ? m.total_bytes : most;
    }
    return most;
}

/* More blocks frozen under the same cuts need no room for a second copy of anything; blocks that
 * thaw need room, and without it the line stays. */
static void test_decide__memory_refuses_only_what_does_not_fit(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    r->job.pipe.k = 2;
    r->job.autodp.r = 1;
    r->job.devices.memory_bytes = largest(r, &r->plan); /* to the byte */
    assert_true(decide(r, &next));
    assert_int_equal(named(r, "keep")->status, FL_OK);

    r->job.pipe.k = 1;
    r->job.autodp.r = 2;
    r->job.devices.memory_bytes = (int64_t)1 << 30;
    begin(r, 1, 2, 4, 0, STEPS);
    r->job.devices.memory_bytes = largest(r, &r->plan);
    assert_false(decide(r, &next));
    assert_string_equal(chosen(r), "nothing");
    for (int i = 0; i < r->controller.decide.decision.n_options; i++) {
        const fl_decide_option *o = &r->controller.decide.decision.option[i];
        assert_int_equal(o->status, FL_EBUDGET);
        assert_non_null(strstr(o->why_not, "devices.memory"));
    }
    /* A plan that somebody else asks for is held to the same. */
    fl_plan thawed = r->plan;
    thawed.F = 0;
    assert_int_equal(fl_decide_check_room(&r->controller, &thawed), FL_EBUDGET);
    assert_int_equal(fl_decide_check_room(&r->controller, &r->plan), FL_OK);
}

/* The running plan goes before the next one comes: both need not fit. */
static void test_decide__plans_need_not_fit_side_by_side(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 5, STEPS);
    int64_t now = largest(r, &r->plan);
    r->job.devices.memory_bytes = now;
    fl_plan whole = r->plan;
    whole.K = 1;
    whole.R = 2;
    whole.first[1] = whole.n_layers;
    assert_true(largest(r, &whole) > now); /* does not fit before it is frozen */
    assert_true(decide(r, &next));
    assert_string_equal(chosen(r), "repack");
    assert_true(next.K == 1 && next.R == 2);
    assert_true(largest(r, &next) <= now && largest(r, &next) + largest(r, &r->plan) > now);
}

int main(void)
{
#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_decide__prices_every_way),
        IN_A_RIG(test_decide__what_does_not_pay_keeps),
        IN_A_RIG(test_decide__without_elasticity_only_the_line_moves),
        IN_A_RIG(test_decide__what_is_measured_corrects_what_is_predicted),
        IN_A_RIG(test_decide__memory_refuses_only_what_does_not_fit),
        IN_A_RIG(test_decide__plans_need_not_fit_side_by_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
