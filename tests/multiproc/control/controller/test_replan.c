/* A lost worker is started again and joins, or one stood by for it: it gets work without a request.
 * Would catch: a worker that stands by for ever, a plan that stays smaller than the job asks for, a
 * step lost or repeated by the changes, a decision without a reason. */
#include "device/system/clock.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/live_run.h"
#include "support/runs/restart.h"
#include "support/runs/runs.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MORE = 20 /* steps on the last plan */ };

static const double TOLERANCE = 1e-5;

#define TRAINING                                                                                   \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "train.epochs", "9000",    \
        "autodp.bucket", "16KiB", "fault.detect", "4s", "fault.on_loss", "continue", "pipe.tune",  \
        "false"

/* ---- a model of which a sample takes its time, without using a processor ---- */

enum { SAMPLE_US = 1000 };

static int64_t sample_us = SAMPLE_US;

static fl_status slow_forward(void *self, fl_exec *x, const fl_tensor *in, fl_tensor *out)
{
    (void)self;
    nap(sample_us * fl_exec_batch(x)->n_samples);
    return fl_convert(
        x, &(fl_convert_args){.in = in->data, .y = out->data, .n = in->n_tokens * in->width});
}

static fl_status slow_backward(void *self, fl_exec *x, const fl_tensor *grad, fl_tensor *grad_in)
{
    (void)self;
    if (grad_in == NULL) {
        return FL_OK;
    }
    return fl_convert(x, &(fl_convert_args){.in = grad->data,
                                            .y = grad_in->data,
                                            .n = grad->n_tokens * grad->width});
}

static const fl_layer_ops slow = {.head = FL_TABLE_HEAD(fl_layer_ops),
                                  .kind = "slow",
                                  .shape = fl_toy_same_shape,
                                  .params = fl_toy_no_params,
                                  .forward = slow_forward,
                                  .backward = slow_backward};

static fl_status use_slow_model(fl_job *job, fl_model **model, fl_dataset *data)
{
    fl_layer layer;
    fl_loss loss;
    (void)job;
    (void)data;
    fl_model_destroy(model);
    must(fl_model_create("slow", model));
    must(fl_layer_patch_embed(1, 14, 14, 7, 24, &layer));
    must(fl_model_add(*model, 1, layer));
    must(fl_layer_attention(
        &(fl_attention_config){.dim = 24, .heads = 3, .dropout = 0.1f, .depth = 4}, &layer));
    must(fl_model_add(*model, 1, layer));
    must(fl_layer_mlp(
        &(fl_mlp_config){
            .dim = 24, .hidden = 48, .dropout = 0.1f, .depth = 4, .activation = FL_ACT_GELU_TANH},
        &layer));
    must(fl_model_add(*model, 1, layer));
    must(fl_model_add(*model, 1, (fl_layer){&slow, NULL}));
    must(fl_layer_classifier(24, 4, &layer));
    must(fl_model_add(*model, FL_BLOCK_HEAD, layer));
    must(fl_loss_cross_entropy(4, &loss));
    must(fl_model_set_loss(*model, loss));
    return FL_OK;
}

/* ---- runs ---- */

static live_run start(const char *const *sets)
{
    assert_int_equal(make_root(NULL), 0);
    return live_start_again(&(scenario){
        .name = "run", .sets = sets, .n_samples = LIVE_SAMPLES, .adjust = use_slow_model});
}

static void kill_worker(live_run *run, int rank)
{
    live_await_step(run, 5);
    assert_int_equal(kill(live_process_of(run, rank), SIGKILL), 0);
    while (count_events(run->dir, "run.recovered", "") == 0) {
        live_await_step(run, live_status(run, "step") + 1);
    }
}

/* K and R of the steps; 100 K + R. */
static int grid_of_step(const json_t *steps, int step)
{
    const json_t *line = json_array_get(steps, (size_t)step);
    return 100 * number(line, "k") + number(line, "r");
}

/* How many steps had the grid of the first one. */
static int count_steps_like_first(const json_t *steps, int n_steps)
{
    int n = 0;
    for (int i = 0; i < n_steps; i++) {
        n += grid_of_step(steps, i) == grid_of_step(steps, 0);
    }
    return n;
}

/* The run comes to an end of its own after some more steps: it began and ended with the same K and
 * R, and had others between, or, with `always`, never. Its losses are those of one worker. */
static void check_run(live_run *run, int k, int r, bool always)
{
    int n_steps = (int)live_status(run, "step") + MORE;
    live_await_step(run, n_steps);
    live_interrupt(run);
    json_t *steps = lines_with(run->dir, "steps.jsonl", "");
    assert_int_equal(grid_of_step(steps, 0), 100 * k + r);
    assert_int_equal(grid_of_step(steps, n_steps - 1), 100 * k + r);
    assert_int_equal(count_steps_like_first(steps, n_steps) == n_steps, always);
    json_decref(steps);
    double *losses = live_take_losses(run, n_steps);
    live_run alone = start((const char *const[]){TRAINING, "devices.count", "1", "pipe.k", "1",
                                                 "autodp.r", "1", "pipe.m", "1", NULL});
    live_await_step(&alone, n_steps);
    live_interrupt(&alone);
    double *one = live_take_losses(&alone, n_steps);
    assert_true(worst_difference(losses, one, 0, n_steps) <= TOLERANCE);
    free(losses);
    free(one);
}

/* ---- without the elastic controller: the grid that the run had ---- */

static void check_return(const char *devices, const char *k, int last)
{
    live_run run =
        start((const char *const[]){TRAINING, "elastic.enabled", "false", "devices.count", devices,
                                    "pipe.k", k, "autodp.r", "2", "pipe.m", "2", NULL});
    kill_worker(&run, last);
    live_await_state(&run, last, "active");
    assert_int_equal(count_events(run.dir, "worker.restarted", ""), 1);
    assert_int_equal(count_events(run.dir, "worker.joined", ""), 1);
    assert_int_equal(count_events(run.dir, "transition.prepare", "as before workers left the run"),
                     1);
    check_run(&run, k[0] - '0', 2, false);
}

static void test_replan__two_replicas_again(void **state)
{
    (void)state;
    check_return("2", "1", 1);
}

static void test_replan__two_replicas_of_two_stages_again(void **state)
{
    (void)state;
    check_return("4", "2", 3);
}

/* Would catch: a spare device that is not started, or that is not used. */
static void test_replan__a_worker_that_stands_by_replaces_the_lost_one(void **state)
{
    (void)state;
    live_run run = start((const char *const[]){TRAINING, "elastic.enabled", "false",
                                               "devices.count", "3", "pipe.k", "1", "autodp.r", "2",
                                               "pipe.m", "2", "fault.restarts", "0", NULL});
    assert_int_equal(live_n_workers(&run), 3);
    live_await_state(&run, 2, "standby");
    kill_worker(&run, 1);
    live_await_state(&run, 2, "active");
    assert_int_equal(count_events(run.dir, "worker.restarted", ""), 0);
    check_run(&run, 1, 2, true);
}

/* Would catch: a run that returns to a plan which a person has replaced since. */
static void test_replan__what_a_person_has_asked_for_holds(void **state)
{
    (void)state;
    live_run run =
        start((const char *const[]){TRAINING, "elastic.enabled", "false", "devices.count", "2",
                                    "pipe.k", "1", "autodp.r", "2", "pipe.m", "2", NULL});
    live_await_step(&run, 5);
    live_do(&run, "scale", "{\"k\": 1, \"r\": 1}");
    live_await_step(&run, live_status(&run, "step") + 2);
    assert_int_equal(kill(live_process_of(&run, 1), SIGKILL), 0);
    live_await_state(&run, 1, "restarting");
    live_await_state(&run, 1, "standby");
    int64_t n_steps = live_status(&run, "step") + MORE;
    live_await_step(&run, n_steps);
    live_interrupt(&run);
    json_t *last = live_step(&run, n_steps - 1);
    assert_int_equal(number(last, "r"), 1);
    json_decref(last);
    assert_int_equal(count_events(run.dir, "worker.joined", ""), 1);
    assert_int_equal(count_events(run.dir, "transition.prepare", "workers left the run"), 0);
    live_clean(&run);
}

/* In shared memory: a worker that is started again waits at its beginning. */
static atomic_bool *holds;

static void hold_at_begin(const char *point, fl_worker_state *w)
{
    while (strcmp(point, "begin") == 0 && w->birth->incarnation > 1 && atomic_load(holds)) {
        nap(1000);
    }
}

/* Both workers are lost, one after the other: the run goes back to a snapshot that was taken with
 * one replica. Would catch: a run that has all its workers again and leaves one of them idle. */
static void test_replan__two_replicas_again_after_going_back(void **state)
{
    (void)state;
    holds = shared_memory(sizeof *holds);
    atomic_store(holds, true);
    assert_int_equal(make_root(NULL), 0);
    live_run run = live_start_again(&(scenario){
        .name = "run",
        .sets = JOB_SETS(TRAINING, "elastic.enabled", "false", "devices.count", "2", "pipe.k", "1",
                         "autodp.r", "2", "pipe.m", "2", "fault.snapshot", "4 steps"),
        .n_samples = LIVE_SAMPLES,
        .adjust = use_slow_model,
        .at_point = hold_at_begin});
    kill_worker(&run, 1);
    int n_taken = count_events(run.dir, "snapshot.taken", "");
    live_await_event(&run, "snapshot.taken", n_taken + 2);
    assert_int_equal(kill(live_process_of(&run, 0), SIGKILL), 0);
    atomic_store(holds, false);
    fl_ctl_client_close(&run.ctl);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (count_events(run.dir, "transition.done", "as before workers left the run") == 0) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(5000);
    }
    assert_int_equal(fl_ctl_client_open(run.dir, false, &run.ctl), FL_OK);
    assert_int_equal(count_events(run.dir, "run.resumed", "the snapshot in memory"), 1);
    check_run(&run, 1, 2, false);
}

/* A number of the status, below `part`. */
static double number_of_status(live_run *run, const char *part, const char *key)
{
    json_t *status = live_ask(run, "status", "{}");
    const json_t *value = json_object_get(json_object_get(status, part), key);
    assert_true(json_is_number(value));
    double number = json_number_value(value);
    json_decref(status);
    return number;
}

/* The run knows its only checkpoint. */
static void check_the_checkpoint(live_run *run)
{
    assert_true(number_of_status(run, "checkpoints", "written") == 1.0);
    assert_true(number_of_status(run, "checkpoints", "bytes") > 0.0);
    assert_true(number_of_status(run, "checkpoints", "seconds") > 0.0);
}

/* A lost worker is not started again, and the run is stopped. Would catch: a run that continues
 * from a checkpoint with the plan of the loss, although all devices are there, or forgets the loss
 * or the checkpoint. */
static void test_replan__two_replicas_again_after_a_resume(void **state)
{
    (void)state;
    scenario s = {.name = "run",
                  .sets = JOB_SETS(TRAINING, "elastic.enabled", "false", "devices.count", "2",
                                   "pipe.k", "1", "autodp.r", "2", "pipe.m", "2", "fault.restarts",
                                   "0", "checkpoint.every", "100000 steps"),
                  .n_samples = LIVE_SAMPLES,
                  .adjust = use_slow_model};
    assert_int_equal(make_root(NULL), 0);
    live_run run = live_start_again(&s);
    kill_worker(&run, 1);
    live_do(&run, "stop", "{}");
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    scenario_forget(&run.scenario);
    s.resumes = true;
    run = live_start_again(&s);
    live_await_event(&run, "transition.done", 2); /* the loss is the first */
    assert_int_equal(count_events(run.dir, "transition.done", "as before workers left the run"), 1);
    assert_int_equal(restart_recovery_number(&run, "losses"), 1);
    assert_int_equal(restart_recovery_number(&run, "recoveries"), 1);
    assert_true(number_of_status(&run, "recovery", "last_seconds") > 0.0);
    check_the_checkpoint(&run);
    check_run(&run, 1, 2, false);
}

/* A worker that a request has added, after the only checkpoint. Would catch: a run that forgets
 * either when it goes back. */
static void test_replan__an_added_worker_after_going_back(void **state)
{
    (void)state;
    live_run run = start((const char *const[]){
        TRAINING, "elastic.enabled", "false", "devices.count", "1", "devices.max", "2", "pipe.k",
        "1", "autodp.r", "1", "pipe.m", "2", "fault.snapshot", "none", NULL});
    live_await_step(&run, 3);
    live_do(&run, "checkpoint", "{}");
    live_await_event(&run, "checkpoint.written", 1);
    live_do(&run, "scale", "{\"k\": 1, \"r\": 2}");
    live_await_state(&run, 1, "active");
    int workers[] = {live_process_of(&run, 0), live_process_of(&run, 1)};
    assert_int_equal(kill(workers[0], SIGKILL), 0);
    assert_int_equal(kill(workers[1], SIGKILL), 0);
    fl_ctl_client_close(&run.ctl);
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (count_events(run.dir, "transition.done", "as before workers left the run") == 0) {
        assert_true(fl_left_ms(deadline_us) > 0);
        nap(5000);
    }
    assert_int_equal(fl_ctl_client_open(run.dir, false, &run.ctl), FL_OK);
    assert_int_equal(live_n_workers(&run), 2);
    check_the_checkpoint(&run);
    live_await_step(&run, live_status(&run, "step") + MORE);
    live_interrupt(&run);
    live_clean(&run);
}

/* ---- with the elastic controller: the best plan ---- */

/* Two replicas must be the best plan, however slow a busy machine measures their all-reduce: a
 * sample takes longer here. */
static void test_replan__the_best_plan_for_all(void **state)
{
    (void)state;
    sample_us = 20 * SAMPLE_US;
    live_run run = start((const char *const[]){TRAINING, "devices.count", "2", "pipe.k", "1",
                                               "pipe.m", "1", "pipe.profile", "none", NULL});
    kill_worker(&run, 1);
    live_await_state(&run, 1, "active");
    assert_int_equal(count_events(run.dir, "plan.considered", "\"choice\": \"repack\""), 1);
    assert_int_equal(count_events(run.dir, "transition.prepare", "worker 1 has joined: repack"), 1);
    check_run(&run, 1, 2, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replan__two_replicas_again),
        cmocka_unit_test(test_replan__two_replicas_of_two_stages_again),
        cmocka_unit_test(test_replan__a_worker_that_stands_by_replaces_the_lost_one),
        cmocka_unit_test(test_replan__what_a_person_has_asked_for_holds),
        cmocka_unit_test(test_replan__two_replicas_again_after_going_back),
        cmocka_unit_test(test_replan__two_replicas_again_after_a_resume),
        cmocka_unit_test(test_replan__an_added_worker_after_going_back),
        cmocka_unit_test(test_replan__the_best_plan_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
