/* The event of a run that ends early: train.stop_after. */
#include "control/events/log/event_log.h"

#include <inttypes.h>
#include <stdio.h>

void fl_event_log_ending(fl_event_log *log, const fl_job *job, const fl_run_stats *stats)
{
    const fl_early_stop *stop = &stats->stop;
    char metric[FL_TEXT_MAX + 16], best[FL_PROGRESS_BEST_BYTES];
    snprintf(metric, sizeof metric, "%s_%s", stats->last_eval.validation ? "validation" : "test",
             fl_stop_rule_name(job));
    fl_json *j = fl_event_log_begin(log, "run.ending");
    fl_json_integer(j, "step", stats->n_steps);
    fl_json_integer(j, "last_step", stats->n_steps);
    fl_json_text(j, "why", "train.stop_after");
    fl_json_text(j, "metric", metric);
    fl_json_real(j, "best", stop->best);
    fl_json_integer(j, "best_step", stop->best_step);
    fl_json_integer(j, "best_epoch", stop->best_epoch - 1);
    fl_event_log_end(log);
    fl_progress_best(job, stats->last_eval.validation, stop->best, stop->best_epoch, best);
    fl_progress_note(&log->progress,
                     "ends after step %" PRId64 ": no improvement for %" PRId64
                     " steps (train.stop_after); %s",
                     stats->n_steps, stats->n_steps - stop->best_step, best);
}
