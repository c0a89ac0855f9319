/* A model of your own in a shared object that a job names: `model: {kind: plugin, plugin:
 * ./libmine.so}`.
 *
 *     #include <frostline.h>
 *     #include <frostline/plugin.h>
 *
 *     static fl_status create(const fl_job *job, fl_model **model, fl_dataset *dataset) { ... }
 *     FL_PLUGIN(create)
 *
 * The shared object exports one symbol, frostline_plugin, and leaves the fl_ functions it calls
 * undefined: they come from the program that loads it. Compile it with -fPIC -shared. A program of
 * another version of the API refuses it before it calls anything in it. */
#ifndef FROSTLINE_PLUGIN_H
#define FROSTLINE_PLUGIN_H

#include <frostline/dataset.h>
#include <frostline/exec.h>
#include <frostline/job.h>
#include <frostline/model.h>
#include <frostline/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FL_PLUGIN_SYMBOL "frostline_plugin"
#define FL_PLUGIN_MAGIC "frostpl"
#define FL_EXPORT __attribute__((visibility("default")))

/* Make the model that is to be trained, and the data set unless the job's data section shall give
 * it (*dataset is empty when called; leave it so).
 * Both are the caller's on success. On failure neither is: free what you made, and fail with
 * fl_fail. Called once, before any worker is forked. */
typedef fl_status fl_plugin_entry(const fl_job *job, fl_model **model, fl_dataset *dataset);

enum { FL_PLUGIN_SIZES = 4 };

/* What a plugin exports. The first four fields stay as they are in every version. */
typedef struct fl_plugin {
    char magic[8];       /* FL_PLUGIN_MAGIC */
    uint32_t version;    /* FL_API_VERSION when it was compiled */
    uint32_t size_bytes; /* of this struct */
    /* of fl_job, fl_tensor, fl_batch, fl_loss_sums: found changed where the version was forgotten
     */
    uint32_t sizes[FL_PLUGIN_SIZES];
    fl_plugin_entry *create;
} fl_plugin;

#define FL_PLUGIN_SIZE_LIST                                                                        \
    {                                                                                              \
        sizeof(fl_job), sizeof(fl_tensor), sizeof(fl_batch), sizeof(fl_loss_sums)                  \
    }

/* Defines the symbol, with the function that makes the model. */
#define FL_PLUGIN(function)                                                                        \
    FL_EXPORT extern const fl_plugin frostline_plugin;                                             \
    FL_EXPORT const fl_plugin frostline_plugin = {.magic = FL_PLUGIN_MAGIC,                        \
                                                  .version = FL_API_VERSION,                       \
                                                  .size_bytes = sizeof(fl_plugin),                 \
                                                  .sizes = FL_PLUGIN_SIZE_LIST,                    \
                                                  .create = (function)};

#ifdef __cplusplus
}
#endif
#endif
