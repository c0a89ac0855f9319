/* The plugin's file: where it lies, and its table. */
#include "device/cuda/cuda.h"
#include "device/system/files/regular_file.h"
#include "device/system/program.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "libfrostline_cuda.so";

/* The loader says "No such file" of a file for another machine, too. */
static fl_status refuse_file(const char *path, const char *why)
{
    size_t n = strlen(path);
    bool unread = strncmp(why, path, n) == 0 && strstr(why, strerror(ENOENT)) != NULL;
    return fl_fail(
        FL_ENOTSUP, "the CUDA plugin cannot be loaded: %s%s", why,
        unread && access(path, F_OK) == 0 ? "; the file exists: it is for another machine" : "");
}

fl_status fl_cuda_plugin_open(const char *path, const fl_cuda_plugin **out)
{
    /* It stays until the process ends: CUDA does not bear to be unloaded. */
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return refuse_file(path, dlerror());
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

static fl_status check_name(const char *name)
{
    enum { MOST = 700 }; /* so that a message has room for the reason */
    size_t n = strlen(name);
    if (n > MOST) {
        return fl_fail(FL_ENOTSUP, "FROSTLINE_CUDA_PLUGIN: %zu characters; allowed: up to %d", n,
                       (int)MOST);
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)name[i], next = (unsigned char)name[i + 1];
        bool c1 = byte == 0xc2 && next >= 0x80 && next <= 0x9f; /* as a terminal reads UTF-8 */
        if (byte < ' ' || byte == 0x7f || c1) {
            return fl_fail(FL_ENOTSUP,
                           "FROSTLINE_CUDA_PLUGIN: character %zu is a control character", i + 1);
        }
    }
    return FL_OK;
}

/* The loader takes a name without a slash for one of the system's libraries, and waits for the
 * writer of a pipe. */
static fl_status locate_named(const char *name, char path[FL_CUDA_PATH_BYTES])
{
    const char *why = NULL;
    FL_TRY(check_name(name));
    snprintf(path, FL_CUDA_PATH_BYTES, "%s%s", strchr(name, '/') == NULL ? "./" : "", name);
    int file = fl_regular_file_open(AT_FDCWD, path, &why);
    if (file < 0) {
        return fl_fail(FL_ENOTSUP, "FROSTLINE_CUDA_PLUGIN: %s: %s", name, why);
    }
    close(file);
    return FL_OK;
}

fl_status fl_cuda_plugin_locate(char path[FL_CUDA_PATH_BYTES])
{
    char folder[PATH_MAX], beside[PATH_MAX], installed[PATH_MAX];
    const char *named = getenv("FROSTLINE_CUDA_PLUGIN");
    if (named != NULL && named[0] != '\0') {
        return locate_named(named, path);
    }
    FL_TRY(fl_program_folder(folder, sizeof folder));
    snprintf(beside, sizeof beside, "%s/%s", folder, file_name);
    snprintf(installed, sizeof installed, "%s/%s/%s", folder, FL_PLUGIN_FOLDER, file_name);
    if (access(beside, F_OK) != 0 && access(installed, F_OK) != 0) {
        return fl_fail(FL_ENOTSUP,
                       "the CUDA plugin was not found: neither %s nor %s exists, and "
                       "FROSTLINE_CUDA_PLUGIN names no file; the plugin is built where nvcc is "
                       "found",
                       beside, installed);
    }
    snprintf(path, FL_CUDA_PATH_BYTES, "%s", access(beside, F_OK) == 0 ? beside : installed);
    return FL_OK;
}

fl_status fl_cuda_plugin_find(const fl_cuda_plugin **out)
{
    char path[FL_CUDA_PATH_BYTES];
    FL_TRY(fl_cuda_plugin_locate(path));
    return fl_cuda_plugin_open(path, out);
}
