/* A program's callbacks get what events.jsonl has, in the program's own thread, and can end the
 * run. Each run is in a process of its own; what its callbacks saw is in shared memory. */
#include "launcher/run/run.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/nap.h"
#include "support/runs/scenario.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_SAMPLES = 130, N_VALIDATION = 26, BATCH = 13, STEPS_AN_EPOCH = 8, MANY = 64 };
/* More than a run does before it is stopped, also if its controller gets no processor for seconds.
 */
#define ENDLESS "train.epochs", "1000000"

/* What the callbacks of one run saw, and what they do. */
typedef struct diary {
    char dir[300]; /* of the run, once a callback was called */
    int n_epochs, n_evaluations, n_ends, n_checkpoints;
    fl_checkpoint_result checkpoint[MANY];
    int n_unreadable; /* checkpoints that could not be opened in the callback */
    fl_epoch_result epoch[MANY];
    fl_evaluation_result evaluation[MANY];
    char epoch_plan[256], evaluation_plan[256]; /* of the last call: the texts do not outlive it */
    bool wrong_thread;
    int n_unwritten; /* calls whose event was not in the file */
    fl_status status, returned;
    fl_run_result result, returned_result;
    char message[1024], returned_message[1024];
    /* what they do */
    int64_t stop_epoch, stop_steps; /* 0: never */
    int64_t stop_checkpoint;        /* from this many steps on; 0: never */
    int64_t nap_ms;                 /* in the first call of on_epoch */
    bool kills;                     /* on_epoch kills worker 1 */
    bool nests;                     /* on_epoch calls fl_run */
    int answer;                     /* on_epoch returns this; 0: FL_CONTINUE or FL_STOP */
    fl_status nested;
    char nested_message[1024];
    fl_model *model;
    const fl_dataset *data;
    const fl_job *job;
} diary;

static void find_run(diary *d)
{
    char command[200];
    if (d->dir[0] != 0) {
        return;
    }
    snprintf(command, sizeof command, "ls -d %s/job-*", root);
    FILE *list = popen(command, "r");
    if (list == NULL || fscanf(list, "%299s", d->dir) != 1) {
        _exit(8);
    }
    pclose(list);
}

static void look_around(diary *d, const char *event, int n_expected)
{
    find_run(d);
    d->wrong_thread |= syscall(SYS_gettid) != getpid();
    d->n_unwritten += count_events(d->dir, event, "") != n_expected;
}

static void kill_worker_1(const diary *d)
{
    json_t *started = lines_with(d->dir, "events.jsonl", "\"run.started\"");
    const json_t *workers = json_object_get(json_array_get(started, 0), "workers");
    kill(number(json_array_get(workers, 1), "pid"), SIGKILL);
    json_decref(started);
}

static fl_callback_answer see_epoch(void *context, const fl_epoch_result *epoch)
{
    diary *d = context;
    d->epoch[d->n_epochs++ % MANY] = *epoch;
    snprintf(d->epoch_plan, sizeof d->epoch_plan, "%s", epoch->plan);
    look_around(d, "epoch.finished", d->n_epochs);
    if (d->kills) {
        kill_worker_1(d);
    }
    nap(d->n_epochs == 1 ? d->nap_ms * 1000 : 0);
    if (d->nests) {
        d->nested = fl_run(d->model, d->data, d->job, NULL);
        snprintf(d->nested_message, sizeof d->nested_message, "%s", fl_errmsg());
    }
    if (d->answer != 0) {
        return (fl_callback_answer)d->answer;
    }
    return epoch->epoch == d->stop_epoch ? FL_STOP : FL_CONTINUE;
}

static fl_callback_answer see_evaluation(void *context, const fl_evaluation_result *evaluation)
{
    diary *d = context;
    d->evaluation[d->n_evaluations++ % MANY] = *evaluation;
    snprintf(d->evaluation_plan, sizeof d->evaluation_plan, "%s", evaluation->plan);
    look_around(d, "\"event\": \"evaluation\"", d->n_evaluations);
    return evaluation->steps_done == d->stop_steps ? FL_STOP : FL_CONTINUE;
}

static fl_callback_answer see_checkpoint(void *context, const fl_checkpoint_result *checkpoint)
{
    diary *d = context;
    fl_weights *weights = NULL;
    d->checkpoint[d->n_checkpoints++ % MANY] = *checkpoint;
    look_around(d, "checkpoint.written", d->n_checkpoints);
    d->n_unreadable += fl_weights_open(checkpoint->path, &weights) != FL_OK ||
                       fl_weights_count(weights) == 0 ||
                       strncmp(checkpoint->path, d->dir, strlen(d->dir)) != 0;
    fl_weights_close(&weights);
    bool stops = d->stop_checkpoint > 0 && checkpoint->steps_done >= d->stop_checkpoint;
    return stops ? FL_STOP : FL_CONTINUE;
}

static void see_end(void *context, fl_status status, const fl_run_result *result)
{
    diary *d = context;
    fl_job job;
    d->n_ends++;
    d->status = status;
    d->result = *result;
    snprintf(d->message, sizeof d->message, "%s", fl_errmsg());
    (void)!fl_job_set(&job, "no.such.field", "1"); /* its message is not the run's */
}

/* Run in a child of the test, below `root`. */
static void run_program(diary *d, const char *const *fields)
{
    static fl_job job; /* the deeds look at it */
    fl_model *model = NULL;
    static fl_dataset data;
    fl_callbacks callbacks = {d, see_epoch, see_evaluation, see_end, see_checkpoint};
    hush();
    fl_job_defaults(&job);
    set(&job, "train.batch", BATCH);
    must(fl_job_set(&job, "run.dir", root));
    must(fl_job_set(&job, "pipe.profile", "none"));
    must(fl_job_set(&job, "data.validation", "20%"));
    for (int i = 0; fields[i] != NULL; i += 2) {
        must(fl_job_set(&job, fields[i], fields[i + 1]));
    }
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(3, 0.1f, &model));
    d->model = model;
    d->data = &data;
    d->job = &job;
    d->returned = fl_run_with(model, &data, &job, &callbacks, &d->returned_result);
    snprintf(d->returned_message, sizeof d->returned_message, "%s", fl_errmsg());
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
    _exit(0);
}

#define TWO_STAGES "devices.count", "2", "pipe.k", "2", "autodp.r", "1", "pipe.m", "4"

/* on_end was called once, with what fl_run_with returned. */
static void run_and_check_end(diary *d, const char *const *fields, fl_status status)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        run_program(d, fields);
    }
    check_ended_well(child);
    if (d->returned != status) {
        fail_msg("%s: %s", fl_status_text(d->returned), d->returned_message);
    }
    assert_int_equal(d->n_ends, 1);
    assert_int_equal(d->status, status);
    assert_memory_equal(&d->result, &d->returned_result, sizeof d->result);
    if (status != FL_OK) {
        assert_string_equal(d->message, d->returned_message);
    }
    assert_false(d->wrong_thread);
    assert_int_equal(d->n_unwritten, 0);
}

static double real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void check_real(double value, const json_t *event, const char *key, double tolerance)
{
    assert_true(fabs(value - real(event, key)) <= tolerance);
}

/* The same samples, loss and accuracy, or neither has them. */
static void check_scores(const fl_scores *scores, const json_t *event, const char *split)
{
    char samples[32], loss[32], accuracy[32];
    snprintf(samples, sizeof samples, "%s_samples", split);
    snprintf(loss, sizeof loss, "%s_loss", split);
    snprintf(accuracy, sizeof accuracy, "%s_accuracy", split);
    if (json_object_get(event, loss) == NULL) {
        assert_int_equal(scores->samples, 0);
        assert_true(isnan(scores->loss) && isnan(scores->accuracy));
        return;
    }
    assert_int_equal(scores->samples, number(event, samples));
    check_real(scores->loss, event, loss, 1e-9 * scores->loss);
    check_real(scores->accuracy, event, accuracy, 1e-9);
}

static void test_callbacks__get_what_the_events_have(void **state)
{
    (void)state;
    enum { EPOCHS = 3 };
    diary *d = shared_memory(sizeof *d);
    run_and_check_end(
        d, JOB_SETS(TWO_STAGES, "train.epochs", "3", "train.evaluate_every", "4 steps"), FL_OK);
    json_t *epochs = lines_with(d->dir, "events.jsonl", "\"epoch.finished\"");
    json_t *evaluations = lines_with(d->dir, "events.jsonl", "\"event\": \"evaluation\"");
    assert_int_equal(d->n_epochs, EPOCHS);
    assert_int_equal(length(epochs), EPOCHS);
    for (int i = 0; i < EPOCHS; i++) {
        const json_t *event = json_array_get(epochs, (size_t)i);
        const fl_epoch_result *e = &d->epoch[i];
        assert_int_equal(e->epoch, number(event, "epoch") + 1);
        assert_int_equal(e->steps, STEPS_AN_EPOCH);
        assert_int_equal(e->steps_done, (i + 1) * STEPS_AN_EPOCH);
        assert_int_equal(e->samples, number(event, "samples"));
        check_real(e->train_loss, event, "train_loss", 1e-9 * e->train_loss);
        check_real(e->seconds, event, "seconds", 1e-3);
        check_real(e->samples_per_s, event, "samples_per_s", 0.1);
        check_scores(&e->validation, event, "validation");
        check_scores(&e->test, event, "test");
    }
    assert_int_equal(d->epoch[0].validation.samples, N_VALIDATION);
    assert_int_equal(d->n_evaluations, EPOCHS * STEPS_AN_EPOCH / 4);
    assert_int_equal(length(evaluations), d->n_evaluations);
    for (int i = 0; i < d->n_evaluations; i++) {
        const json_t *event = json_array_get(evaluations, (size_t)i);
        const fl_evaluation_result *e = &d->evaluation[i];
        assert_int_equal(e->epoch, number(event, "epoch") + 1);
        assert_int_equal(e->steps_done, number(event, "step") + 1);
        check_real(e->seconds, event, "seconds", 1e-3);
        check_scores(&e->validation, event, "validation");
        check_scores(&e->test, event, "test");
    }
    assert_int_equal(d->evaluation[d->n_evaluations - 1].test.samples, N_SAMPLES / 4);
    assert_int_equal(d->evaluation[0].test.samples, 0);
    json_t *plans = lines_with(d->dir, "events.jsonl", "\"plan.chosen\"");
    const char *plan = json_string_value(json_object_get(json_array_get(plans, 0), "plan"));
    assert_string_equal(d->epoch_plan, plan);
    assert_string_equal(d->evaluation_plan, plan);
    assert_int_equal(d->result.epochs, EPOCHS);
    json_decref(plans);
    json_decref(epochs);
    json_decref(evaluations);
}

static void test_callbacks__end_the_run_after_an_epoch(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->stop_epoch = 2;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, ENDLESS), FL_ESTOPPED);
    assert_true(d->n_epochs >= 2);
    assert_true(d->result.steps >= 2 * STEPS_AN_EPOCH);
    assert_int_equal(d->result.epochs, d->result.steps / STEPS_AN_EPOCH);
    assert_non_null(strstr(d->message, "stopped by on_epoch after "));
    assert_int_equal(count_events(d->dir, "run.stopping", "\"why\": \"on_epoch\""), 1);
    assert_int_equal(count_events(d->dir, "run.stopped", ""), 1);
}

static void test_callbacks__end_the_run_after_an_evaluation(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->stop_steps = 4;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, ENDLESS, "train.evaluate_every", "4 steps"),
                      FL_ESTOPPED);
    assert_true(d->result.steps >= 4);
    assert_int_equal(count_events(d->dir, "run.stopping", "\"why\": \"on_evaluation\""), 1);
}

/* Would catch: a run that did all its steps is reported as one that was stopped. */
static void test_callbacks__do_not_stop_what_is_over(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->stop_epoch = 2;
    d->stop_steps = 2 * STEPS_AN_EPOCH;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, "train.epochs", "2"), FL_OK);
    assert_int_equal(d->n_epochs, 2);
    assert_int_equal(count_events(d->dir, "run.stopping", ""), 0);
}

/* on_epoch takes twice fault.detect. Would catch: workers whose heartbeats lay unread
 * meanwhile are taken for lost. */
static void test_callbacks__may_take_long(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->nap_ms = 6000;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, "train.epochs", "3", "fault.detect", "3s"), FL_OK);
    assert_int_equal(d->n_epochs, 3);
    assert_int_equal(count_events(d->dir, "worker.lost", ""), 0);
}

static void test_callbacks__learn_of_a_failure(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->kills = true;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, ENDLESS, "fault.on_loss", "stop"), FL_EFAILED);
    assert_int_equal(strncmp(d->message, "worker 1 (stage 1", 17), 0);
    assert_non_null(strstr(d->message, "was killed by signal 9"));
    assert_int_equal(count_events(d->dir, "run.failed", ""), 1); /* written before on_end */
}

static void test_callbacks__learn_that_no_worker_was_started(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    run_and_check_end(d, JOB_SETS("train.batch", "1000"), FL_EINVAL);
    const fl_run_result *r = &d->returned_result; /* not a loss of 0 */
    assert_true(isnan(r->train_loss) && isnan(r->test_loss) && isnan(r->test_accuracy));
    assert_true(isnan(r->validation_loss) && isnan(r->validation_accuracy));
    assert_int_equal(d->n_epochs + d->n_evaluations, 0);
    assert_non_null(strstr(d->message, "train.batch"));
    assert_int_equal(d->result.steps, 0);
}

/* Would catch: a second run inside the first one, which takes its signals and its terminal. */
static void test_callbacks__cannot_start_a_run(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->nests = true;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, "train.epochs", "2"), FL_OK);
    assert_int_equal(d->n_epochs, 2);
    assert_int_equal(d->nested, FL_EBUSY);
    assert_non_null(strstr(d->nested_message, "a run of this process is in progress"));
}

/* Would catch: an answer that is not one of the two, taken for FL_CONTINUE. */
static void test_callbacks__must_give_one_of_the_answers(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->answer = 7;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, ENDLESS), FL_EFAILED);
    assert_string_equal(d->message, "on_epoch returned 7; allowed: FL_CONTINUE (0), FL_STOP (1)");
    assert_int_equal(count_events(d->dir, "run.failed", ""), 1);
}

/* Would catch: a crash of the program in place of a message that names what is missing. */
static void test_callbacks__arguments_that_are_missing_are_named(void **state)
{
    (void)state;
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data, empty = {0};
    fl_job_defaults(&job);
    assert_int_equal(fl_toy_dataset(N_SAMPLES, &data), FL_OK);
    assert_int_equal(fl_toy_model(1, 0.0f, &model), FL_OK);
    fl_dataset_ops no_read = *data.ops;
    no_read.read = NULL;
    fl_dataset half = {.ops = &no_read, .self = data.self};
    const struct {
        fl_model *model;
        const fl_dataset *data;
        const fl_job *job;
        const char *message;
    } calls[] = {{NULL, &data, &job, "no model was given (NULL)"},
                 {model, NULL, &job, "no data set was given (NULL)"},
                 {model, &data, NULL, "no job was given (NULL)"},
                 {model, &empty, &job, "the data set has no table (ops is NULL)"},
                 {model, &half, &job, "the data set's table has no read"}};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fl_plan_request request = {0};
        assert_int_equal(fl_run(calls[i].model, calls[i].data, calls[i].job, NULL), FL_EINVAL);
        assert_string_equal(fl_errmsg(), calls[i].message);
        assert_int_equal(fl_check(calls[i].model, calls[i].data, calls[i].job), FL_EINVAL);
        assert_string_equal(fl_errmsg(), calls[i].message);
        assert_int_equal(fl_plan_job(calls[i].model, calls[i].data, calls[i].job, &request),
                         FL_EINVAL);
        assert_string_equal(fl_errmsg(), calls[i].message);
    }
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

/* Would catch: a checkpoint that is reported before it is whole, under another name, or twice. */
static void test_callbacks__get_each_checkpoint(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    run_and_check_end(d,
                      JOB_SETS(TWO_STAGES, "train.epochs", "3", "checkpoint.every", "12 steps",
                               "checkpoint.keep", "9"),
                      FL_OK);
    json_t *written = lines_with(d->dir, "events.jsonl", "\"checkpoint.written\"");
    assert_int_equal(d->n_checkpoints, length(written));
    assert_true(d->n_checkpoints >= 1); /* none begins while another is written */
    assert_int_equal(d->n_unreadable, 0);
    for (int i = 0; i < d->n_checkpoints; i++) {
        const json_t *event = json_array_get(written, (size_t)i);
        assert_int_equal(d->checkpoint[i].steps_done, number(event, "step"));
        assert_int_equal(d->checkpoint[i].bytes, number(event, "bytes"));
        assert_int_equal(d->checkpoint[i].linked_bytes, number(event, "linked_bytes"));
        assert_true(d->checkpoint[i].seconds > 0);
    }
    assert_int_equal(d->checkpoint[d->n_checkpoints - 1].steps_done, 3 * STEPS_AN_EPOCH);
    json_decref(written);
}

static void test_callbacks__end_the_run_after_a_checkpoint(void **state)
{
    (void)state;
    diary *d = shared_memory(sizeof *d);
    d->stop_checkpoint = 1;
    run_and_check_end(d, JOB_SETS(TWO_STAGES, ENDLESS, "checkpoint.every", "12 steps"),
                      FL_ESTOPPED);
    assert_true(d->result.steps >= 12);
    assert_int_equal(count_events(d->dir, "run.stopping", "\"why\": \"on_checkpoint\""), 1);
}

/* What a program puts into a job is named as it put it there. */
static void test_callbacks__weights_that_do_not_fit_are_named(void **state)
{
    (void)state;
    fl_job job;
    fl_model *model = NULL;
    fl_dataset data;
    fl_run_result result;
    fl_job_defaults(&job);
    set(&job, "train.batch", BATCH);
    must(fl_job_set(&job, "run.dir", root));
    must(fl_toy_dataset(N_SAMPLES, &data));
    must(fl_toy_model(1, 0.0f, &model));
    must(fl_job_set(&job, "model.init", "no/such/run"));
    assert_int_equal(fl_run(model, &data, &job, &result), FL_EINVAL);
    assert_string_equal(fl_errmsg(),
                        "model.init: no/such/run: not found; allowed: a folder or file of weights, "
                        "a checkpoint, a run directory, or the name of a run in runs");
    assert_int_equal(result.steps, 0);
    fl_model_destroy(&model);
    fl_dataset_destroy(&data);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_callbacks__##name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        TEST(get_what_the_events_have),
        TEST(end_the_run_after_an_epoch),
        TEST(end_the_run_after_an_evaluation),
        TEST(do_not_stop_what_is_over),
        TEST(may_take_long),
        TEST(learn_of_a_failure),
        TEST(learn_that_no_worker_was_started),
        TEST(cannot_start_a_run),
        TEST(must_give_one_of_the_answers),
        TEST(arguments_that_are_missing_are_named),
        TEST(weights_that_do_not_fit_are_named),
        TEST(get_each_checkpoint),
        TEST(end_the_run_after_a_checkpoint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
