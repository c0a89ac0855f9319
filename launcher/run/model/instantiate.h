/* Creates the model and the data set that a job's sections describe. */
#ifndef FL_LAUNCHER_RUN_MODEL_INSTANTIATE_H
#define FL_LAUNCHER_RUN_MODEL_INSTANTIATE_H

#include <frostline/dataset.h>
#include <frostline/job.h>
#include <frostline/model.h>

/* On success the caller owns both; on failure both are empty. Messages about a value start with the
 * field's path. A plugin's shared object stays loaded until the process ends: it holds the
 * functions of the objects that it made. */
fl_status fl_instantiate(const fl_job *job, fl_model **model, fl_dataset *dataset) FL_MUST_CHECK;

#endif
