#include "control/controller/course/callbacks.h"

#include "control/controller/course/stop_request.h"
#include "control/controller/parts/parts.h"

#include <math.h>
#include <stdio.h>

/* A report has one split, or validation first and then test samples. */
static void split_scores(const fl_controller *controller, const fl_eval_report *report,
                         fl_scores *validation, fl_scores *test)
{
    const fl_metric_list *metrics = &controller->stats.metrics;
    const fl_scores none = {.loss = NAN, .accuracy = NAN};
    const fl_scores first = {report->samples, report->loss,
                             fl_metric_mean(metrics, &report->metrics, FL_ACCURACY)};
    const fl_scores second = {report->test_samples, report->test_loss,
                              fl_metric_mean(metrics, &report->test_metrics, FL_ACCURACY)};
    *validation = report->validation ? first : none;
    *test = !report->validation ? first : report->has_test ? second : none;
}

/* The answer is none of fl_callback_answer: the program has a defect. */
static void fail_for(fl_controller *controller, const char *callback, int answer)
{
    fl_shutdown *shutdown = &controller->shutdown;
    if (shutdown->status == FL_OK) {
        shutdown->status = FL_EFAILED;
        snprintf(shutdown->message, sizeof shutdown->message,
                 "%s returned %d; allowed: FL_CONTINUE (%d), FL_STOP (%d)", callback, answer,
                 FL_CONTINUE, FL_STOP);
        fl_stop_request(controller, callback);
    }
}

static void follow_answer(fl_controller *controller, const char *callback,
                          fl_callback_answer answer)
{
    bool goes_on = controller->stats.steps < controller->stats.n_steps &&
                   controller->shutdown.phase.n_stops == 0;
    if (answer != FL_CONTINUE && answer != FL_STOP) {
        fail_for(controller, callback, (int)answer);
    } else if (answer == FL_STOP && goes_on) {
        controller->shutdown.wish.by = callback;
        fl_stop_request(controller, callback);
    }
}

void fl_callbacks_epoch(fl_controller *controller)
{
    const fl_callbacks *callbacks = controller->options->callbacks;
    const fl_epoch_stats *past = &controller->stats.past;
    char plan[256];
    if (callbacks == NULL || callbacks->on_epoch == NULL) {
        return;
    }
    fl_epoch_result epoch = {.epoch = past->epoch + 1,
                             .steps = past->steps,
                             .samples = past->samples,
                             .steps_done = controller->stats.steps,
                             .train_loss = fl_run_stats_loss(past),
                             .seconds = past->ms * 1e-3,
                             .samples_per_s =
                                 past->ms > 0 ? (double)past->samples / past->ms * 1e3 : 0,
                             .validation = {.loss = NAN, .accuracy = NAN},
                             .test = {.loss = NAN, .accuracy = NAN},
                             .plan = fl_plan_text(&controller->elastic.plan, plan, sizeof plan)};
    const fl_eval_report *eval = past->evaluated ? &past->eval : NULL;
    epoch.n_metrics = fl_run_stats_name(&controller->stats, past, eval, epoch.metrics);
    if (eval != NULL) {
        split_scores(controller, eval, &epoch.validation, &epoch.test);
    }
    fl_runfiles_flush(&controller->log.files);
    follow_answer(controller, "on_epoch", callbacks->on_epoch(callbacks->context, &epoch));
}

void fl_callbacks_evaluation(fl_controller *controller, const fl_eval_report *report)
{
    const fl_callbacks *callbacks = controller->options->callbacks;
    char plan[256];
    if (callbacks == NULL || callbacks->on_evaluation == NULL) {
        return;
    }
    fl_evaluation_result evaluation = {
        .epoch = report->epoch + 1,
        .steps_done = report->step + 1,
        .seconds = report->ms * 1e-3,
        .plan = fl_plan_text(&controller->elastic.plan, plan, sizeof plan)};
    evaluation.n_metrics = fl_run_stats_name(&controller->stats, NULL, report, evaluation.metrics);
    split_scores(controller, report, &evaluation.validation, &evaluation.test);
    fl_runfiles_flush(&controller->log.files);
    follow_answer(controller, "on_evaluation",
                  callbacks->on_evaluation(callbacks->context, &evaluation));
}

void fl_callbacks_checkpoint(fl_controller *controller, const fl_checkpoint_outcome *outcome)
{
    const fl_callbacks *callbacks = controller->options->callbacks;
    char name[FL_CHECKPOINT_NAME_MAX], path[4096 + sizeof FL_CHECKPOINT_FOLDER + sizeof name];
    if (callbacks == NULL || callbacks->on_checkpoint == NULL) {
        return;
    }
    snprintf(path, sizeof path, "%s/%s/%s", controller->options->run_dir, FL_CHECKPOINT_FOLDER,
             fl_checkpoint_folder_name(outcome->step, name));
    const fl_checkpoint_result checkpoint = {.steps_done = outcome->step,
                                             .path = path,
                                             .bytes = outcome->bytes,
                                             .linked_bytes = outcome->linked_bytes,
                                             .seconds = outcome->seconds};
    fl_runfiles_flush(&controller->log.files);
    follow_answer(controller, "on_checkpoint",
                  callbacks->on_checkpoint(callbacks->context, &checkpoint));
}
