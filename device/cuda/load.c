/* The plugin's file. */
#include "device/cuda/cuda.h"

#include <dlfcn.h>

fl_status fl_cuda_plugin_open(const char *path, const fl_cuda_plugin **out)
{
    /* It stays until the process ends: CUDA does not bear to be unloaded. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return fl_fail(FL_ENOTSUP, "the CUDA plugin cannot be loaded: %s", dlerror());
    }
    const fl_cuda_plugin *plugin = dlsym(library, FL_CUDA_PLUGIN_TABLE);
    if (plugin == NULL) {
        dlclose(library);
        return fl_fail(FL_ENOTSUP, "%s is no CUDA plugin of Frostline: it does not export %s", path,
                       FL_CUDA_PLUGIN_TABLE);
    }
    *out = plugin;
    return FL_OK;
}
