/* From the job's model and data sections to a model and a data set. */
#ifndef FL_LAUNCHER_RUN_INSTANTIATE_H
#define FL_LAUNCHER_RUN_INSTANTIATE_H

#include <frostline/dataset.h>
#include <frostline/job.h>
#include <frostline/model.h>

/* Both are the caller's on success; on failure both are left empty.
 * Messages about a value begin with the field's path. A plugin's shared object stays loaded to the
 * end of the process: the vtables of what it made live in it. */
fl_status fl_instantiate(const fl_job *job, fl_model **model, fl_dataset *dataset) FL_MUST_CHECK;

#endif
