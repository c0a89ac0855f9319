/* What a loss adds up, and the metrics that it names. */
#ifndef FL_NN_LOSS_H
#define FL_NN_LOSS_H

#include <frostline/model.h>

/* fl_loss_sums as an array: the doubles that a sum over workers adds up. */
enum { FL_LOSS_SUMS_N = sizeof(fl_loss_sums) / sizeof(double) };
_Static_assert(sizeof(fl_loss_sums) == (2 + FL_METRICS_MAX) * sizeof(double),
               "fl_loss_sums has only doubles");

/* The metric of classifiers, which results have in a field of its own. */
#define FL_ACCURACY "accuracy"

/* The metrics of a loss, borrowed from it. Zeroed: none. */
typedef struct fl_metric_list {
    const fl_metric *metric; /* [n] */
    int n;
} fl_metric_list;

/* The value of each metric: its mean over targets, unless it has a function of its own. */
typedef struct fl_metric_means {
    int n;
    double mean[FL_METRICS_MAX]; /* [n] in the order of the list */
} fl_metric_means;

/* Whether results of this name can be reported: 1 to 31 of a-z, 0-9 and _, and
 * not the name of a result that every run has: loss, samples, grad_norm, learning_rate. */
bool fl_metric_name_is_valid(const char *name);

/* FL_EINVAL with a message that names the metric, for a list that a run could not report. */
fl_status fl_metric_list_check(const fl_metric_list *list) FL_MUST_CHECK;

/* The index of a metric; -1: the list has none of this name. */
int fl_metric_list_find(const fl_metric_list *list, const char *name);

/* The mean under this name; NAN: there is none. */
double fl_metric_mean(const fl_metric_list *list, const fl_metric_means *means, const char *name);

/* FL_EINVAL unless there are n targets of this type. */
fl_status fl_targets_expect(const fl_tensor *targets, fl_dtype dtype, int64_t n) FL_MUST_CHECK;

/* FL_EINVAL with the sample's name unless every target is one of the classes 0 .. n_classes - 1. */
fl_status fl_targets_expect_classes(const fl_tensor *targets, const fl_exec *x,
                                    int64_t n_classes) FL_MUST_CHECK;

/* Of fl_loss_span: whether a loss is one, and the sums over whole questions, which only an
 * evaluation of their data set knows. */
bool fl_loss_is_span(const fl_loss *loss);
void fl_loss_span_add(fl_loss_sums *sums, double n_questions, double exact, double f1);

/* Of fl_loss_lm_head: whether a loss is one. It multiplies what the last layer puts out by the
 * vocabulary itself, so that this output predicts nothing. */
bool fl_loss_is_language(const fl_loss *loss);

/* *to += *from, both in host memory. */
void fl_loss_sums_add(fl_loss_sums *to, const fl_loss_sums *from);

/* The values of the metrics that have these sums, host memory. */
fl_metric_means fl_loss_sums_means(const fl_loss_sums *sums, fl_metric_list list);

#endif
