/* What a loss may call its metrics, and how their sums become means. */
#include "nn/loss.h"
#include "nn/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static fl_status no_shape(void *self, const fl_shape *out)
{
    (void)self, (void)out;
    return FL_OK;
}

static fl_status no_forward(void *self, fl_exec *x, const fl_tensor *out, const fl_tensor *targets,
                            float grad_scale, fl_tensor *grad, fl_loss_sums *sums)
{
    (void)self, (void)x, (void)out, (void)targets, (void)grad_scale, (void)grad, (void)sums;
    return FL_OK;
}

/* What fl_model_set_loss says of these metrics; "" if it takes them. */
static const char *judge(const fl_metric *metrics, int n)
{
    const fl_loss_ops ops = {.head = FL_TABLE_HEAD(fl_loss_ops),
                             .kind = "mine",
                             .shape = no_shape,
                             .forward = no_forward,
                             .metrics = metrics,
                             .n_metrics = n};
    fl_model *model = NULL;
    assert_int_equal(fl_model_create("m", &model), FL_OK);
    fl_status status = fl_model_set_loss(model, (fl_loss){.ops = &ops});
    assert_int_equal(fl_model_metrics(model).n, status == FL_OK ? n : 0);
    fl_model_destroy(&model);
    if (status != FL_OK) {
        assert_int_equal(status, FL_EINVAL);
    }
    return status == FL_OK ? "" : fl_errmsg();
}

#define NAME_OF_31 "a234567890123456789012345678901"

static void test_metrics__names_that_can_be_reported(void **state)
{
    (void)state;
    const fl_metric good[] = {{"accuracy", true}, {"mae", false},      {"top_5", true},
                              {"9", false},       {NAME_OF_31, false}, {"_", false},
                              {"loss_", false},   {"sample", true}};
    assert_string_equal(judge(good, 8), "");
    assert_string_equal(judge(NULL, 0), "");
}

/* Would catch: a column, a label or a field that cannot be written; a metric that hides the loss.
 */
static void test_metrics__other_names_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *message;
    } bad[] = {
        {NULL, "loss (mine): metric 1 has no name"},
        {"loss", "loss (mine): metric 1: 'loss' is a name of the run's own results"},
        {"samples", "loss (mine): metric 1: 'samples' is a name of the run's own results"},
        {"ok", "loss (mine): metrics 0 and 1 are both named 'ok'"},
        {"", "loss (mine): metric 1: name '' found, allowed: 1 to 31 of a-z, 0-9, _"},
        {"MAE", "loss (mine): metric 1: name 'MAE' found, allowed: 1 to 31 of a-z, 0-9, _"},
        {"a b", "loss (mine): metric 1: name 'a b' found, allowed: 1 to 31 of a-z, 0-9, _"},
        {"a\"b", "loss (mine): metric 1: name 'a\"b' found, allowed: 1 to 31 of a-z, 0-9, _"},
        {NAME_OF_31 "2",
         "loss (mine): metric 1: name '" NAME_OF_31 "2' found, allowed: 1 to 31 of a-z, 0-9, _"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const fl_metric metrics[] = {{"ok", false}, {bad[i].name, false}};
        assert_string_equal(judge(metrics, 2), bad[i].message);
    }
    const fl_metric nine[9] = {{"a", false}};
    assert_string_equal(judge(nine, 9), "loss (mine): 9 metrics found, allowed: 0 to 8");
    assert_string_equal(judge(nine, -1), "loss (mine): -1 metrics found, allowed: 0 to 8");
    assert_string_equal(judge(NULL, 1), "loss (mine): 1 metrics, but no table of metrics");
}

/* Means of a batch do not depend on how it was cut. */
static void test_metrics__are_means_over_targets(void **state)
{
    (void)state;
    const fl_metric two[] = {{"mae", false}, {"share", true}};
    const fl_metric_list list = {two, 2};
    fl_loss_sums sums = {.loss = 3, .n_targets = 2, .metric = {1, 2}};
    const fl_loss_sums more = {.loss = 1, .n_targets = 6, .metric = {5, 0, 7}};
    fl_loss_sums_add(&sums, &more);
    assert_true(sums.loss == 4 && sums.n_targets == 8 && sums.metric[2] == 7);
    fl_metric_means means = fl_loss_sums_means(&sums, 2);
    assert_int_equal(means.n, 2);
    assert_true(fl_metric_mean(&list, &means, "mae") == 0.75);
    assert_true(fl_metric_mean(&list, &means, "share") == 0.25);
    assert_true(isnan(fl_metric_mean(&list, &means, "accuracy")));
    means.n = 1; /* of a report that has fewer */
    assert_true(isnan(fl_metric_mean(&list, &means, "share")));
}

static void test_metrics__of_no_model_are_none(void **state)
{
    (void)state;
    fl_model *model = NULL;
    assert_int_equal(fl_model_metrics(NULL).n, 0);
    assert_int_equal(fl_model_create("m", &model), FL_OK);
    assert_int_equal(fl_model_metrics(model).n, 0);
    fl_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__names_that_can_be_reported),
        cmocka_unit_test(test_metrics__other_names_are_refused),
        cmocka_unit_test(test_metrics__are_means_over_targets),
        cmocka_unit_test(test_metrics__of_no_model_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
