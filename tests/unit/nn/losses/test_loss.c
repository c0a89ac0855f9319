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
    const fl_metric good[] = {{.name = "accuracy", .is_share = true},
                              {.name = "mae"},
                              {.name = "top_5", .is_share = true},
                              {.name = "9"},
                              {.name = NAME_OF_31},
                              {.name = "_"},
                              {.name = "loss_"},
                              {.name = "sample", .is_share = true}};
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
        const fl_metric metrics[] = {{.name = "ok"}, {.name = bad[i].name}};
        assert_string_equal(judge(metrics, 2), bad[i].message);
    }
    const fl_metric nine[9] = {{.name = "a"}};
    assert_string_equal(judge(nine, 9), "loss (mine): 9 metrics found, allowed: 0 to 8");
    assert_string_equal(judge(nine, -1), "loss (mine): -1 metrics found, allowed: 0 to 8");
    assert_string_equal(judge(NULL, 1), "loss (mine): 1 metrics, but no table of metrics");
}

/* Means of a batch do not depend on how it was cut. */
static void test_metrics__are_means_over_targets(void **state)
{
    (void)state;
    const fl_metric two[] = {{.name = "mae"}, {.name = "share", .is_share = true}};
    const fl_metric_list list = {two, 2};
    fl_loss_sums sums = {.loss = 3, .n_targets = 2, .metric = {1, 2}};
    const fl_loss_sums more = {.loss = 1, .n_targets = 6, .metric = {5, 0, 7}};
    fl_loss_sums_add(&sums, &more);
    assert_true(sums.loss == 4 && sums.n_targets == 8 && sums.metric[2] == 7);
    fl_metric_means means = fl_loss_sums_means(&sums, list);
    assert_int_equal(means.n, 2);
    assert_true(fl_metric_mean(&list, &means, "mae") == 0.75);
    assert_true(fl_metric_mean(&list, &means, "share") == 0.25);
    assert_true(isnan(fl_metric_mean(&list, &means, "accuracy")));
    means.n = 1; /* of a report that has fewer */
    assert_true(isnan(fl_metric_mean(&list, &means, "share")));
}

/* Rows of two classes: true and false positives, false and true negatives. */
typedef struct binary_case {
    double tp, fp, fn, tn;
    double f1, matthews;
} binary_case;

/* By the definitions, in the other form: F1 is the harmonic mean of precision and recall, and
 * Matthews' coefficient is the correlation of two 0/1 variables. */
static void check_definitions(const binary_case *c, double f1, double matthews)
{
    double n = c->tp + c->fp + c->fn + c->tn;
    double predicted = (c->tp + c->fp) / n, actual = (c->tp + c->fn) / n;
    if (c->tp > 0) {
        double precision = c->tp / (c->tp + c->fp), recall = c->tp / (c->tp + c->fn);
        assert_true(fabs(f1 - 2 * precision * recall / (precision + recall)) < 1e-12);
    }
    double deviation = sqrt(predicted * (1 - predicted) * actual * (1 - actual));
    if (deviation > 0) {
        assert_true(fabs(matthews - (c->tp / n - predicted * actual) / deviation) < 1e-12);
    }
}

static void test_metrics__of_two_classes_are_f1_and_matthews(void **state)
{
    (void)state;
    /* The last two columns are those of scikit-learn. */
    static const binary_case cases[] = {
        {4, 1, 2, 3, 0.7272727272727273, 0.408248290463863},
        {30, 12, 5, 53, 0.7792207792207793, 0.6499232722704146},
        {0, 3, 7, 5, 0, -0.46770717334674267},
        {5, 0, 0, 5, 1, 1},
        {0, 5, 5, 0, 0, -1},
        {0, 0, 0, 9, 0, 0}, /* no positives at all */
        {9, 0, 0, 0, 1, 0},
        {6, 4, 0, 0, 0.75, 0}, /* one class is always chosen */
    };
    fl_loss loss;
    assert_int_equal(fl_loss_cross_entropy(2, &loss), FL_OK);
    const fl_metric_list list = {loss.ops->metrics, loss.ops->n_metrics};
    assert_int_equal(list.n, 3);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const binary_case *c = &cases[i];
        double n = c->tp + c->fp + c->fn + c->tn;
        /* What forward adds: right rows, rows where class 1 is chosen, those that are right. */
        const fl_loss_sums sums = {.n_targets = n, .metric = {c->tp + c->tn, c->tp + c->fp, c->tp}};
        fl_metric_means means = fl_loss_sums_means(&sums, list);
        double f1 = fl_metric_mean(&list, &means, "f1");
        double matthews = fl_metric_mean(&list, &means, "matthews");
        assert_true(fabs(fl_metric_mean(&list, &means, "accuracy") - (c->tp + c->tn) / n) < 1e-12);
        assert_true(fabs(f1 - c->f1) < 1e-12);
        assert_true(fabs(matthews - c->matthews) < 1e-12);
        check_definitions(c, f1, matthews);
    }
    loss.ops->destroy(loss.self);
    assert_int_equal(fl_loss_cross_entropy(3, &loss), FL_OK);
    assert_int_equal(loss.ops->n_metrics, 1);
    loss.ops->destroy(loss.self);
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

/* Answers to whole questions have a score once an evaluation has added them, and no other. */
static void test_metrics__of_questions(void **state)
{
    (void)state;
    const fl_loss loss = fl_loss_span();
    const fl_metric_list list = {.metric = loss.ops->metrics, .n = loss.ops->n_metrics};
    fl_loss_sums sums = {.loss = 3, .n_targets = 4, .metric = {1}};
    fl_metric_means means = fl_loss_sums_means(&sums, list);
    assert_true(fl_loss_is_span(&loss));
    assert_true(fl_metric_mean(&list, &means, "accuracy") == 0.25);
    assert_true(isnan(fl_metric_mean(&list, &means, "em")));
    assert_true(isnan(fl_metric_mean(&list, &means, "f1")));
    fl_loss_span_add(&sums, 8, 2, 3);
    fl_loss_span_add(&sums, 2, 1, 2);
    means = fl_loss_sums_means(&sums, list);
    assert_true(fl_metric_mean(&list, &means, "accuracy") == 0.25);
    assert_true(fl_metric_mean(&list, &means, "em") == 0.3);
    assert_true(fl_metric_mean(&list, &means, "f1") == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_metrics__names_that_can_be_reported),
        cmocka_unit_test(test_metrics__other_names_are_refused),
        cmocka_unit_test(test_metrics__are_means_over_targets),
        cmocka_unit_test(test_metrics__of_two_classes_are_f1_and_matthews),
        cmocka_unit_test(test_metrics__of_no_model_are_none),
        cmocka_unit_test(test_metrics__of_questions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
