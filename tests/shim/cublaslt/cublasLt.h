/* A stand-in for NVIDIA's header of this name, in tests: what device/cuda uses of it, and functions
 * that compute on the host (tests/shim/cublaslt.c, tests/shim/cublaslt_product.c), which can be
 * made to fail. They take what they are given literally, and refuse what contradicts itself. */
#ifndef FL_TESTS_SHIM_CUBLASLT_H
#define FL_TESTS_SHIM_CUBLASLT_H

#include "tests/shim/cublaslt/constants.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUBLAS_VER_MAJOR 13

#define CUBLASLT_ENUMERATOR(name, value) name = value,
typedef enum { CUBLASLT_STATUSES(CUBLASLT_ENUMERATOR) } cublasStatus_t;
typedef enum { CUBLASLT_COMPUTE_TYPES(CUBLASLT_ENUMERATOR) } cublasComputeType_t;
typedef enum { CUBLASLT_DATA_TYPES(CUBLASLT_ENUMERATOR) } cudaDataType_t;
typedef cudaDataType_t cudaDataType;
typedef enum { CUBLASLT_OPERATIONS(CUBLASLT_ENUMERATOR) } cublasOperation_t;
typedef enum { CUBLASLT_DESC_ATTRIBUTES(CUBLASLT_ENUMERATOR) } cublasLtMatmulDescAttributes_t;
typedef enum { CUBLASLT_EPILOGUES(CUBLASLT_ENUMERATOR) } cublasLtEpilogue_t;
typedef enum { CUBLASLT_PREFERENCES(CUBLASLT_ENUMERATOR) } cublasLtMatmulPreferenceAttributes_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublaslt_desc *cublasLtMatmulDesc_t;
typedef struct cublaslt_layout *cublasLtMatrixLayout_t;
typedef struct cublaslt_preference *cublasLtMatmulPreference_t;

typedef struct {
    uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
    cublasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    cublasStatus_t state;
    float wavesCount;
    int reserved[4];
} cublasLtMatmulHeuristicResult_t;

#define CUBLASLT_DECLARE(name, result, parameters) result name parameters;
CUBLASLT_FUNCTIONS(CUBLASLT_DECLARE)
#undef CUBLASLT_DECLARE

/* ---- what tests ask for ---- */

/* The n-th call of a function from now on fails with `status`; n = 0: none does. What destroys does
 * so nevertheless. Everything that was set before is forgotten, and counts begin at 0. */
void cublaslt_begin(const char *function, int n, cublasStatus_t status);

/* The heuristic has no algorithm for an epilogue with all these bits; 0: it has all. -1: none. */
void cublaslt_refuse(int epilogue);

/* What cublasLtGetVersion says from now on; 130100 at first. */
void cublaslt_set_version(size_t version);

/* From now on, each call of the heuristic adds a byte to this file; "": to none. */
void cublaslt_log(const char *path);

/* Calls of a function since cublaslt_begin. */
int cublaslt_calls(const char *function);

/* Handles, descriptions and layouts that exist. */
int cublaslt_outstanding(void);

/* Why the last call was refused; "" if none was since cublaslt_begin. */
const char *cublaslt_error(void);

#ifdef __cplusplus
}
#endif
#endif
