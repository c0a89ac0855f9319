/* Products by the stand-in of cuBLASLt, for C. */
#ifndef FL_TESTS_SHIM_CUBLASLT_TABLE_H
#define FL_TESTS_SHIM_CUBLASLT_TABLE_H

#include "device/cuda/launches.h"

#ifdef __cplusplus
extern "C" {
#endif

/* fl__cublaslt_open with the stand-in's functions. */
int standin_library_open(bool tf32, fl__cuda_library **out);

/* fl__cublaslt_load: NULL or the reason. */
const char *standin_library_load(const char *file);

#ifdef __cplusplus
}
#endif
#endif
