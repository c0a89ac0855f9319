#include "nn/loss.h"

#include "nn/exec.h"

#include <math.h>
#include <string.h>

/* ---- names ---- */

static bool is_reserved(const char *name)
{
    static const char *const own[] = {"loss", "samples", "grad_norm", "learning_rate"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        if (strcmp(name, own[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool fl_metric_name_is_valid(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n >= 1 && n < FL_METRIC_NAME_MAX && name[n] == 0 && !is_reserved(name);
}

static fl_status check_name(const fl_metric_list *list, int i)
{
    const char *name = list->metric[i].name;
    if (name == NULL) {
        return fl_fail(FL_EINVAL, "metric %d has no name", i);
    }
    if (is_reserved(name)) {
        return fl_fail(FL_EINVAL, "metric %d: '%s' is a name of the run's own results", i, name);
    }
    if (!fl_metric_name_is_valid(name)) {
        return fl_fail(FL_EINVAL, "metric %d: name '%.64s' found, allowed: 1 to %d of a-z, 0-9, _",
                       i, name, FL_METRIC_NAME_MAX - 1);
    }
    const fl_metric_list before = {.metric = list->metric, .n = i};
    int same = fl_metric_list_find(&before, name);
    return same < 0 ? FL_OK
                    : fl_fail(FL_EINVAL, "metrics %d and %d are both named '%s'", same, i, name);
}

fl_status fl_metric_list_check(const fl_metric_list *list)
{
    if (list->n < 0 || list->n > FL_METRICS_MAX) {
        return fl_fail(FL_EINVAL, "%d metrics found, allowed: 0 to %d", list->n, FL_METRICS_MAX);
    }
    if (list->n > 0 && list->metric == NULL) {
        return fl_fail(FL_EINVAL, "%d metrics, but no table of metrics", list->n);
    }
    for (int i = 0; i < list->n; i++) {
        FL_TRY(check_name(list, i));
    }
    return FL_OK;
}

int fl_metric_list_find(const fl_metric_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++) {
        if (strcmp(list->metric[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

double fl_metric_mean(const fl_metric_list *list, const fl_metric_means *means, const char *name)
{
    int i = fl_metric_list_find(list, name);
    return i >= 0 && i < means->n ? means->mean[i] : (double)NAN;
}

/* ---- targets ---- */

fl_status fl_targets_expect(const fl_tensor *targets, fl_dtype dtype, int64_t n)
{
    return targets->dtype == dtype && targets->n_tokens * targets->width == n
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "takes %lld %s targets here, the data set gives %lld %s targets",
                         (long long)n, fl_dtype_name(dtype),
                         (long long)(targets->n_tokens * targets->width),
                         fl_dtype_name(targets->dtype));
}

fl_status fl_targets_expect_classes(const fl_tensor *targets, const fl_exec *x, int64_t n_classes)
{
    const fl_batch *batch = fl_exec_batch(x);
    const int32_t *values = batch->targets_host != NULL ? batch->targets_host : targets->data;
    int64_t sample = 0;
    for (int64_t i = 0; i < targets->n_tokens; i++) {
        while (i >= targets->offsets[sample + 1]) {
            sample++;
        }
        int32_t target = values[i];
        if (target < 0 || target >= n_classes) {
            char text[FL_EXEC_SAMPLE_BYTES];
            return fl_fail(FL_EINVAL, "%s: target %d, allowed is 0 to %lld",
                           fl_exec_sample_text(x, sample, text), target, (long long)n_classes - 1);
        }
    }
    return FL_OK;
}

/* ---- sums ---- */

void fl_loss_sums_add(fl_loss_sums *to, const fl_loss_sums *from)
{
    to->loss += from->loss;
    to->n_targets += from->n_targets;
    for (int i = 0; i < FL_METRICS_MAX; i++) {
        to->metric[i] += from->metric[i];
    }
}

fl_metric_means fl_loss_sums_means(const fl_loss_sums *sums, fl_metric_list list)
{
    fl_metric_means means = {.n = list.n};
    for (int i = 0; i < list.n; i++) {
        const fl_metric *metric = &list.metric[i];
        means.mean[i] =
            metric->value != NULL ? metric->value(sums) : sums->metric[i] / sums->n_targets;
    }
    return means;
}
