/* Train a model. */
#ifndef FROSTLINE_RUN_H
#define FROSTLINE_RUN_H

#include <frostline/dataset.h>
#include <frostline/job.h>
#include <frostline/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One metric of the model's loss (fl_loss_ops.metrics): means over targets. NAN: not evaluated on
 * these samples. */
typedef struct fl_metric_result {
    char name[FL_METRIC_NAME_MAX];
    bool is_share;           /* 0 to 1; people see it in percent */
    double train;            /* mean of an epoch's steps that were not skipped */
    double validation, test; /* of the evaluation */
} fl_metric_result;

/* How a run ended. */
typedef struct fl_run_result {
    int64_t steps, epochs;           /* completed */
    double train_loss;               /* mean of the last epoch's steps that were not skipped */
    double test_loss, test_accuracy; /* of the last evaluation on test samples; NAN: none, or the
                                      * loss has no metric `accuracy`; 0 to 1 */
    double seconds; /* from the first step to the last, without evaluations, pauses and losses */
    double samples_per_s;
    double wall_seconds; /* from the start of the workers to the end of the last one */
    int K, R, M;         /* of the plan that it began with */
    char run_dir[4096];
    double validation_loss, validation_accuracy; /* of the last evaluation on validation samples;
                                                  * NAN if there was none */
    int64_t skipped_steps; /* of `steps`: their loss or gradient norm was not finite, and the
                            * optimizer's step was left out (train.on_nonfinite is skip) */
    int n_metrics;         /* of the model's loss */
    fl_metric_result metrics[FL_METRICS_MAX]; /* train: of the last epoch; validation, test: of the
                                               * last evaluation */
    char model[4096 + 32]; /* the file of the trained weights; "": none (run.save_model) */
    /* Of a run with train.stop_after or train.metric: */
    bool ended_early;               /* for lack of improvement; the status is then FL_OK */
    int64_t best_epoch, best_steps; /* the epoch of the best evaluation, from 1, and the steps done
                                     * before it; 0: there was none */
    double best;                    /* its value of train.metric; NAN: none was finite */
    bool terminated;                /* FL_ESTOPPED because of SIGTERM */
    bool worker_lost; /* FL_EFAILED because a worker was lost: fl_run_resume can continue the run */
} fl_run_result;

/* Train `model` on `dataset` as `job` says, to the end: plan, fork one worker a device, watch them.
 * The caller becomes the controller. Call it before the process has made threads or used OpenMP:
 * workers are forks of the caller and see its model and data set as they are now. Output goes to
 * standard output and standard error as for `frostline run`. The trained weights are left in the
 * run directory (result->model); the caller's model is unchanged. job->model.init gives weights to
 * start from.
 *
 * model, dataset, job  borrowed; of the job's sections model and data only data.samples counts, and
 *                      data.augment where the cache needs it
 * result    may be NULL; after a failure it holds what was reached
 *
 * Returns   FL_OK
 *           FL_ESTOPPED: SIGINT, SIGTERM (result->terminated), `frostline ctl stop` or a callback
 * of fl_run_with FL_EFAILED: a worker died, stopped answering or reported an error, and the message
 *           names it; or a loss or gradient norm was not finite, and the message names step, layer,
 *           worker and samples; or the controller had no memory for a worker's report; or the run
 *           trained to its end but its files could not be written, and the message names what is
 *           missing
 *           FL_EBUSY: a run of this process is in progress; nothing was done
 *           any other status if no worker was started: FL_EINVAL, FL_EBUDGET, FL_EIO (the run
 *           directory), FL_ENOMEM
 * Threads   one run per process at a time */
fl_status fl_run(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                 fl_run_result *result) FL_MUST_CHECK;

/* ---- callbacks ---- */

/* What a callback returns. FL_STOP ends the run after the step in flight, as `frostline ctl stop`
 * does: fl_run_with then returns FL_ESTOPPED. Workers have trained on since the event, so a few
 * more steps are done. After the last step of the run, FL_STOP has no effect. Any other value is a
 * defect of the program: the run ends as after FL_STOP, with FL_EFAILED and a message. */
typedef enum fl_callback_answer { FL_CONTINUE = 0, FL_STOP = 1 } fl_callback_answer;

/* Means over the targets of the samples of one split. */
typedef struct fl_scores {
    int64_t samples;       /* 0: the split was not evaluated */
    double loss, accuracy; /* NAN if it was not; accuracy 0 to 1, NAN without such a metric */
} fl_scores;

/* An epoch of which all steps are done, or the part of it that the run came to. */
typedef struct fl_epoch_result {
    int64_t epoch;          /* 1: the first one (in events.jsonl that is epoch 0) */
    int64_t steps, samples; /* of this epoch */
    int64_t steps_done;     /* by the run so far */
    double train_loss;      /* mean of its steps that were not skipped; NAN: all were */
    double seconds;         /* of its steps, without evaluation */
    double samples_per_s;
    fl_scores validation, test; /* of the evaluation after its last step, if there was one */
    const char *plan;           /* by which the run trains now, as events.jsonl has it */
    int n_metrics;              /* of the model's loss */
    fl_metric_result metrics[FL_METRICS_MAX];
} fl_epoch_result;

/* One evaluation. The last one of a run with validation samples has both scores. A metric's `train`
 * is NAN. */
typedef struct fl_evaluation_result {
    int64_t epoch;      /* to which the last step before it belongs; 1: the first one */
    int64_t steps_done; /* by the run before it */
    double seconds;
    fl_scores validation, test;
    const char *plan;
    int n_metrics;
    fl_metric_result metrics[FL_METRICS_MAX];
} fl_evaluation_result;

/* A checkpoint that is complete and on the disk. */
typedef struct fl_checkpoint_result {
    int64_t steps_done;          /* the steps that it holds the state after */
    const char *path;            /* its folder, which model.init and fl_weights_open accept */
    int64_t bytes, linked_bytes; /* of its files: written; shared with an older checkpoint */
    double seconds;              /* from the request until it was on the disk */
} fl_checkpoint_result;

/* Functions of the program that a run calls. Each may be NULL. Later versions append fields to this
 * struct and to those above: fill it by the names of its fields, and leave the others zero.
 *
 * on_evaluation  after each evaluation
 * on_epoch       after the last step of an epoch and the evaluation that follows it, if one does
 * on_checkpoint  after each checkpoint. The run has trained on since. It removes older checkpoints
 *                beyond checkpoint.keep: the folder exists until as many newer ones are written
 * on_end         once, as the last act of fl_run_with, however it ends, also where no worker was
 *                started: the status that it returns, and its result. fl_errmsg() has the message
 *                of a failure. All files of the run are written and closed
 *
 * Process   the caller's, which is the controller. The weights are in the workers, other processes,
 *           and cannot be read here. What a callback changes in memory, workers do not see
 * Threads   the one that called fl_run_with; one callback at a time
 * Time      workers go on training meanwhile, and the time does not count against them. But the
 *           controller does nothing else: it notices a lost worker, answers Ctrl-C and `frostline
 *           ctl`, and changes plans after the callback has returned. It must return within
 *           fault.deadline: workers that need a decision wait for it no longer
 * Lifetime  a result, with its texts, is valid until the callback returns
 * Files     the event is in events.jsonl by then (epoch.finished, evaluation, checkpoint.written)
 *
 * A callback must not call fl_run or fl_run_with: the call returns FL_EBUSY, and its on_end is not
 * called. */
typedef struct fl_callbacks {
    void *context; /* the first argument of each */
    fl_callback_answer (*on_epoch)(void *context, const fl_epoch_result *epoch);
    fl_callback_answer (*on_evaluation)(void *context, const fl_evaluation_result *evaluation);
    void (*on_end)(void *context, fl_status status, const fl_run_result *result);
    fl_callback_answer (*on_checkpoint)(void *context, const fl_checkpoint_result *checkpoint);
} fl_callbacks;

/* fl_run with callbacks, which are borrowed until it returns; NULL: none. */
fl_status fl_run_with(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_callbacks *callbacks, fl_run_result *result) FL_MUST_CHECK;

/* Continue an interrupted run of this program in its directory `run_dir`, from its newest whole
 * checkpoint: docs/checkpoints.md. model, dataset and job are those of the run; fields of the job
 * that may change (frostline schema FIELD) can have another value, as train.epochs to make the run
 * longer. Steps and epochs count from the beginning of the run, in results and callbacks as well.
 *
 * Returns as fl_run_with. FL_EINVAL or FL_EIO with the reason, and nothing changed on the disk, if
 * the run cannot be continued: it still trains, no checkpoint of it can be used, the model, the
 * data set or a field of the job is another one, it has finished all of its steps. */
fl_status fl_run_resume(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                        const char *run_dir, const fl_callbacks *callbacks,
                        fl_run_result *result) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
