/* Find the functions of cuBLASLt. It is not linked: a plugin must load on a machine without it. */
#include "device/cuda/cublaslt.h"

#include <dlfcn.h>
#include <stdio.h>

#define TEXT_OF(number) #number
#define FILE_OF(major) "libcublasLt.so." TEXT_OF(major)

template <typename F>
static bool find_function(void *library, const char *name, F *out, char *reason, size_t size_bytes)
{
    *out = reinterpret_cast<F>(dlsym(library, name));
    if (*out == nullptr) {
        snprintf(reason, size_bytes, "it has no function %s", name);
    }
    return *out != nullptr;
}

const char *fl__cublaslt_load(const char *file, fl__cublaslt *out)
{
    static char reason[500];
    void *library = dlopen(file == nullptr ? FILE_OF(CUBLAS_VER_MAJOR) : file, RTLD_NOW);
    if (library == nullptr) {
        snprintf(reason, sizeof reason, "%s", dlerror());
        return reason;
    }
    bool found = true;
#define FIND(function)                                                                             \
    found = found && find_function(library, #function, &out->function, reason, sizeof reason);
    FL__CUBLASLT_FUNCTIONS(FIND)
#undef FIND
    return found ? nullptr : reason;
}
