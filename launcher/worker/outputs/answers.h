/* Answers to whole questions, where a model that finds spans is evaluated on a data set of kind
 * squad: windows of one question may be on several workers.
 *
 *     last stage: outputs of a window ──> its choice ──> the choices of all workers, added up
 *         ──> exact match and F1 of each question, in the sums of the loss
 *
 * With any other model or data set nothing happens here. */
#ifndef FL_LAUNCHER_WORKER_OUTPUTS_ANSWERS_H
#define FL_LAUNCHER_WORKER_OUTPUTS_ANSWERS_H

#include "data/squad/answers.h"
#include "data/squad/squad_dataset.h"
#include "pipe/step/pipeline.h"

#include <frostline/model.h>

/* Of one evaluation. A struct of zeros has no questions. */
typedef struct fl_answers {
    const fl_dataset *dataset; /* the run's, which may be a view; NULL: there are no questions */
    const fl_dataset *squad;   /* the data set itself */
    fl_split split;            /* of its samples that are evaluated */
    double *values;            /* [n_windows, VALUES]; 0 where another worker has the window */
} fl_answers;

/* Whether the data set has questions that the model answers; *squad: the data set behind a view. */
bool fl_answers_has_questions(const fl_model *model, const fl_dataset *dataset,
                              const fl_dataset **squad);

/* sample: one of those that will be evaluated, as `dataset` numbers its test split. FL_ENOMEM */
fl_status fl_answers_init(fl_answers *answers, const fl_model *model, const fl_dataset *dataset,
                          int64_t sample) FL_MUST_CHECK;
void fl_answers_fini(fl_answers *answers);

/* Have the pipeline give its outputs to the answers, if there are questions, until
 * fl_pipeline_watch_outputs is called with NULL. */
void fl_answers_watch(fl_answers *answers, fl_pipeline *pipeline);

/* Add up what all workers have: every worker of the pipeline calls this. With `scores`, add exact
 * match and F1 to the sums. */
fl_status fl_answers_end(fl_answers *answers, fl_pipeline *pipeline, bool scores,
                         fl_loss_sums *sums) FL_MUST_CHECK;

#endif
