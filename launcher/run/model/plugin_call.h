/* A plugin's code in this process: loading it, and the call of its create function. A crash there
 * writes which plugin it was to standard error and ends the process with the code of FL_EFAILED. */
#ifndef FL_LAUNCHER_RUN_MODEL_PLUGIN_CALL_H
#define FL_LAUNCHER_RUN_MODEL_PLUGIN_CALL_H

#include <frostline/plugin.h>

/* Open the shared object at `path`, which runs its constructors. FL_EINVAL with the loader's
 * message. Threads: one call at a time, of both functions. */
fl_status fl_plugin_load(const fl_job *job, const char *path, void **handle) FL_MUST_CHECK;

/* Call `create` once, and return what it returns. A failure without fl_fail leaves fl_errmsg()
 * empty. */
fl_status fl_plugin_call(fl_plugin_entry *create, const fl_job *job, fl_model **model,
                         fl_dataset *dataset) FL_MUST_CHECK;

#endif
