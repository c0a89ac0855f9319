/* The model and the data set of a saved model, as its config.json, the job and the command line
 * have them. */
#ifndef FL_LAUNCHER_RUN_SAVED_SAVED_BUILD_H
#define FL_LAUNCHER_RUN_SAVED_SAVED_BUILD_H

#include "launcher/run/saved/saved_model.h"

/* use->job, saved and config are there; fills model and whole. Returns as fl_use_open. */
fl_status fl__saved_build(const fl_use_request *r, fl_use *use) FL_MUST_CHECK;

/* Whether the command line sets this field of the job. */
bool fl__use_has_override(const fl_use_request *r, const char *path);

#endif
