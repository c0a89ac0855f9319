/* A loss names its metrics, and a run reports each of them, from steps to tables. Would catch: a
 * metric that is added up over some of the workers only, is divided by another number than the
 * loss, or stands under the name of another; targets that a loss cannot read and that are noticed
 * only by a worker. */
#include "nn/model.h"
#include "support/data/toy.h"
#include "support/lines.h"
#include "support/runs/scenario.h"
#include "support/shell.h"

#include <frostline.h>

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PLAN(k, r, m) "pipe.k", k, "autodp.r", r, "pipe.m", m
#define BASE "train.batch", "10", "train.lr", "3e-3", "devices.count", "2", "train.epochs", "2"

enum { N_SAMPLES = 120, N_STEPS = 2 * N_SAMPLES / 10, N_CLASSES = 4 };

static const double TOLERANCE = 1e-5;

/* ---- regression on the toy's images: 1 for the sample's class, 0 for the others ---- */

static const fl_dataset_ops *toy_ops;
static fl_dataset_ops value_ops;

static fl_status value_shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                             int64_t *n_targets)
{
    FL_TRY(toy_ops->shape(self, split, id, input, n_targets));
    *n_targets = N_CLASSES;
    return FL_OK;
}

static fl_status value_max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    FL_TRY(toy_ops->max_shape(self, input, n_targets));
    *n_targets = N_CLASSES;
    return FL_OK;
}

static fl_status value_targets(const void *self, fl_split split, int64_t id, float *targets)
{
    int32_t class;
    FL_TRY(toy_ops->targets(self, split, id, &class));
    for (int i = 0; i < N_CLASSES; i++) {
        targets[i] = i == class ? 1.0f : 0.0f;
    }
    return FL_OK;
}

/* The same samples with values as targets. */
static void give_values(fl_dataset *data)
{
    toy_ops = data->ops;
    value_ops = *data->ops;
    value_ops.shape = value_shape;
    value_ops.max_shape = value_max_shape;
    value_ops.targets = NULL;
    value_ops.targets_f32 = value_targets;
    data->ops = &value_ops;
}

/* ---- a loss with two metrics: the squared error, which is the loss again, and a share ---- */

enum { SQUARE, QUARTER, N_METRICS };

static const fl_metric metrics[N_METRICS] = {
    [SQUARE] = {.name = "square"},
    [QUARTER] = {.name = "quarter", .is_share = true},
};

static fl_status any_shape(void *self, const fl_shape *out)
{
    (void)self;
    return out->width == N_CLASSES ? FL_OK : fl_fail(FL_EINVAL, "takes %d values", N_CLASSES);
}

static fl_status squares(void *self, fl_exec *x, const fl_tensor *out, const fl_tensor *targets,
                         float grad_scale, fl_tensor *grad, fl_loss_sums *sums)
{
    (void)self;
    int64_t n = out->n_tokens * out->width;
    void *unused = NULL;
    FL_TRY(fl_exec_scratch(x, sizeof(double), &unused));
    fl_squared_error_args args = {.out = out->data,
                                  .targets = fl_f32(targets),
                                  .grad_scale = grad_scale,
                                  .grad = grad == NULL ? NULL : grad->data,
                                  .square_sum = &sums->loss,
                                  .absolute_sum = unused,
                                  .n = n};
    FL_TRY(fl_squared_error(x, &args));
    args.grad = NULL;
    args.square_sum = &sums->metric[SQUARE];
    FL_TRY(fl_squared_error(x, &args));
    FL_TRY(fl_add_to_sum(x, (double)n / N_CLASSES, &sums->metric[QUARTER]));
    return fl_add_to_sum(x, (double)n, &sums->n_targets);
}

static const fl_loss_ops squares_ops = {.head = FL_TABLE_HEAD(fl_loss_ops),
                                        .kind = "squares",
                                        .shape = any_shape,
                                        .forward = squares,
                                        .metrics = metrics,
                                        .n_metrics = N_METRICS};

/* ---- what scenarios adjust ---- */

static fl_status train_squares(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    give_values(data);
    return fl_model_set_loss(*model, (fl_loss){.ops = &squares_ops});
}

static fl_status train_mse(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job;
    give_values(data);
    return fl_model_set_loss(*model, fl_loss_mse());
}

static fl_status train_mse_on_classes(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job, (void)data;
    return fl_model_set_loss(*model, fl_loss_mse());
}

static fl_status train_classes_on_values(fl_job *job, fl_model **model, fl_dataset *data)
{
    (void)job, (void)model;
    give_values(data);
    value_ops.shape = toy_ops->shape; /* the number is right; only the type is not */
    value_ops.max_shape = toy_ops->max_shape;
    return FL_OK;
}

/* ---- what a run left ---- */

/* A field that has to be a finite number. */
static double value_of(const json_t *line, const char *key)
{
    const json_t *value = json_object_get(line, key);
    if (!json_is_number(value) || !isfinite(json_number_value(value))) {
        fail_msg("%s is missing, or not a finite number", key);
    }
    return json_number_value(value);
}

static void expect_near(double a, double b)
{
    if (!(fabs(a - b) <= TOLERANCE * fmax(fabs(b), 1e-3))) {
        fail_msg("%.9g found, %.9g expected", a, b);
    }
}

/* The lines of both runs that hold `text`, and these fields of each. */
static void expect_equal(const scenario *a, const scenario *b, const char *file, const char *text,
                         const char *const *keys, int n_lines)
{
    json_t *lines_a = lines_with(a->dir, file, text), *lines_b = lines_with(b->dir, file, text);
    assert_int_equal(json_array_size(lines_a), n_lines);
    assert_int_equal(json_array_size(lines_b), n_lines);
    for (size_t i = 0; i < (size_t)n_lines; i++) {
        for (int k = 0; keys[k] != NULL; k++) {
            expect_near(value_of(json_array_get(lines_a, i), keys[k]),
                        value_of(json_array_get(lines_b, i), keys[k]));
        }
    }
    json_decref(lines_a);
    json_decref(lines_b);
}

/* The metrics mean what the loss says: one is the loss again, one is a constant. */
static void check_squares(const scenario *s)
{
    json_t *steps = lines_with(s->dir, "steps.jsonl", ""), *line;
    FOR_EACH(line, steps)
    {
        expect_near(value_of(line, "train_square"), value_of(line, "loss"));
        expect_near(value_of(line, "train_quarter"), 1.0 / N_CLASSES);
    }
    json_decref(steps);
    json_t *events = lines_with(s->dir, "events.jsonl", "\"evaluation\"");
    FOR_EACH(line, events)
    {
        expect_near(value_of(line, "test_square"), value_of(line, "test_loss"));
        expect_near(value_of(line, "test_quarter"), 1.0 / N_CLASSES);
        assert_null(json_object_get(line, "test_accuracy"));
    }
    json_decref(events);
}

/* `frostline export` of the run has these columns behind those of every run. */
static void check_tables(const scenario *s, const char *of_steps, const char *of_evaluations)
{
    static output result;
    char command[512];
    snprintf(command, sizeof command,
             "'%s/frostline' export '%s' --format csv >/dev/null && cd '%s' && "
             "head -qn 1 steps.csv evaluations.csv",
             FL_BINARY_DIR, s->dir, s->dir);
    run_command(NULL, command, &result);
    assert_string_equal(result.err, "");
    assert_int_equal(result.exit_code, 0);
    char *second = strstr(result.out, "\r\n");
    assert_non_null(second);
    *second = 0;
    assert_non_null(strstr(result.out, of_steps));
    assert_non_null(strstr(second + 2, of_evaluations));
}

/* ---- tests ---- */

static void test_loss_metrics__of_a_custom_loss_agree_between_plans(void **state)
{
    (void)state;
    static const char *const of_steps[] = {"loss", "train_square", "train_quarter", NULL};
    static const char *const of_tests[] = {"test_loss", "test_square", "test_quarter", NULL};
    scenario a = {.name = "custom-stages",
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                  .n_samples = N_SAMPLES,
                  .adjust = train_squares};
    scenario b = {.name = "custom-replicas",
                  .sets = JOB_SETS(BASE, PLAN("1", "2", "1")),
                  .n_samples = N_SAMPLES,
                  .adjust = train_squares};
    scenario_run(&a);
    scenario_run(&b);
    expect_equal(&a, &b, "steps.jsonl", "", of_steps, N_STEPS);
    expect_equal(&a, &b, "events.jsonl", "\"evaluation\"", of_tests, 2);
    check_squares(&a);
    check_squares(&b);
    check_tables(&a, "m,train_square,train_quarter",
                 "mfu,test_square,validation_square,train_square,"
                 "test_quarter,validation_quarter,train_quarter\r\n");
}

static void test_loss_metrics__of_regression_agree_between_plans(void **state)
{
    (void)state;
    static const char *const of_steps[] = {"loss", "train_mae", NULL};
    static const char *const of_both[] = {"validation_mae", "validation_loss", NULL};
    static const char *const of_epochs[] = {"train_mae", "train_loss", "validation_mae", NULL};
    static const char *const of_end[] = {"train_mae", "validation_mae", "test_mae", NULL};
    scenario a = {.name = "mse-stages",
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                  .more = JOB_SETS("data.validation", "20"),
                  .n_samples = N_SAMPLES,
                  .adjust = train_mse};
    scenario b = {.name = "mse-replicas",
                  .sets = JOB_SETS(BASE, PLAN("1", "2", "1")),
                  .more = JOB_SETS("data.validation", "20"),
                  .n_samples = N_SAMPLES,
                  .adjust = train_mse};
    scenario_run(&a);
    scenario_run(&b);
    expect_equal(&a, &b, "steps.jsonl", "", of_steps, 2 * (N_SAMPLES - 20) / 10);
    expect_equal(&a, &b, "events.jsonl", "\"evaluation\"", of_both, 2);
    expect_equal(&a, &b, "events.jsonl", "\"epoch.finished\"", of_epochs, 2);
    expect_equal(&a, &b, "events.jsonl", "\"run.finished\"", of_end, 1);
    check_tables(&b, "m,train_mae", "mfu,test_mae,validation_mae,train_mae\r\n");
}

/* The run ends without having started a worker. */
static void expect_refused(const char *name, const char *why,
                           fl_status (*adjust)(fl_job *, fl_model **, fl_dataset *))
{
    scenario s = {.name = name,
                  .sets = JOB_SETS(BASE, PLAN("2", "1", "2")),
                  .n_samples = N_SAMPLES,
                  .adjust = adjust};
    scenario_start(&s);
    expect_end(&s, FL_EINVAL);
    if (strstr(s.outcome->message, why) == NULL) {
        fail_msg("%s: not '%s', but: %s", name, why, s.outcome->message);
    }
    for (int rank = 0; rank < FL_MAX_WORKERS; rank++) {
        assert_int_equal(s.outcome->pid[rank], 0);
    }
    scenario_forget(&s);
}

static void test_loss_metrics__targets_of_the_wrong_type_are_refused(void **state)
{
    (void)state;
    expect_refused("values", "the data set gives", train_classes_on_values);
    expect_refused("classes", "the data set gives", train_mse_on_classes);
}

static void test_loss_metrics__a_name_that_is_not_allowed_is_refused(void **state)
{
    (void)state;
    const fl_metric bad[] = {{.name = "square"}, {.name = "Root error"}};
    fl_loss_ops ops = squares_ops;
    fl_model *model = NULL;
    ops.metrics = bad;
    assert_int_equal(fl_toy_model(1, 0.0f, &model), FL_OK);
    assert_int_equal(fl_model_set_loss(model, (fl_loss){.ops = &ops}), FL_EINVAL);
    assert_string_equal(fl_errmsg(), "loss (squares): metric 1: name 'Root error' found, allowed: "
                                     "1 to 31 of a-z, 0-9, _");
    assert_string_equal(fl_model_loss(model)->ops->kind, "cross_entropy");
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loss_metrics__of_a_custom_loss_agree_between_plans),
        cmocka_unit_test(test_loss_metrics__of_regression_agree_between_plans),
        cmocka_unit_test(test_loss_metrics__targets_of_the_wrong_type_are_refused),
        cmocka_unit_test(test_loss_metrics__a_name_that_is_not_allowed_is_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
