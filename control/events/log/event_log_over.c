/* Events of the end of a run. */
#include "control/events/log/event_log.h"

#include <math.h>

static void result_metric_fields(fl_json *j, const fl_run_result *result)
{
    fl_metric metric[FL_METRICS_MAX];
    fl_metric_list list = {.metric = metric, .n = result->n_metrics};
    fl_metric_means train = {.n = list.n}, validation = train, test = train;
    for (int i = 0; i < list.n; i++) {
        metric[i] = (fl_metric){.name = result->metrics[i].name};
        train.mean[i] = result->metrics[i].train;
        validation.mean[i] = result->metrics[i].validation;
        test.mean[i] = result->metrics[i].test;
    }
    fl_fields_metrics(j, "train", &list, &train);
    if (isfinite(result->validation_loss)) {
        fl_fields_metrics(j, "validation", &list, &validation);
    }
    fl_fields_metrics(j, "test", &list, &test);
}

static void result_fields(fl_json *j, const fl_run_result *result)
{
    fl_json_integer(j, "steps", result->steps);
    fl_json_integer(j, "epochs", result->epochs);
    fl_json_integer(j, "skipped_steps", result->skipped_steps);
    fl_json_real(j, "train_loss", result->train_loss);
    if (isfinite(result->validation_loss)) {
        fl_json_real(j, "validation_loss", result->validation_loss);
    }
    fl_json_real(j, "test_loss", result->test_loss);
    result_metric_fields(j, result);
    fl_json_rounded(j, "seconds", result->seconds, 6);
    fl_json_rounded(j, "samples_per_s", result->samples_per_s, 1);
}

void fl_event_log_model(fl_event_log *log, int n_tensors, int64_t size_bytes)
{
    fl_json *j = fl_event_log_begin(log, "model.saved");
    fl_json_text(j, "path", "model/model.safetensors");
    fl_json_integer(j, "tensors", n_tensors);
    fl_json_integer(j, "bytes", size_bytes);
    fl_event_log_end(log);
}

void fl_event_log_over(fl_event_log *log, fl_status status, const char *message,
                       const fl_run_result *result, const fl_recovery_sums *losses,
                       const char *ledger, const char *missing)
{
    bool good = status == FL_OK || status == FL_ESTOPPED;
    fl_json *j = fl_event_log_begin(log, status == FL_OK ? "run.finished"
                                         : good          ? "run.stopped"
                                                         : "run.failed");
    fl_json_text(j, "status", fl_status_text(status));
    if (!good) {
        fl_json_text(j, "message", message);
    }
    result_fields(j, result);
    if (losses->lost_us > 0) {
        fl_json_rounded(j, "all_without_training_ms", (double)losses->lost_us * 1e-3, 3);
    }
    if (ledger[0] != 0) {
        fl_json_text(j, "ledger", ledger);
    }
    if (missing[0] != 0) {
        fl_json_text(j, "record_missing", missing);
    }
    fl_event_log_end(log);
}
