/* A run that ends for lack of improvement. Would catch: another end under another plan, workers
 * that wait for an answer that never comes, a change of the plan that takes effect while they wait
 * for another answer, losses that depend on the waiting, a run without its last evaluation, and a
 * replay that ends elsewhere. */
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* 100 training samples, 10 steps an epoch; no evaluation is better by the margin of HOPELESS. */
enum { N_SAMPLES = 120, N_VALIDATION = 20, N_TEST = 30, PER_EPOCH = 10, EPOCHS = 6 };
#define PLAN(k, r, m) "pipe.k", k, "autodp.r", r, "pipe.m", m
#define BASE                                                                                       \
    "train.batch", "10", "train.lr", "1e-3", "devices.count", "3", "train.epochs", "6",            \
        "data.validation", "20", "pipe.tune", "false"
#define HOPELESS "train.stop_after", "2", "train.stop_margin", "10"

static json_t *last_event(const char *dir, const char *text)
{
    json_t *all = lines_with(dir, "events.jsonl", text);
    json_t *last = json_incref(json_array_get(all, json_array_size(all) - 1));
    json_decref(all);
    assert_non_null(last);
    return last;
}

/* It is finished, after this many steps, with a model, and with the test samples evaluated. */
static void check_end_at(const char *dir, int step, int best_step)
{
    char path[192];
    json_t *ending = last_event(dir, "\"run.ending\"");
    json_t *finished = last_event(dir, "\"run.finished\"");
    assert_int_equal(count_events(dir, "run.ending", ""), 1);
    assert_int_equal(number(ending, "last_step"), step);
    assert_int_equal(number(ending, "best_step"), best_step);
    assert_int_equal(number(finished, "steps"), step);
    assert_true(json_is_real(json_object_get(finished, "test_loss")));
    assert_true(json_is_real(json_object_get(finished, "validation_loss")));
    snprintf(path, sizeof path, "%s/model/model.safetensors", dir);
    assert_int_equal(access(path, R_OK), 0);
    json_decref(ending);
    json_decref(finished);
}

static void check_early_end(const char *dir, int step)
{
    json_t *ending = last_event(dir, "\"run.ending\"");
    json_t *evaluations = lines_with(dir, "events.jsonl", "\"event\": \"evaluation\"");
    check_end_at(dir, step, PER_EPOCH);
    assert_int_equal(number(ending, "step"), step);
    assert_int_equal(number(ending, "best_epoch"), 0);
    assert_string_equal(json_string_value(json_object_get(ending, "metric")), "validation_loss");
    assert_int_equal(length(evaluations), step / PER_EPOCH + 1);
    const json_t *last = json_array_get(evaluations, (size_t)(step / PER_EPOCH));
    assert_int_equal(number(last, "step"), step - 1);
    assert_int_equal(number(last, "test_samples"), N_TEST);
    assert_null(json_object_get(last, "validation_loss"));
    assert_int_equal(count_events(dir, "run.stopped", ""), 0);
    check_exactly_once(dir, step / PER_EPOCH, N_SAMPLES - N_VALIDATION);
    json_decref(ending);
    json_decref(evaluations);
}

static void test_early_stopping__ends_as_finished_and_changes_no_step(void **state)
{
    (void)state;
    scenario early = {.name = "early",
                      .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                      .more = JOB_SETS(HOPELESS),
                      .n_samples = N_SAMPLES};
    scenario whole = {
        .name = "whole", .sets = JOB_SETS(BASE, PLAN("2", "1", "2")), .n_samples = N_SAMPLES};
    scenario_run(&early);
    scenario_run(&whole);
    check_early_end(early.dir, 3 * PER_EPOCH);
    double *a = losses_of(&early, 3 * PER_EPOCH), *b = losses_of(&whole, EPOCHS * PER_EPOCH);
    assert_memory_equal(a, b, 3 * PER_EPOCH * sizeof *a);
    free(a);
    free(b);
}

/* A worker without a stage, and one that gets its stage at the very step at which the run ends. */
static void test_early_stopping__ends_at_the_same_step_under_every_plan(void **state)
{
    (void)state;
    static const fl_script_entry scripts[][2] = {
        {{.step = 15, .f = 1, .k = 1, .r = 3, .m = 1},
         {.step = 30, .f = 1, .k = 2, .r = 1, .m = 2}},
        {{.step = 29, .f = 1, .k = 1, .r = 2, .m = 1},
         {.step = 31, .f = 1, .k = 3, .r = 1, .m = 2}},
        {{.step = 30, .f = 0, .k = 1, .r = 3, .m = 1},
         {.step = 32, .f = 0, .k = 1, .r = 1, .m = 1}},
    };
    static const char *const names[] = {"a", "b", "c"};
    for (int i = 0; i < 3; i++) {
        scenario s = {.name = names[i],
                      .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                      .more = JOB_SETS(HOPELESS),
                      .script = scripts[i],
                      .n_script = 2,
                      .n_samples = N_SAMPLES};
        scenario_run(&s);
        check_early_end(s.dir, 3 * PER_EPOCH);
    }
}

/* Every evaluation is an improvement: the workers are told to go on after each, and changes of the
 * plan take effect at their steps, whether the workers wait there for the other answer or not. */
static void test_early_stopping__goes_on_while_the_run_improves(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 20, .f = 1, .k = 1, .r = 3, .m = 1},
                                             {.step = 31, .f = 1, .k = 2, .r = 1, .m = 2},
                                             {.step = 41, .f = 0, .k = 1, .r = 1, .m = 1}};
    scenario moving = {.name = "moving",
                       .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                       .more = JOB_SETS("train.stop_after", "1 epoch"),
                       .script = script,
                       .n_script = 3,
                       .n_samples = N_SAMPLES};
    scenario_run(&moving);
    assert_int_equal(count_events(moving.dir, "run.ending", ""), 0);
    json_t *done = lines_with(moving.dir, "events.jsonl", "\"transition.done\"");
    assert_int_equal(length(done), 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(number(json_array_get(done, (size_t)i), "step"), script[i].step);
    }
    free(losses_of(&moving, EPOCHS * PER_EPOCH));
    check_exactly_once(moving.dir, EPOCHS, N_SAMPLES - N_VALIDATION);
    json_decref(done);
}

/* Test samples where there are no validation samples; an end within an epoch; and all test samples
 * at the end, although evaluations use some. */
static void test_early_stopping__may_end_within_an_epoch(void **state)
{
    (void)state;
    scenario s = {.name = "within",
                  .sets = JOB_SETS(BASE, PLAN("1", "3", "1")),
                  .more = JOB_SETS(HOPELESS, "data.validation", "none", "train.evaluate_samples",
                                   "11", "train.evaluate_every", "7 steps", "train.stop_after",
                                   "8 steps", "train.metric", "accuracy"),
                  .n_samples = N_SAMPLES};
    scenario_run(&s);
    json_t *ending = last_event(s.dir, "\"run.ending\"");
    json_t *evaluations = lines_with(s.dir, "events.jsonl", "\"event\": \"evaluation\"");
    assert_string_equal(json_string_value(json_object_get(ending, "metric")), "test_accuracy");
    assert_int_equal(number(ending, "step"), 21);
    assert_int_equal(length(evaluations), 4);
    assert_int_equal(number(json_array_get(evaluations, 2), "test_samples"), 11);
    assert_int_equal(number(json_array_get(evaluations, 3), "test_samples"), N_TEST);
    assert_int_equal(number(json_array_get(evaluations, 3), "step"), 20);
    json_decref(ending);
    json_decref(evaluations);
}

static void prepare(const char *const *sets, fl_job *job, fl_model **model, fl_dataset *data)
{
    hush();
    fl_job_defaults(job);
    set_test_device(job);
    for (int i = 0; sets[i] != NULL; i += 2) {
        must(fl_job_set(job, sets[i], sets[i + 1]));
    }
    must(fl_toy_dataset(N_SAMPLES, data));
    must(fl_toy_model(4, 0.0f, model));
}

/* In a child: what the replay of `recorded` in `dir` returns. */
static void replay(const char *recorded, const char *dir, const char *const *sets)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        fl_job job;
        fl_model *model;
        fl_dataset data;
        prepare(sets, &job, &model, &data);
        must(fl_run_again(model, &data, &job, dir, recorded, NULL));
        _exit(0);
    }
    check_ended_well(child);
}

/* The events of one kind: events of several kinds may come in another order. */
static void compare_events(const char *dir, const char *again, const char *kind)
{
    static const char *const keys[] = {"step", "validation_loss", "test_loss", "train_loss"};
    json_t *a = lines_with(dir, "events.jsonl", kind);
    json_t *b = lines_with(again, "events.jsonl", kind);
    assert_true(length(a) > 0);
    assert_int_equal(length(a), length(b));
    for (size_t i = 0; i < json_array_size(a); i++) {
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            const json_t *x = json_object_get(json_array_get(a, i), keys[k]);
            const json_t *y = json_object_get(json_array_get(b, i), keys[k]);
            if (!((x == NULL && y == NULL) || json_equal(x, y))) {
                fail_msg("%s %zu: %s %.17g, again %.17g", kind, i, keys[k], json_number_value(x),
                         json_number_value(y));
            }
        }
    }
    json_decref(a);
    json_decref(b);
}

static void test_early_stopping__is_repeated(void **state)
{
    (void)state;
    static const fl_script_entry script[] = {{.step = 14, .f = 1, .k = 1, .r = 3, .m = 1}};
    const char *const *sets = JOB_SETS(BASE, PLAN("2", "1", "2"), HOPELESS, "train.evaluate_every",
                                       "7 steps", "train.stop_after", "8 steps");
    char again[200], command[600];
    scenario s = {
        .name = "first", .sets = sets, .script = script, .n_script = 1, .n_samples = N_SAMPLES};
    scenario_run(&s);
    snprintf(again, sizeof again, "%s-again", s.dir);
    replay(s.dir, again, sets);
    json_t *ending = last_event(again, "\"run.ending\"");
    assert_int_equal(number(ending, "step"), 21);
    assert_int_equal(count_events(again, "run.finished", "\"steps\": 21,"), 1);
    compare_events(s.dir, again, "\"evaluation\"");
    compare_events(s.dir, again, "\"epoch.finished\"");
    snprintf(command, sizeof command, FL_BINARY_DIR "/frostline diff %s %s >/dev/null", s.dir,
             again);
    assert_int_equal(system(command), 0);
    json_decref(ending);
}

/* As if it had been killed when its last checkpoint was durable. */
static void forget_the_end(const scenario *s)
{
    char command[600];
    snprintf(command, sizeof command,
             "cd %s && sed -i '/\"run.finished\"/d' events.jsonl && rm model/model.safetensors",
             s->dir);
    assert_int_equal(system(command), 0);
}

/* It may have evaluated both splits again, if the test samples were not among what was saved. */
static void check_same_end(const char *dir)
{
    check_end_at(dir, 3 * PER_EPOCH, PER_EPOCH);
    check_exactly_once(dir, 3, N_SAMPLES - N_VALIDATION);
}

/* Would catch: a run that trains for one more interval before it ends again, a resumed end without
 * weights, and a best value of one metric that another one is compared with. */
static void test_early_stopping__stays_at_its_end_when_resumed(void **state)
{
    (void)state;
    scenario s = {.name = "resumed",
                  .sets = JOB_SETS(BASE, PLAN("1", "2", "1"), "checkpoint.every", "8 steps"),
                  .more = JOB_SETS(HOPELESS),
                  .n_samples = N_SAMPLES};
    scenario_run(&s);
    s.resumes = true;
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    if (strstr(s.outcome->message,
               "the run ended early, after 30 steps: loss has not improved for 20 steps; --set "
               "train.stop_after=none, or more than 20 steps, makes it longer") == NULL) {
        fail_msg("%s", s.outcome->message);
    }
    scenario_forget(&s);
    forget_the_end(&s);
    scenario_run(&s);
    check_same_end(s.dir);
    s.more = JOB_SETS(HOPELESS, "train.stop_after", "3 epochs");
    scenario_run(&s);
    json_t *ending = last_event(s.dir, "\"run.ending\"");
    assert_int_equal(number(ending, "step"), 4 * PER_EPOCH);
    json_decref(ending);
    s.more = JOB_SETS(HOPELESS, "train.metric", "accuracy"); /* the first value is the best */
    scenario_run(&s);
    ending = last_event(s.dir, "\"run.ending\"");
    json_t *finished = last_event(s.dir, "\"run.finished\"");
    assert_int_equal(count_events(s.dir, "run.ending", ""), 2);
    assert_int_equal(number(finished, "steps"), EPOCHS * PER_EPOCH);
    check_exactly_once(s.dir, EPOCHS, N_SAMPLES - N_VALIDATION);
    json_decref(ending);
    json_decref(finished);
}

/* Its last checkpoint was asked for at the step after which the run ends, before the evaluation
 * that ends it. Would catch: a finished run that each resume ends once more. */
static void test_early_stopping__is_in_a_checkpoint_of_the_same_step(void **state)
{
    (void)state;
    scenario s = {.name = "same step",
                  .sets = JOB_SETS(BASE, PLAN("1", "2", "1"), "checkpoint.every", "30 steps"),
                  .more = JOB_SETS(HOPELESS),
                  .n_samples = N_SAMPLES};
    scenario_run(&s);
    assert_int_equal(count_events(s.dir, "checkpoint.written", ""), 1);
    s.resumes = true;
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    assert_non_null(strstr(s.outcome->message, "the run ended early, after 30 steps"));
    scenario_forget(&s);
    s.more = JOB_SETS(HOPELESS, "train.stop_after", "3 epochs");
    scenario_run(&s);
    json_t *ending = last_event(s.dir, "\"run.ending\"");
    assert_int_equal(number(ending, "step"), 4 * PER_EPOCH);
    check_exactly_once(s.dir, 4, N_SAMPLES - N_VALIDATION);
    json_decref(ending);
}

static fl_callback_answer stop_at_the_end(void *context, const fl_evaluation_result *evaluation)
{
    (void)context;
    return evaluation->steps_done == 3 * PER_EPOCH ? FL_STOP : FL_CONTINUE;
}

/* In a child: a program stops the run at the evaluation that ends it. */
static void stop_in_callback(const char *const *sets, char *run_dir, size_t size_bytes)
{
    fl_callbacks callbacks = {.on_evaluation = stop_at_the_end};
    fl_run_result result;
    fl_job job;
    fl_model *model;
    fl_dataset data;
    prepare(sets, &job, &model, &data);
    fl_status status = fl_run_with(model, &data, &job, &callbacks, &result);
    snprintf(run_dir, size_bytes, "%s", result.run_dir);
    _exit(status == FL_ESTOPPED ? 0 : 1);
}

static fl_status as_a_program(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)model;
    (void)data;
    job->model.kind = FL_MODEL_PROGRAM;
    job->data.kind = FL_DATA_PROGRAM;
    return FL_OK;
}

/* Would catch: an end in the report of a run that nothing in its files explains. */
static void test_early_stopping__is_told_after_a_stop_at_its_evaluation(void **state)
{
    (void)state;
    const char *const *sets = JOB_SETS(BASE, PLAN("1", "2", "1"), HOPELESS, "run.dir", root,
                                       "checkpoint.every", "1000 steps");
    char *run_dir = shared_memory(PATH_MAX);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        stop_in_callback(sets, run_dir, PATH_MAX);
    }
    check_ended_well(child);
    assert_int_equal(count_events(run_dir, "run.ending", ""), 0);
    scenario s = {.name = strrchr(run_dir, '/') + 1,
                  .sets = sets,
                  .n_samples = N_SAMPLES,
                  .adjust = as_a_program,
                  .resumes = true};
    scenario_run(&s);
    check_same_end(s.dir);
}

/* Of a step after which there are two, the second one is of the test samples. */
static void die_in_second_evaluation(fl_flight_kind kind, int rank, int64_t step)
{
    static int64_t last = -1;
    if (kind == FL_FLIGHT_EVALUATION && rank == 1) {
        if (step == last) {
            raise(SIGKILL);
        }
        last = step;
    }
}

/* Would catch: a loss during the evaluation of the test samples that leaves the run without it,
 * because the step had been evaluated for the decision. */
static void test_early_stopping__evaluates_the_test_samples_after_a_loss(void **state)
{
    (void)state;
    scenario s = {.name = "lost",
                  .sets = JOB_SETS(BASE, PLAN("1", "3", "1")),
                  .more = JOB_SETS(HOPELESS, "fault.on_loss", "continue", "fault.restarts", "0"),
                  .n_samples = N_SAMPLES,
                  .at_operation = die_in_second_evaluation};
    scenario_run(&s);
    json_t *finished = last_event(s.dir, "\"run.finished\"");
    assert_int_equal(count_events(s.dir, "run.recovered", "worker 1 ("), 1);
    assert_int_equal(number(finished, "steps"), 3 * PER_EPOCH);
    assert_true(json_is_real(json_object_get(finished, "test_loss")));
    assert_int_equal(count_events(s.dir, "evaluation", "\"test_samples\": 30"), 1);
    json_decref(finished);
}

/* Where the run goes back to, after it has decided to end. */
typedef struct way_back {
    const char *name, *checkpoint, *snapshot; /* the job's */
    const char *state;                        /* the event of what it goes back to; NULL: none */
    const char *const *more;
    int to, end, best;
    _Atomic int *n_killed; /* shared */
} way_back;

/* Once, as soon as the run has what it is to go back to. */
static void die_after_decision(fl_flight_kind kind, int rank, int64_t step)
{
    static int64_t last = -1;
    const scenario *s = scenario_here();
    const way_back *way = (const way_back *)s->context;
    char field[40];
    if (kind != FL_FLIGHT_EVALUATION || rank != 1) {
        return;
    }
    if (step == last && atomic_exchange(way->n_killed, 1) == 0) {
        snprintf(field, sizeof field, "\"step\": %d,", way->to);
        while (way->state != NULL && count_events(s->dir, way->state, field) == 0) {
            nap(500);
        }
        raise(SIGKILL);
    }
    last = step;
}

static void go_back(way_back *way)
{
    char field[40];
    way->n_killed = shared_memory(sizeof *way->n_killed);
    scenario s = {.name = way->name,
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2"), "devices.count", "2", "fault.on_loss",
                                   "continue", "fault.detect", "10s", "checkpoint.every",
                                   way->checkpoint, "fault.snapshot", way->snapshot, HOPELESS),
                  .more = way->more,
                  .n_samples = N_SAMPLES,
                  .at_operation = die_after_decision,
                  .context = way};
    scenario_start(&s);
    expect_end(&s, FL_OK);
    assert_int_equal(atomic_load(way->n_killed), 1);
    snprintf(field, sizeof field, "\"step\": %d,", way->to);
    assert_int_equal(count_events(s.dir, "\"run.resumed\"", field), 1);
    check_end_at(s.dir, way->end, way->best);
    free(losses_of(&s, way->end));
    scenario_forget(&s);
}

/* The decision follows from the evaluations, which are repeated. Would catch: a run that ends where
 * it had decided to end, but as one that a user has stopped; one that forgets its end. */
static void test_early_stopping__decides_again_when_the_run_goes_back(void **state)
{
    (void)state;
    static const char *const within[] = {"train.evaluate_every", "7 steps", "train.stop_after",
                                         "8 steps", NULL};
    static const char *const keeps[] = {"train.metric", "accuracy", NULL};
    way_back ways[] = {
        {"start", "none", "none", NULL, NULL, 0, 30, 10, NULL},
        {"start within", "none", "none", NULL, within, 0, 21, 7, NULL},
        {"before", "none", "25 steps", "\"snapshot.taken\"", NULL, 25, 30, 10, NULL},
        {"before within", "18 steps", "none", "\"checkpoint.written\"", within, 18, 21, 7, NULL},
        {"best", "1000 steps", "none", "\"checkpoint.written\"", keeps, 10, 30, 10, NULL},
        {"end", "30 steps", "none", "\"checkpoint.written\"", NULL, 30, 30, 10, NULL},
        {"end within", "none", "21 steps", "\"snapshot.taken\"", within, 21, 21, 7, NULL},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        go_back(&ways[i]);
    }
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(test_early_stopping__##name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(ends_as_finished_and_changes_no_step),
        TEST(ends_at_the_same_step_under_every_plan),
        TEST(goes_on_while_the_run_improves),
        TEST(may_end_within_an_epoch),
        TEST(is_repeated),
        TEST(stays_at_its_end_when_resumed),
        TEST(is_in_a_checkpoint_of_the_same_step),
        TEST(is_told_after_a_stop_at_its_evaluation),
        TEST(evaluates_the_test_samples_after_a_loss),
        TEST(decides_again_when_the_run_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
