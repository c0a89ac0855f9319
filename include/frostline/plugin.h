/* A model of your own in a shared object that a job names: `model: {kind: plugin, plugin:
 * ./libmine.so}`.
 *
 * The shared object exports one symbol, frostline_plugin, and leaves the fl_ functions it calls
 * undefined: they come from the program that loads it, which must be of the version it was compiled
 * against. Compile it with -fPIC -shared. */
#ifndef FROSTLINE_PLUGIN_H
#define FROSTLINE_PLUGIN_H

#include <frostline/dataset.h>
#include <frostline/job.h>
#include <frostline/model.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_PLUGIN_SYMBOL "frostline_plugin"
#define FL_EXPORT __attribute__((visibility("default")))

/* Make the model that is to be trained, and the data set unless the job's data section shall give
 * it (*dataset is empty when called; leave it so).
 * Both are the caller's on success. On failure neither is: free what you made, and fail with
 * fl_fail. Called once, before any worker is forked. */
typedef fl_status fl_plugin_entry(const fl_job *job, fl_model **model, fl_dataset *dataset);

/* The functions that a plugin defines. */
FL_EXPORT fl_plugin_entry frostline_plugin;

#ifdef __cplusplus
}
#endif
#endif
