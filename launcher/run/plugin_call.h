/* The call of a plugin's create function. */
#ifndef FL_LAUNCHER_RUN_PLUGIN_CALL_H
#define FL_LAUNCHER_RUN_PLUGIN_CALL_H

#include <frostline/plugin.h>

/* Call `create` in this process, once, and return what it returns. If it crashes, write which
 * plugin's function it was to standard error and end the process with the code of FL_EFAILED.
 * A failure without fl_fail leaves fl_errmsg() empty. Threads: one call at a time. */
fl_status fl_plugin_call(fl_plugin_entry *create, const fl_job *job, fl_model **model,
                         fl_dataset *dataset) FL_MUST_CHECK;

#endif
