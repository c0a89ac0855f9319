#include "autodp/nccl/library.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const char system_name[] = "libnccl.so.2";

const char *fl_nccl_version_text(int version, char text[FL_NCCL_VERSION_TEXT])
{
    /* Up to 2.8 a version was 2 x 1000 + minor x 100 + patch. */
    int unit = version < 10000 ? 1000 : 10000;
    snprintf(text, FL_NCCL_VERSION_TEXT, "%d.%d.%d", version / unit, version % unit / 100,
             version % 100);
    return text;
}

static bool look_for_function(void *library, const char *name, void *out, size_t size_bytes)
{
    void *symbol = dlsym(library, name);
    memcpy(out, &symbol, size_bytes); /* C has no conversion of a pointer to a function */
    return symbol != NULL;
}

static fl_status find_function(void *library, const char *file, const char *name, void *out,
                               size_t size_bytes)
{
    if (!look_for_function(library, name, out, size_bytes)) {
        return fl_fail(FL_ENOTSUP, "NCCL cannot be used: %s has no function %s", file, name);
    }
    return FL_OK;
}

static fl_status find_functions(void *library, const char *file, fl_nccl *out)
{
#define FIND(result, name, arguments)                                                              \
    FL_TRY(find_function(library, file, "nccl" #name, &out->name, sizeof out->name));
    FL__NCCL_FUNCTIONS(FIND)
#undef FIND
#define FIND_LATER(result, name, arguments)                                                        \
    look_for_function(library, "nccl" #name, &out->name, sizeof out->name);
    FL__NCCL_LATER_FUNCTIONS(FIND_LATER)
#undef FIND_LATER
    return FL_OK;
}

static fl_status check_version(const char *file, fl_nccl *nccl)
{
    char found[FL_NCCL_VERSION_TEXT], oldest[FL_NCCL_VERSION_TEXT];
    fl_nccl_result result = nccl->GetVersion(&nccl->version);
    if (result != FL_NCCL_SUCCESS) {
        return fl_fail(FL_ENOTSUP, "NCCL cannot be used: %s does not tell its version: %s", file,
                       nccl->GetErrorString(result));
    }
    if (nccl->version < FL_NCCL_OLDEST || nccl->version >= FL_NCCL_NEXT_MAJOR) {
        return fl_fail(FL_ENOTSUP,
                       "NCCL cannot be used: %s has version %s; allowed are %s and later versions "
                       "of 2.x",
                       file, fl_nccl_version_text(nccl->version, found),
                       fl_nccl_version_text(FL_NCCL_OLDEST, oldest));
    }
    return FL_OK;
}

bool fl_nccl_is_named(void)
{
    const char *named = getenv("FROSTLINE_NCCL");
    return named != NULL && named[0] != '\0';
}

const char *fl_nccl_file(void)
{
    return fl_nccl_is_named() ? getenv("FROSTLINE_NCCL") : system_name;
}

fl_status fl_nccl_check_kind(const char *kind)
{
    if (strcmp(kind, "cuda") == 0 || fl_nccl_is_named()) {
        return FL_OK;
    }
    return fl_fail(FL_ENOTSUP, "devices of kind %s use NCCL only where FROSTLINE_NCCL names it",
                   kind);
}

fl_status fl_nccl_load(fl_nccl *out)
{
    const char *file = fl_nccl_file();
    fl_nccl nccl = {0};
    struct stat what;
    if (stat(file, &what) == 0 && !S_ISREG(what.st_mode)) { /* dlopen waits at a pipe */
        return fl_fail(FL_ENOTSUP, "NCCL cannot be loaded: %s: not a regular file", file);
    }
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL); /* it bears no unloading: it has threads */
    if (library == NULL) {
        return fl_fail(FL_ENOTSUP, "NCCL cannot be loaded: %s", dlerror());
    }
    FL_TRY(find_functions(library, file, &nccl));
    FL_TRY(check_version(file, &nccl));
    *out = nccl;
    return FL_OK;
}

/* ---- the driver ---- */

int fl_nccl_cuda_of(const char *file, size_t size_bytes)
{
    static const char before[] = "NCCL version ", mark[] = "+cuda";
    enum { NAME_BYTES = 48 }; /* more than the version behind it has */
    const char *end = file + size_bytes, *at = file;
    while ((at = memmem(at, (size_t)(end - at), before, sizeof before - 1)) != NULL) {
        char name[NAME_BYTES] = "";
        int major, minor;
        at += sizeof before - 1;
        size_t left = (size_t)(end - at);
        memcpy(name, at, left < NAME_BYTES - 1 ? left : NAME_BYTES - 1);
        const char *cuda = strstr(name, mark);
        if (cuda != NULL && sscanf(cuda + sizeof mark - 1, "%3d.%2d", &major, &minor) == 2) {
            return major * 1000 + minor * 10;
        }
    }
    return 0;
}

static int read_cuda(const char *path)
{
    struct stat what;
    int found = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &what) == 0 && what.st_size > 0) {
        void *file = mmap(NULL, (size_t)what.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (file != MAP_FAILED) {
            found = fl_nccl_cuda_of(file, (size_t)what.st_size);
            munmap(file, (size_t)what.st_size);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return found;
}

fl_status fl_nccl_check_driver(const fl_nccl *nccl, int driver_version)
{
    Dl_info info = {0};
    void *function;
    memcpy(&function, &nccl->GetVersion, sizeof function);
    int wanted = driver_version > 0 && dladdr(function, &info) != 0 ? read_cuda(info.dli_fname) : 0;
    /* Within a major version a driver runs what was built with a later minor one. */
    if (driver_version / 1000 >= wanted / 1000) {
        return FL_OK;
    }
    return fl_fail(FL_ENOTSUP,
                   "NCCL cannot be used: %s was built with CUDA %d.%d, the driver runs CUDA up to "
                   "%d.%d; install a newer driver, or an NCCL for CUDA %d",
                   info.dli_fname, wanted / 1000, wanted % 1000 / 10, driver_version / 1000,
                   driver_version % 1000 / 10, driver_version / 1000);
}
