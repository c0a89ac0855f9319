/* Products by cuBLASLt: part of the plugin, C++ over NVIDIA's header. Tests compile the same files
 * against a header and functions of their own (tests/shim/cublaslt), which compute on the host. */
#ifndef FL_DEVICE_CUDA_CUBLASLT_H
#define FL_DEVICE_CUDA_CUBLASLT_H

#include "device/cuda/launches.h"

#include <cublasLt.h>

#define FL__CUBLASLT_FUNCTIONS(CASE)                                                               \
    CASE(cublasLtCreate)                                                                           \
    CASE(cublasLtDestroy)                                                                          \
    CASE(cublasLtGetVersion)                                                                       \
    CASE(cublasLtGetStatusString)                                                                  \
    CASE(cublasLtMatmulDescCreate)                                                                 \
    CASE(cublasLtMatmulDescDestroy)                                                                \
    CASE(cublasLtMatmulDescSetAttribute)                                                           \
    CASE(cublasLtMatrixLayoutCreate)                                                               \
    CASE(cublasLtMatrixLayoutDestroy)                                                              \
    CASE(cublasLtMatmulPreferenceCreate)                                                           \
    CASE(cublasLtMatmulPreferenceDestroy)                                                          \
    CASE(cublasLtMatmulPreferenceSetAttribute)                                                     \
    CASE(cublasLtMatmulAlgoGetHeuristic)                                                           \
    CASE(cublasLtMatmulAlgoCheck)                                                                  \
    CASE(cublasLtMatmul)

/* The functions of the library that are used, by their names. */
typedef struct fl__cublaslt {
#define FL__CUBLASLT_MEMBER(function) decltype(&::function) function;
    FL__CUBLASLT_FUNCTIONS(FL__CUBLASLT_MEMBER)
#undef FL__CUBLASLT_MEMBER
} fl__cublaslt;

/* Load the library from a file and find its functions; it stays loaded. NULL, or the reason why
 * not, which stays as it is until the next call. file: NULL: the version that the header is of,
 * where the system's linker looks for it */
const char *fl__cublaslt_load(const char *file, fl__cublaslt *out);

/* Products by the functions of `lt`, on the device that the thread chose last. lt: outlives the
 * library. What else is done with it: launches.h. */
int fl__cublaslt_open(const fl__cublaslt *lt, bool tf32, fl__cuda_library **out);

/* ---- between cublaslt.cu and cublaslt_plans.cu ---- */

/* What an algorithm is chosen for. No byte is without meaning, so that memcmp compares two. */
typedef struct fl__product_key {
    int64_t rows, cols, depth;
    uint8_t in_bf16, out_bf16, a_transposed, b_transposed;
    uint8_t added, bias, gelu, pre; /* gelu: 1; pre: its sum is kept */
    /* logarithms of what divides the addresses, 8 at most */
    uint8_t a_align, b_align, y_align, added_align, bias_align, pre_align;
    uint8_t tf32, unused;
} fl__product_key;

static_assert(sizeof(fl__product_key) == 40, "a byte without meaning");

typedef enum fl__plan_state {
    FL__PLAN_FREE = 0, /* the slot has none */
    FL__PLAN_READ,     /* from another process: the library has not checked it yet */
    FL__PLAN_READY,
    FL__PLAN_NONE, /* the library has no algorithm */
} fl__plan_state;

/* How a product is computed: what the library wants described, and its algorithm. */
typedef struct fl__product_plan {
    fl__product_key key;
    fl__plan_state state;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t left, right, result; /* column by column: b, a, y */
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
} fl__product_plan;

typedef struct fl__product_plans fl__product_plans;

fl__product_plans *fl__plans_create(void);
void fl__plans_destroy(const fl__cublaslt *lt, fl__product_plans *plans);

/* The plan of a key, or a free slot with this key. When there are too many, all are forgotten. */
fl__product_plan *fl__plans_find(const fl__cublaslt *lt, fl__product_plans *plans,
                                 const fl__product_key *key);

/* Destroy what a plan describes. */
void fl__plan_drop(const fl__cublaslt *lt, fl__product_plan *plan);

/* As fl__cublaslt_save and fl__cublaslt_take. */
size_t fl__plans_write(const fl__cublaslt *lt, const fl__product_plans *plans, char *text,
                       size_t size_bytes);
int fl__plans_read(const fl__cublaslt *lt, fl__product_plans *plans, const char *text);

#endif
