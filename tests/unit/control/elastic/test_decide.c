/* From a policy's wish to the plan that is carried out. pipe/plan/decision.c decides
 * (test_decision); here the controller fills its input from the run, and reports the decision. The
 * controller is real, the run is only its numbers. */
#include "control/elastic/elastic.h"
#include "nn/model.h"
#include "pipe/cost/memory/memory.h"
#include "pipe/cost/plan.h"
#include "support/data/toy.h"
#include "support/folder.h"
#include "support/lines.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { WORKERS = 2, BLOCKS = 6, LAYERS_MAX = 32, STEPS = 2000, DUE = 10, LEAD = 3 };

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
    fl_run_stats stats;
    fl_phase phase;
    fl_run_facts facts;
    fl_event_log log;
    fl_elastic elastic;
} rig;

static void make_input(rig *r)
{
    fl_dataset data;
    fl_shape shape;
    int64_t n_targets;
    assert_int_equal(fl_toy_model(BLOCKS, 0.0f, &r->model), FL_OK);
    assert_int_equal(fl_toy_dataset(64, &data), FL_OK);
    assert_int_equal(data.ops->max_shape(data.self, &shape, &n_targets), FL_OK);
    assert_int_equal(
        fl_memory_measure(r->model, &(fl_sample_shape){shape, 1, FL_I32}, 1, r->memory), FL_OK);
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

/* A run of K stages and R replicas, F blocks frozen, whose policy asks for `wanted` after DUE of
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
    r->facts = (fl_run_facts){.options = &r->options,
                              .plan = &r->elastic.plan,
                              .phase = &r->phase,
                              .stats = &r->stats,
                              .n_workers = WORKERS};
    r->elastic.run = &r->facts;
    r->elastic.log = &r->log;
    r->elastic.job = &r->job;
    r->elastic.plan = r->plan;
    fl_run_stats_init(&r->stats, n_steps * 16, 16, n_steps, 1, false);
    r->stats.steps = DUE + 2; /* reports may come in some time after the norms */
    r->elastic.due = (fl_due_steps){.job = &r->job,
                                    .steps_per_epoch = r->stats.steps_per_epoch,
                                    .n_steps = n_steps,
                                    .lead = LEAD};
    fl_decide_close(&r->elastic);
    assert_int_equal(fl_decide_open(&r->elastic), FL_OK);
    for (int i = 0; i < fl_frozen_layers(r->model, F); i++) {
        r->elastic.decide.parked[i] = 0; /* the keeper of their moments */
    }
    r->elastic.decide.started = true;
    r->elastic.decide.due_at = DUE;
}

static int set_up(void **state)
{
    rig *r = calloc(1, sizeof *r);
    assert_non_null(r);
    make_folder(r->dir);
    r->dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY);
    r->out = tmpfile();
    assert_int_equal(fl_event_log_open(&r->log, r->dir_fd, r->out, &r->elastic.plan), FL_OK);
    make_input(r);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_decide_close(&r->elastic);
    fl_event_log_close(&r->log);
    fl_model_destroy(&r->model);
    fclose(r->out);
    close(r->dir_fd);
    int removed = remove_folder(r->dir);
    free(r);
    return removed;
}

static bool decide(rig *r, fl_plan *next)
{
    char why[512];
    assert_int_equal(fl_decide_due(&r->elastic), DUE + LEAD);
    bool carried_out = fl_decide_next(&r->elastic, next, why, sizeof why);
    assert_true(!carried_out || strcmp(why, r->elastic.decide.policy.why) == 0);
    return carried_out;
}

static const fl_decision *decision_of(const rig *r)
{
    return &r->elastic.decide.decision;
}

/* The newest event of that name, which the caller deletes with *all. */
static const json_t *event_of(const rig *r, const char *name, json_t **all)
{
    char text[64];
    snprintf(text, sizeof text, "\"%s\"", name);
    *all = lines_with(r->dir, "events.jsonl", text);
    int n = length(*all);
    assert_true(n > 0);
    return json_array_get(*all, (size_t)n - 1);
}

static void check_considered(const rig *r, const char *choice)
{
    json_t *all;
    const json_t *e = event_of(r, "plan.considered", &all);
    assert_string_equal(json_string_value(json_object_get(e, "choice")), choice);
    assert_string_equal(json_string_value(json_object_get(e, "why")), decision_of(r)->why);
    assert_int_equal(length(json_object_get(e, "candidates")), decision_of(r)->n_options);
    assert_true(json_number_value(json_object_get(e, "stay_step_ms")) > 0.0);
    json_decref(all);
}

/* Would catch: a policy that is not called, a decision from numbers that are not the run's, a plan
 * other than the chosen one. */
static void test_decide__carries_out_what_is_chosen(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    assert_true(decide(r, &next));
    const fl_decision *d = decision_of(r);
    assert_int_equal(d->step, DUE + LEAD);
    assert_int_equal(d->left, STEPS - DUE - LEAD);
    assert_int_equal(d->wanted, 4);
    assert_true(d->chosen >= 0);
    assert_memory_equal(&next, &d->option[d->chosen].plan, sizeof next);
    assert_string_equal(d->option[d->chosen].name, "repack"); /* no bubble */
    check_considered(r, "repack");
    assert_int_equal(fl_decide_due(&r->elastic), 0); /* once */
}

/* Would catch: two runs of one job that choose differently because one of them was slower. */
static void test_decide__tells_what_the_run_measures_and_does_not_go_by_it(void **state)
{
    rig *r = *state;
    fl_plan next;
    begin(r, 2, 1, 0, 4, STEPS);
    assert_true(decide(r, &next));
    const fl_decision before = *decision_of(r);
    double predicted = fl_measure_predict_ms(&r->elastic, &r->plan);
    r->elastic.decide.due_at = DUE;
    for (int i = 0; i < DUE; i++) {
        r->stats.window_ms[i] = 5.0 * predicted;
    }
    r->stats.n_window = r->stats.steps = DUE;
    assert_true(decide(r, &next));
    assert_memory_equal(decision_of(r), &before, sizeof before);
    json_t *all;
    const json_t *e = event_of(r, "plan.considered", &all);
    assert_true(fabs(json_number_value(json_object_get(e, "measured_by_predicted")) - 5.0) < 1e-3);
    json_decref(all);
}

/* A frozen layer that takes longer than one that trains: the policy's wish is not carried out, and
 * the event and the terminal give both numbers. By hand it is carried out, and the event has the
 * price. */
static void test_decide__what_is_slower_is_only_done_by_hand(void **state)
{
    rig *r = *state;
    fl_plan next = {0};
    char line[1024] = "";
    r->job.elastic.enabled = false;
    for (int i = 0; i < r->profile.n_layers; i++) {
        r->profile.layer[i].frozen_us = 100.0;
    }
    begin(r, 2, 1, 0, 4, STEPS);
    assert_false(decide(r, &next));
    assert_int_equal(next.K, 0);
    check_considered(r, "stay");
    const fl_decision *d = decision_of(r);
    assert_true(d->option[0].step_ms > d->stay_ms);
    assert_non_null(strstr(d->why, "without freezing a step takes"));
    rewind(r->out);
    assert_non_null(fgets(line, sizeof line, r->out));
    assert_non_null(strstr(line, "F stays 0: F=4 would not pay over the 1987 steps that remain"));
    assert_non_null(fgets(line, sizeof line, r->out));
    assert_non_null(strstr(line, "ms a step with it"));

    assert_int_equal(fl_decide_by_hand(&r->elastic, 4, "ctl freeze 4", &next), FL_OK);
    assert_int_equal(next.F, 4);
    check_considered(r, "keep");
    assert_non_null(strstr(d->why, "slower than the"));
}

static int64_t largest(const rig *r, const fl_plan *plan)
{
    int64_t most = 0;
    for (int s = 0; s < plan->K; s++) {
        fl_stage_memory m;
        assert_int_equal(fl_plan_memory(&r->input, plan, s, &m), FL_OK);
        most = m.total_bytes > most ? m.total_bytes : most;
    }
    return most;
}

/* Blocks that thaw need memory. Without it F does not change, and a manual request is refused with
 * the reason. */
static void test_decide__refuses_what_does_not_fit(void **state)
{
    rig *r = *state;
    fl_plan next;
    r->job.pipe.k = 1;
    r->job.autodp.r = 2;
    begin(r, 1, 2, 4, 0, STEPS);
    r->job.devices.memory_bytes = largest(r, &r->plan);
    assert_false(decide(r, &next));
    check_considered(r, "stay");
    assert_int_equal(fl_decide_by_hand(&r->elastic, 0, "ctl thaw 0", &next), FL_EBUDGET);
    assert_non_null(strstr(fl_errmsg(), "ctl thaw 0: no plan is possible: devices.memory"));
    /* A plan that somebody else asks for is held to the same. */
    fl_plan thawed = r->plan;
    thawed.F = 0;
    assert_int_equal(fl_decide_check_room(&r->elastic, &thawed), FL_EBUDGET);
    assert_int_equal(fl_decide_check_room(&r->elastic, &r->plan), FL_OK);
}

/* ---- when a worker has joined ---- */

/* Would catch: a run without the elastic controller that stays smaller than it began, returns too
 * early, or ends up on more workers than it had. */
static void test_decide__returns_to_the_grid_of_the_run(void **state)
{
    rig *r = *state;
    fl_plan next;
    char why[512];
    begin(r, 1, 1, 2, 2, STEPS);
    r->job.elastic.enabled = false;
    r->elastic.k = 1;
    r->elastic.r = 2;
    r->elastic.usable.drained[0] = true;
    assert_false(fl_decide_joined(&r->elastic, 1, false, &next, why, sizeof why));
    r->elastic.usable.drained[0] = false;
    assert_true(fl_decide_joined(&r->elastic, 1, false, &next, why, sizeof why));
    assert_int_equal(next.K, 1);
    assert_int_equal(next.R, 2);
    assert_int_equal(next.F, 2);
    assert_string_equal(why, "worker 1 has joined: K=1 x R=2 x M=2 as before workers left the run");
    r->elastic.r = 1;
    assert_false(fl_decide_joined(&r->elastic, 1, false, &next, why, sizeof why));
}

/* Would catch: a plan that does not pay for itself, a decision that is not recorded. */
static void test_decide__takes_the_best_plan_for_more_workers(void **state)
{
    rig *r = *state;
    fl_plan next;
    char why[512];
    begin(r, 2, 1, 0, 0, STEPS);
    assert_true(fl_decide_joined(&r->elastic, 1, false, &next, why, sizeof why));
    assert_int_equal(next.K * next.R, 2);
    assert_int_equal(next.R, 2);
    assert_non_null(strstr(why, "worker 1 has joined: repack: "));
    check_considered(r, "repack");
    begin(r, 2, 1, 0, 0, DUE + 3);
    assert_false(fl_decide_joined(&r->elastic, 1, false, &next, why, sizeof why));
    check_considered(r, "stay");
}

/* After a loss the pool decides whether K and R can stay. */
static void test_decide__keeps_the_grid_while_there_are_enough_workers(void **state)
{
    rig *r = *state;
    fl_worker_pool usable = {.limit = 0};
    fl_job job = r->job;
    begin(r, 1, 2, 0, 0, STEPS);
    r->elastic.k = 1;
    r->elastic.r = 2;
    fl_decide_grid(&r->elastic, &usable, &job);
    assert_true(job.pipe.k == 1 && job.autodp.r == 2);
    usable.drained[1] = true;
    fl_decide_grid(&r->elastic, &usable, &job);
    assert_true(job.pipe.k == FL_JOB_AUTO && job.autodp.r == FL_JOB_AUTO);
}

int main(void)
{
#define IN_A_RIG(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        IN_A_RIG(test_decide__returns_to_the_grid_of_the_run),
        IN_A_RIG(test_decide__takes_the_best_plan_for_more_workers),
        IN_A_RIG(test_decide__keeps_the_grid_while_there_are_enough_workers),
        IN_A_RIG(test_decide__carries_out_what_is_chosen),
        IN_A_RIG(test_decide__tells_what_the_run_measures_and_does_not_go_by_it),
        IN_A_RIG(test_decide__what_is_slower_is_only_done_by_hand),
        IN_A_RIG(test_decide__refuses_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
