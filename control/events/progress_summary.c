/* The block at the end of a run. */
#include "control/events/progress.h"

#include "control/events/progress_text.h"
#include "control/state/sums/checkpoint_sums.h"
#include "pipe/state/checkpoint/checkpoint_files.h"

#include "device/text/plural.h"
#include "device/text/shell_text.h"

#include <math.h>
#include <string.h>

enum { EPOCHS_MAX = 1000000 /* upper bound of a job */ };

/* A text that begins with the name of its line does not repeat it. */
static void summary_line(FILE *out, const char *name, const char *text)
{
    size_t n = strlen(name);
    bool repeats = strncmp(text, name, n) == 0 && text[n] == ' ';
    fprintf(out, "  %-14s %s\n", name, text + (repeats ? n + 1 : 0));
}

/* " (after 20 steps)" of an evaluation that was not of the last step; else "". */
static const char *evaluated_text(const fl_run_result *result, const fl_progress_end *end,
                                  char text[FL_COUNT_BYTES + 16])
{
    char n[FL_COUNT_BYTES];
    text[0] = '\0';
    if (end->evaluated > 0 && end->evaluated < result->steps) {
        snprintf(text, FL_COUNT_BYTES + 16, " (after %s)", fl_count(end->evaluated, "step", n));
    }
    return text;
}

static void summary_of_training(FILE *out, const fl_run_result *result, const fl_progress_end *end)
{
    char training[24], all[24], value[FL__PROGRESS_VALUE_BYTES], after[FL_COUNT_BYTES + 16];
    evaluated_text(result, end, after);
    if (isfinite(result->test_loss) || isfinite(result->test_accuracy)) {
        for (int i = 0; i < result->n_metrics; i++) {
            const fl_metric_result *m = &result->metrics[i];
            fprintf(out, "  test %-9s %s%s\n", m->name,
                    fl__progress_value(m->test, m->is_share, value), after);
        }
        fprintf(out, "  test loss      %.4f%s\n", result->test_loss, after);
    }
    if (isfinite(result->validation_loss)) {
        fprintf(out, "  validation     ");
        for (int i = 0; i < result->n_metrics; i++) {
            const fl_metric_result *m = &result->metrics[i];
            bool named = strcmp(m->name, FL_ACCURACY) != 0;
            fprintf(out, "%s%s%s, ", named ? m->name : "", named ? " " : "",
                    fl__progress_value(m->validation, m->is_share, value));
        }
        fprintf(out, "loss %.4f%s\n", result->validation_loss, after);
    }
    if (result->steps > 0) {
        fprintf(out, "  train loss     %.4f\n", result->train_loss);
        fprintf(out, "  time           %s in training, %s in total\n",
                fl__progress_duration(result->seconds, training, sizeof training),
                fl__progress_duration(result->wall_seconds, all, sizeof all));
        fprintf(out, "  speed          %.0f samples/s\n", result->samples_per_s);
    }
    if (result->skipped_steps > 0) {
        fprintf(out, "  skipped        %lld step%s: loss or gradient norm was not finite\n",
                (long long)result->skipped_steps, result->skipped_steps == 1 ? "" : "s");
    }
}

/* The symbols used everywhere else, each with its meaning. */
static void summary_of_plan(FILE *out, const fl_plan *plan)
{
    char frozen[32] = "";
    if (plan->F > 0) {
        snprintf(frozen, sizeof frozen, "%d block%s frozen, ", plan->F,
                 fl_plural_ending(plan->F, "block"));
    }
    fprintf(out, "  plan           %sK=%d stage%s x R=%d replica%s x M=%d micro-batch%s\n", frozen,
            plan->K, fl_plural_ending(plan->K, "stage"), plan->R,
            fl_plural_ending(plan->R, "replica"), plan->M,
            fl_plural_ending(plan->M, "micro-batch"));
}

/* A run without a checkpoint can only begin again. */
static bool can_continue(const fl_checkpoint_sums *sums)
{
    return sums != NULL && sums->any;
}

/* What the commands need in addition, so that the run has its hosts again. */
static const char *host_options(const fl_controller_options *options)
{
    return options->host_options == NULL ? "" : options->host_options;
}

/* The same command by hand would train on this host alone. */
static void say_who_starts(FILE *out, const fl_controller_options *options)
{
    if (options->hosts != NULL && options->hosts->meeting[0] != '\0') {
        fprintf(out, "                 as tasks on the same hosts (srun, mpirun)\n");
    }
}

static void suggest_longer(FILE *out, const fl_controller_options *options, bool continues,
                           const char *how, const char *set)
{
    const char *hosts = host_options(options);
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    if (continues) {
        fprintf(out, "  train longer   %s:\n                 frostline run --resume %s%s \\\n", how,
                run, hosts);
    } else {
        fprintf(out,
                "  train longer   from the first step, %s:\n"
                "                 frostline run %s/job.yaml%s \\\n",
                how, run, hosts);
    }
    fprintf(out, "                     --set %s\n", set);
    say_who_starts(out, options);
}

static void summary_of_training_again(FILE *out, const fl_controller_options *options,
                                      const fl_run_result *result, const fl_progress_end *end)
{
    const fl_job *job = options->job;
    char run[FL_SHELL_PATH_BYTES];
    const char *dir = fl_shell_shown(options->run_dir, run, sizeof run);
    fl_status status = end->status;
    bool continues = can_continue(end->checkpoints);
    char set[64];
    snprintf(set, sizeof set, "train.epochs=%lld", (long long)(2 * job->train.epochs));
    if (job->model.kind == FL_MODEL_PROGRAM) {
        fprintf(out, "  train again    start the program again\n");
    } else if (status != FL_OK && continues) {
        fprintf(out, "  continue       frostline run --resume %s%s\n", dir, host_options(options));
        say_who_starts(out, options);
    } else if (status != FL_OK) {
        fprintf(out, "  train again    frostline run %s/job.yaml%s\n", dir, host_options(options));
        say_who_starts(out, options);
    } else if (result->ended_early) {
        suggest_longer(out, options, continues, "to the end of the last epoch",
                       "train.stop_after=none");
    } else if (job->train.max_steps > 0) {
        suggest_longer(out, options, continues, "to the end of the last epoch",
                       "train.max_steps=none");
    } else if (2 * job->train.epochs <= EPOCHS_MAX) {
        suggest_longer(out, options, continues, "with twice the epochs", set);
    }
}

static void summary_of_what_next(FILE *out, const fl_controller_options *options,
                                 const fl_run_result *result, const fl_progress_end *end)
{
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    fprintf(out, "  as a page      frostline report %s\n", run);
    fprintf(out, "  the proof      frostline ledger %s\n", run);
    if (options->plan->K > 1) {
        fprintf(out, "  the schedule   frostline schedule --schedule %s -k %d -m %d\n",
                fl_schedule_text(options->plan->schedule), options->plan->K, options->plan->M);
    }
    summary_of_training_again(out, options, result, end);
}

static void summary_of_checkpoints(FILE *out, const fl_controller_options *options,
                                   const fl_checkpoint_sums *sums)
{
    char name[FL_CHECKPOINT_NAME_MAX], failed[FL_COUNT_BYTES], run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    if (sums != NULL && sums->any) {
        fprintf(out, "  checkpoint     %s/checkpoints/%s\n", run,
                fl_checkpoint_folder_name(sums->last_step, name));
    }
    if (sums != NULL && sums->any && sums->best_step > 0 && sums->best_step != sums->last_step) {
        fprintf(out, "                 %s/checkpoints/" FL_CHECKPOINT_BEST " is %s\n", run,
                fl_checkpoint_folder_name(sums->best_step, name));
    }
    if (sums != NULL && sums->n_failed > 0) {
        fprintf(out, "                 %s could not be written: see events.jsonl\n",
                fl_count(sums->n_failed, "checkpoint", failed));
    }
}

static void summary_of_losses(FILE *out, const fl_recovery_sums *sums)
{
    char n[FL_COUNT_BYTES];
    if (sums == NULL || sums->n_losses + sums->n_recoveries + sums->n_returns == 0) {
        return;
    }
    if (sums->n_losses > 1) { /* maybe the same one each time */
        fprintf(out, "  losses         workers lost %s", fl_count(sums->n_losses, "time", n));
    } else {
        fprintf(out, "  losses         %s lost", fl_count(sums->n_losses, "worker", n));
    }
    if (sums->n_returns > 0) {
        fprintf(out, "; the run went back %s", fl_count(sums->n_returns, "time", n));
        fprintf(out, " and repeated %s", fl_count(sums->n_repeated, "step", n));
    }
    fprintf(out, "; %.1f s without training\n", (double)sums->lost_us * 1e-6);
}

void fl_progress_summary(FILE *out, const fl_controller_options *options,
                         const fl_run_result *result, const fl_progress_end *end)
{
    int64_t hash_weights = options->job->train.hash_weights;
    char run[FL_SHELL_PATH_BYTES];
    fl_shell_shown(options->run_dir, run, sizeof run);
    const char *how = end->status == FL_OK         ? "done"
                      : end->status == FL_ESTOPPED ? "stopped"
                                                   : "failed";
    fprintf(out, "\n%s after %lld of %lld steps\n", how, (long long)result->steps,
            (long long)options->n_steps);
    if (end->message[0] != 0) {
        fprintf(out, "  why            %s\n", end->message);
    }
    summary_of_training(out, result, end);
    if (result->best_epoch > 0) {
        char best[FL_PROGRESS_BEST_BYTES];
        fl_progress_best(options->job, options->n_validation > 0, result->best, result->best_epoch,
                         best);
        summary_line(out, result->ended_early ? "ended early" : "best", best);
    }
    summary_of_plan(out, options->plan);
    if (end->tuning[0] != 0) {
        fprintf(out, "  tuning         %s\n", end->tuning);
    }
    summary_of_losses(out, end->recovery);
    if (end->ledger[0] != 0) {
        fprintf(out, "  ledger         %s\n", end->ledger);
    }
    if (end->missing[0] != 0) {
        fprintf(out, "  record         INCOMPLETE: %s\n", end->missing);
    }
    if (result->model[0] != 0) {
        fprintf(out, "  model          %s/model/model.safetensors\n", run);
    }
    summary_of_checkpoints(out, options, end->checkpoints);
    fprintf(out, "  run directory  %s\n", run);
    fprintf(out,
            "                 job.yaml, steps.jsonl, events.jsonl, ledger.bin,\n"
            "                 summary.txt, worker-N.log%s%s\n",
            hash_weights > 0 && result->steps >= hash_weights ? ", weights.jsonl" : "",
            result->model[0] != 0 ? ", model/" : "");
    summary_of_what_next(out, options, result, end);
    fflush(out);
}
