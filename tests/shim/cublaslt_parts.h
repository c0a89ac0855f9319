/* What the files of the stand-in for cuBLASLt share. */
#ifndef FL_TESTS_SHIM_CUBLASLT_PARTS_H
#define FL_TESTS_SHIM_CUBLASLT_PARTS_H

#include "tests/shim/cublaslt/cublasLt.h"

typedef struct cublaslt_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    int32_t left_op, right_op, epilogue;
    const void *bias;
    void *aux;
    int64_t aux_ld;
} cublaslt_desc;

typedef struct cublaslt_layout {
    cudaDataType_t type;
    int64_t rows, cols, ld;
} cublaslt_layout;

typedef struct cublaslt_matrices {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    int64_t rows, cols, depth; /* of D, and what is added over */
} cublaslt_matrices;

/* Count a call; whether it fails: CUBLAS_STATUS_SUCCESS or the status. */
cublasStatus_t cublaslt_begin_call(const char *function);

#define BEGIN()                                                                                    \
    do {                                                                                           \
        cublasStatus_t failure_ = cublaslt_begin_call(__func__);                                   \
        if (failure_ != CUBLAS_STATUS_SUCCESS) {                                                   \
            return failure_;                                                                       \
        }                                                                                          \
    } while (0)

/* CUBLAS_STATUS_INVALID_VALUE, with what cublaslt_error tells. */
__attribute__((format(printf, 1, 2))) cublasStatus_t cublaslt_invalid(const char *format, ...);

/* Return cublaslt_invalid(...) unless what must hold does. */
#define REQUIRE(holds, ...)                                                                        \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            return cublaslt_invalid(__VA_ARGS__);                                                  \
        }                                                                                          \
    } while (0)

/* Descriptions that contradict each other are refused; fills in the sizes. */
cublasStatus_t cublaslt_check(cublaslt_matrices *m);

/* Refuse an algorithm that was chosen for another product. */
cublasStatus_t cublaslt_check_algorithm(const cublaslt_matrices *m,
                                        const cublasLtMatmulAlgo_t *algorithm);

size_t cublaslt_workspace(const cublaslt_matrices *m);

#endif
