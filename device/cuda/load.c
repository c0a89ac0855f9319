/* The plugin's file: where it lies, and its table. */
#include "device/cuda/cuda.h"
#include "device/program.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "libfrostline_cuda.so";

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

/* The loader takes a name without a slash for one of the system's libraries. */
static fl_status open_named(const char *name, const fl_cuda_plugin **out)
{
    char path[PATH_MAX];
    bool fits =
        snprintf(path, sizeof path, "%s%s", strchr(name, '/') == NULL ? "./" : "", name) < PATH_MAX;
    errno = ENAMETOOLONG;
    if (!fits || access(path, R_OK) != 0) {
        return fl_fail(FL_ENOTSUP, "FROSTLINE_CUDA_PLUGIN: %s: %s", name, strerror(errno));
    }
    return fl_cuda_plugin_open(path, out);
}

fl_status fl_cuda_plugin_find(const fl_cuda_plugin **out)
{
    char folder[PATH_MAX], beside[PATH_MAX], installed[PATH_MAX];
    const char *named = getenv("FROSTLINE_CUDA_PLUGIN");
    if (named != NULL && named[0] != '\0') {
        return open_named(named, out);
    }
    FL_TRY(fl_program_folder(folder, sizeof folder));
    snprintf(beside, sizeof beside, "%s/%s", folder, file_name);
    snprintf(installed, sizeof installed, "%s/%s/%s", folder, FL_PLUGIN_FOLDER, file_name);
    if (access(beside, F_OK) == 0) {
        return fl_cuda_plugin_open(beside, out);
    }
    if (access(installed, F_OK) == 0) {
        return fl_cuda_plugin_open(installed, out);
    }
    return fl_fail(FL_ENOTSUP,
                   "the CUDA plugin was not found: neither %s nor %s exists, and "
                   "FROSTLINE_CUDA_PLUGIN names no file; the plugin is built where nvcc is found",
                   beside, installed);
}
