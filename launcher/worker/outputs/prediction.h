/* A sample's prediction as a line of JSON, on the worker that has the last stage. docs/weights.md
 * describes the line. */
#ifndef FL_LAUNCHER_WORKER_OUTPUTS_PREDICTION_H
#define FL_LAUNCHER_WORKER_OUTPUTS_PREDICTION_H

#include "control/events/json.h"
#include "pipe/step/outputs.h"

#include <frostline/model.h>

/* Of one model and its data; it keeps its memory from sample to sample. */
typedef struct fl_prediction {
    const fl_loss *loss;
    const fl_dataset *dataset, *squad; /* squad: its questions are answered; NULL: there are none */
    const fl_dataset *whole;           /* of which `dataset` is a view, or `dataset` itself */
    bool many_rows; /* some sample may have several rows: every value is then a list over rows */
    float *scores;  /* [width of a row] */
    const char *const *names; /* [n_names] of the classes; NULL where they are their numbers */
    int n_names;
    int64_t n_scores;
    fl_json line;
} fl_prediction;

/* FL_EINVAL if the model does not take the data set's samples. */
fl_status fl_prediction_init(fl_prediction *prediction, const fl_model *model,
                             const fl_dataset *dataset) FL_MUST_CHECK;
void fl_prediction_fini(fl_prediction *prediction);

/* The line of sample s, with its newline, in prediction->line until the next call. id: what the
 * data set itself numbers it. FL_ENOMEM. */
fl_status fl_prediction_write(fl_prediction *prediction, const fl_outputs *outputs, int64_t s,
                              int64_t id) FL_MUST_CHECK;

#endif
