/* The stand-in's functions as the table that device/cuda/cublaslt.h wants. */
#include "tests/shim/cublaslt_table.h"

#include "device/cuda/cublaslt.h"

static const fl__cublaslt functions = {
#define MEMBER(function) ::function,
    FL__CUBLASLT_FUNCTIONS(MEMBER)
#undef MEMBER
};

int standin_library_open(bool tf32, fl__cuda_library **out)
{
    return fl__cublaslt_open(&functions, tf32, out);
}

const char *standin_library_load(const char *file)
{
    fl__cublaslt found;
    return fl__cublaslt_load(file, &found);
}
