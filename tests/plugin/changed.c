/* A plugin of this version, but compiled with a struct of another size. It must not be called. */
#include <frostline.h>
#include <frostline/plugin.h>

#include <stdlib.h>

static fl_status create(const fl_job *job, fl_model **model, fl_dataset *dataset)
{
    (void)job;
    (void)model;
    (void)dataset;
    abort();
}

FL_EXPORT extern const fl_plugin frostline_plugin;
FL_EXPORT const fl_plugin frostline_plugin = {
    .magic = FL_PLUGIN_MAGIC,
    .version = FL_API_VERSION,
    .size_bytes = sizeof(fl_plugin),
    .sizes = {sizeof(fl_job) - 8, sizeof(fl_tensor), sizeof(fl_batch), sizeof(fl_loss_sums)},
    .create = create};
