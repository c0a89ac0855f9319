#include "control/controller/report/summary.h"

#include "control/controller/parts/parts.h"
#include "control/controller/report/lasting.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void fl_summary_result(const fl_controller *controller, fl_run_result *result)
{
    *result = (fl_run_result){.K = controller->elastic.plan.K,
                              .R = controller->elastic.plan.R,
                              .M = controller->elastic.plan.M};
    fl_run_stats_result(&controller->stats, result);
    if (controller->options->job->train.on_nonfinite == FL_ON_NONFINITE_STOP) {
        result->skipped_steps = 0; /* the step that was not finite ended the run */
    }
    result->terminated =
        controller->shutdown.status == FL_ESTOPPED && controller->shutdown.wish.signal == SIGTERM;
    result->worker_lost =
        controller->shutdown.status == FL_EFAILED && controller->shutdown.phase.lost >= 0;
    result->wall_seconds = (double)(fl_now_us() - controller->log.files.start_us) * 1e-6;
    snprintf(result->run_dir, sizeof result->run_dir, "%s", controller->options->run_dir);
}

bool fl_summary_begins_again(const fl_controller *controller, fl_status status)
{
    const fl_controller_options *o = controller->options;
    return status != FL_OK && status != FL_ESTOPPED && o->begins_again != NULL &&
           o->begins_again(o->find_context);
}

/* Its process tells the failure, together with the loss. One that is stopped is told here. */
static bool goes_back(const fl_controller *controller)
{
    const fl_resume_origin *origin = controller->options->origin;
    return origin != NULL && origin->why != NULL;
}

fl_status fl_summary_no_start(fl_controller *controller, fl_status status)
{
    fl_event_log *log = &controller->log;
    char text[FL_FAILURE_TEXT_MAX + 2];
    fl_failure failure;
    fl_run_result none = {0};
    fl_failure_keep(&failure, status);
    if (fl_summary_begins_again(controller, status)) { /* that is no end of the run */
        return fl_failure_raise(&failure);
    }
    bool tells = status == FL_ESTOPPED || !goes_back(controller);
    if (tells && log->plan != NULL && log->files.fd[FL_RUNFILE_EVENTS] >= 0) {
        fl_run_stats_result(&controller->stats, &none);
        fl_event_log_over(log, status, failure.text, &none, &controller->recovery.sums, "", "");
        int n = snprintf(text, sizeof text, "%s\n", failure.text);
        fl_runfiles_summary(&log->files, text, (size_t)n);
    }
    return fl_failure_raise(&failure);
}

/* The command as the user would type it in the directory where the run was started. */
static const char *from_here(const char *path)
{
    char here[PATH_MAX];
    size_t n = getcwd(here, sizeof here) == NULL ? 0 : strlen(here);
    bool below = n > 0 && strncmp(path, here, n) == 0 && path[n] == '/';
    return below ? path + n + 1 : path;
}

/* For summary.txt: the reader may be in any directory. */
static void write_summary(fl_controller *controller, const fl_controller_options *options,
                          const fl_run_result *result, const fl_progress_end *end)
{
    char *text = NULL;
    size_t size_bytes = 0;
    FILE *file = open_memstream(&text, &size_bytes);
    if (file == NULL) {
        fl_log(FL_LOG_WARN, "summary.txt: out of memory");
        return;
    }
    fl_progress_summary(file, options, result, end);
    if (fclose(file) == 0) {
        fl_runfiles_summary(&controller->log.files, text, size_bytes);
    }
    free(text);
}

/* Into the run directory, and to the end of the output unless the run failed: then the message of
 * the failure is the end of the output. */
void fl_summary_write(fl_controller *controller, const fl_run_result *result, const char *missing)
{
    bool good = controller->shutdown.status == FL_OK || controller->shutdown.status == FL_ESTOPPED;
    const fl_run_stats *stats = &controller->stats;
    char tuning[128];
    fl_controller_options at_the_end = *controller->options;
    fl_progress_end end = {.status = controller->shutdown.status,
                           .message = good ? "" : controller->shutdown.message,
                           .ledger = controller->ledger.text,
                           .missing = missing,
                           .checkpoints = &controller->checkpoints.sums,
                           .recovery = &controller->recovery.sums,
                           .evaluated = stats->any_eval ? stats->last_eval.step + 1 : 0,
                           .tuning = fl_tune_summary(&controller->elastic, tuning, sizeof tuning)};
    at_the_end.plan = &controller->elastic.plan;
    write_summary(controller, &at_the_end, result, &end);
    if (good) {
        at_the_end.run_dir = from_here(controller->options->run_dir);
        fl_progress_summary(stdout, &at_the_end, result, &end);
    }
}
