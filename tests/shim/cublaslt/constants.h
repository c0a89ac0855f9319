/* The constants of cuBLASLt that device/cuda uses, with their values: the stand-in's header makes
 * enumerations of them, and check.cu compares them with NVIDIA's headers. */
#ifndef FL_TESTS_SHIM_CUBLASLT_CONSTANTS_H
#define FL_TESTS_SHIM_CUBLASLT_CONSTANTS_H

#define CUBLASLT_STATUSES(CASE)                                                                    \
    CASE(CUBLAS_STATUS_SUCCESS, 0)                                                                 \
    CASE(CUBLAS_STATUS_NOT_INITIALIZED, 1)                                                         \
    CASE(CUBLAS_STATUS_ALLOC_FAILED, 3)                                                            \
    CASE(CUBLAS_STATUS_INVALID_VALUE, 7)                                                           \
    CASE(CUBLAS_STATUS_EXECUTION_FAILED, 13)                                                       \
    CASE(CUBLAS_STATUS_NOT_SUPPORTED, 15)

#define CUBLASLT_COMPUTE_TYPES(CASE)                                                               \
    CASE(CUBLAS_COMPUTE_32F, 68)                                                                   \
    CASE(CUBLAS_COMPUTE_32F_FAST_TF32, 77)

#define CUBLASLT_DATA_TYPES(CASE)                                                                  \
    CASE(CUDA_R_32F, 0)                                                                            \
    CASE(CUDA_R_16BF, 14)

#define CUBLASLT_OPERATIONS(CASE)                                                                  \
    CASE(CUBLAS_OP_N, 0)                                                                           \
    CASE(CUBLAS_OP_T, 1)

#define CUBLASLT_DESC_ATTRIBUTES(CASE)                                                             \
    CASE(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                           \
    CASE(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                           \
    CASE(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                         \
    CASE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                     \
    CASE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, 11)                                            \
    CASE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, 12)

#define CUBLASLT_EPILOGUES(CASE)                                                                   \
    CASE(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                             \
    CASE(CUBLASLT_EPILOGUE_BIAS, 4)                                                                \
    CASE(CUBLASLT_EPILOGUE_GELU, 32)                                                               \
    CASE(CUBLASLT_EPILOGUE_GELU_AUX, 160)                                                          \
    CASE(CUBLASLT_EPILOGUE_GELU_BIAS, 36)                                                          \
    CASE(CUBLASLT_EPILOGUE_GELU_AUX_BIAS, 164)

#define CUBLASLT_PREFERENCES(CASE)                                                                 \
    CASE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                              \
    CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                            \
    CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 6)                                            \
    CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 7)                                            \
    CASE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)

#define CUBLASLT_CONSTANTS(CASE)                                                                   \
    CUBLASLT_STATUSES(CASE)                                                                        \
    CUBLASLT_COMPUTE_TYPES(CASE)                                                                   \
    CUBLASLT_DATA_TYPES(CASE)                                                                      \
    CUBLASLT_OPERATIONS(CASE)                                                                      \
    CUBLASLT_DESC_ATTRIBUTES(CASE)                                                                 \
    CUBLASLT_EPILOGUES(CASE)                                                                       \
    CUBLASLT_PREFERENCES(CASE)

/* CASE(function, what it returns, its parameters) */
#define CUBLASLT_FUNCTIONS(CASE)                                                                   \
    CASE(cublasLtCreate, cublasStatus_t, (cublasLtHandle_t *))                                     \
    CASE(cublasLtDestroy, cublasStatus_t, (cublasLtHandle_t))                                      \
    CASE(cublasLtGetVersion, size_t, (void))                                                       \
    CASE(cublasLtGetStatusString, const char *, (cublasStatus_t))                                  \
    CASE(cublasLtMatmulDescCreate, cublasStatus_t,                                                 \
         (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType_t))                            \
    CASE(cublasLtMatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t))                        \
    CASE(cublasLtMatmulDescSetAttribute, cublasStatus_t,                                           \
         (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))             \
    CASE(cublasLtMatrixLayoutCreate, cublasStatus_t,                                               \
         (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t))                    \
    CASE(cublasLtMatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t))                    \
    CASE(cublasLtMatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t *))           \
    CASE(cublasLtMatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t))            \
    CASE(cublasLtMatmulPreferenceSetAttribute, cublasStatus_t,                                     \
         (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t)) \
    CASE(cublasLtMatmulAlgoGetHeuristic, cublasStatus_t,                                           \
         (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,  \
          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,         \
          cublasLtMatmulHeuristicResult_t *, int *))                                               \
    CASE(cublasLtMatmulAlgoCheck, cublasStatus_t,                                                  \
         (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,  \
          cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *,            \
          cublasLtMatmulHeuristicResult_t *))                                                      \
    CASE(cublasLtMatmul, cublasStatus_t,                                                           \
         (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *,                      \
          cublasLtMatrixLayout_t, const void *, cublasLtMatrixLayout_t, const void *,              \
          const void *, cublasLtMatrixLayout_t, void *, cublasLtMatrixLayout_t,                    \
          const cublasLtMatmulAlgo_t *, void *, size_t, cudaStream_t))

#endif
