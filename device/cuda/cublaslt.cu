/* Products of row-major matrices by cuBLASLt, for which a matrix lies column by column: a row-major
 * matrix is its own transpose there. y = a b is computed as y^T = b^T a^T, so b is its left factor
 * and a its right one; the columns of y are the rows of its result, where it adds the bias. */
#include "device/cuda/cublaslt.h"

#include "device/cuda/plugin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fl__cuda_library {
    const fl__cublaslt *lt;
    cublasLtHandle_t handle;
    fl__product_plans *plans;
    bool tf32;
    pthread_mutex_t lock; /* of the plans and what they describe */
};

/* What an algorithm may ask for: Hopper's need as much; a stream's workspace has only what the
 * chosen one does. */
static const size_t workspace_max = (size_t)32 << 20;

/* As launches return. */
static int code_of(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_ALLOC_FAILED) {
        return FL_CUDA_OUT_OF_MEMORY;
    }
    return status == CUBLAS_STATUS_SUCCESS ? 0 : FL_CUDA_LIBRARY_CODE + (int)status;
}

#define LT_TRY(call)                                                                               \
    do {                                                                                           \
        cublasStatus_t lt_status_ = (call);                                                        \
        if (lt_status_ != CUBLAS_STATUS_SUCCESS) {                                                 \
            return lt_status_;                                                                     \
        }                                                                                          \
    } while (0)

int fl__cublaslt_open(const fl__cublaslt *lt, bool tf32, fl__cuda_library **out)
{
    fl__cuda_library *l = static_cast<fl__cuda_library *>(calloc(1, sizeof *l));
    fl__product_plans *plans = fl__plans_create();
    int code = l == nullptr || plans == nullptr ? (int)FL_CUDA_OUT_OF_MEMORY
                                                : code_of(lt->cublasLtCreate(&l->handle));
    if (code != 0) {
        free(l);
        fl__plans_destroy(lt, plans);
        return code;
    }
    l->lt = lt;
    l->plans = plans;
    l->tf32 = tf32;
    pthread_mutex_init(&l->lock, nullptr);
    *out = l;
    return 0;
}

int fl__cublaslt_close(fl__cuda_library *l)
{
    fl__plans_destroy(l->lt, l->plans);
    int code = code_of(l->lt->cublasLtDestroy(l->handle));
    pthread_mutex_destroy(&l->lock);
    free(l);
    return code;
}

/* ---- what is asked ---- */

/* The logarithm of the largest power of two up to 256 that divides an address; 0 for NULL. */
static uint8_t alignment_of(const void *memory)
{
    uintptr_t at = (uintptr_t)memory;
    uint8_t log = 0;
    while (memory != nullptr && log < 8 && (at >> log & 1) == 0) {
        log++;
    }
    return log;
}

static fl__product_key key_of(const fl__cuda_library *l, const fl__cuda_product *p)
{
    fl__product_key k;
    memset(&k, 0, sizeof k);
    k.rows = p->rows;
    k.cols = p->cols;
    k.depth = p->depth;
    k.in_bf16 = p->a_dtype == FL_BF16;
    k.out_bf16 = p->y_dtype == FL_BF16;
    k.a_transposed = p->a_transposed;
    k.b_transposed = p->b_transposed;
    k.added = p->added != nullptr;
    k.bias = p->bias != nullptr;
    k.gelu = p->activation == FL_ACT_GELU_TANH;
    k.pre = k.gelu && p->pre != nullptr;
    k.a_align = alignment_of(p->a);
    k.b_align = alignment_of(p->b);
    k.y_align = alignment_of(p->y);
    k.added_align = alignment_of(p->added);
    k.bias_align = alignment_of(p->bias);
    k.pre_align = k.pre ? alignment_of(p->pre) : 0;
    k.tf32 = l->tf32 && !k.in_bf16;
    return k;
}

/* How the library wants a leading dimension of the sum before GELU. */
enum { PRE_COLUMNS = 8 };

/* ---- a description of it ---- */

template <typename V>
static cublasStatus_t set(const fl__cublaslt *lt, cublasLtMatmulDesc_t desc,
                          cublasLtMatmulDescAttributes_t attribute, V value)
{
    return lt->cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value);
}

static int32_t epilogue_of(const fl__product_key *k)
{
    if (!k->gelu) {
        return k->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (k->pre) {
        return k->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    }
    return k->bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

static cublasStatus_t describe_operation(const fl__cublaslt *lt, fl__product_plan *plan)
{
    const fl__product_key *k = &plan->key;
    cublasComputeType_t compute = k->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    LT_TRY(lt->cublasLtMatmulDescCreate(&plan->desc, compute, CUDA_R_32F));
    int32_t left = k->b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    int32_t right = k->a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(set(lt, plan->desc, CUBLASLT_MATMUL_DESC_TRANSA, left));
    LT_TRY(set(lt, plan->desc, CUBLASLT_MATMUL_DESC_TRANSB, right));
    if (k->pre) {
        LT_TRY(set(lt, plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, k->cols));
    }
    return set(lt, plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue_of(k));
}

/* A row-major matrix [rows, cols]. */
static cublasStatus_t describe_matrix(const fl__cublaslt *lt, bool is_bf16, int64_t rows,
                                      int64_t cols, cublasLtMatrixLayout_t *out)
{
    return lt->cublasLtMatrixLayoutCreate(out, is_bf16 ? CUDA_R_16BF : CUDA_R_32F, (uint64_t)cols,
                                          (uint64_t)rows, cols);
}

static cublasStatus_t describe(const fl__cublaslt *lt, fl__product_plan *plan)
{
    const fl__product_key *k = &plan->key;
    int64_t a_rows = k->a_transposed ? k->depth : k->rows, b_rows = k->depth, b_cols = k->cols;
    int64_t a_cols = k->a_transposed ? k->rows : k->depth;
    if (k->b_transposed) {
        b_rows = k->cols;
        b_cols = k->depth;
    }
    LT_TRY(describe_operation(lt, plan));
    LT_TRY(describe_matrix(lt, k->in_bf16, b_rows, b_cols, &plan->left));
    LT_TRY(describe_matrix(lt, k->in_bf16, a_rows, a_cols, &plan->right));
    return describe_matrix(lt, k->out_bf16, k->rows, k->cols, &plan->result);
}

/* Pointers change from call to call; the heuristic looks at those of the first. */
static cublasStatus_t point(const fl__cublaslt *lt, const fl__product_plan *plan,
                            const fl__cuda_product *p)
{
    if (plan->key.bias) {
        LT_TRY(set(lt, plan->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, p->bias));
    }
    if (plan->key.pre) {
        LT_TRY(set(lt, plan->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, p->pre));
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- its algorithm ---- */

static cublasStatus_t set_preference(const fl__cublaslt *lt, cublasLtMatmulPreference_t preference,
                                     const fl__product_key *k)
{
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        uint32_t bytes;
    } alignments[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 1u << k->b_align},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 1u << k->a_align},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
                       1u << (k->added ? k->added_align : k->y_align)},
                      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 1u << k->y_align}};
    for (const auto &a : alignments) {
        LT_TRY(lt->cublasLtMatmulPreferenceSetAttribute(preference, a.attribute, &a.bytes,
                                                        sizeof a.bytes));
    }
    return lt->cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_max, sizeof workspace_max);
}

static cublasStatus_t ask_with(const fl__cuda_library *l, fl__product_plan *plan,
                               cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t result;
    int n = 0;
    LT_TRY(set_preference(l->lt, preference, &plan->key));
    cublasStatus_t status = l->lt->cublasLtMatmulAlgoGetHeuristic(
        l->handle, plan->desc, plan->left, plan->right, plan->result, plan->result, preference, 1,
        &result, &n);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) {
        return status;
    }
    bool found = status == CUBLAS_STATUS_SUCCESS && n > 0 && result.state == CUBLAS_STATUS_SUCCESS;
    plan->state = found ? FL__PLAN_READY : FL__PLAN_NONE;
    if (found) {
        plan->algorithm = result.algo;
        plan->workspace_bytes = result.workspaceSize;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t ask(const fl__cuda_library *l, fl__product_plan *plan)
{
    cublasLtMatmulPreference_t preference;
    LT_TRY(l->lt->cublasLtMatmulPreferenceCreate(&preference));
    cublasStatus_t status = ask_with(l, plan, preference);
    (void)l->lt->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

/* Whether an algorithm of another process can be had here. */
static bool is_usable(const fl__cuda_library *l, fl__product_plan *plan)
{
    cublasLtMatmulHeuristicResult_t result;
    bool usable = l->lt->cublasLtMatmulAlgoCheck(l->handle, plan->desc, plan->left, plan->right,
                                                 plan->result, plan->result, &plan->algorithm,
                                                 &result) == CUBLAS_STATUS_SUCCESS &&
                  result.workspaceSize <= workspace_max;
    if (usable) {
        plan->workspace_bytes = result.workspaceSize;
        plan->state = FL__PLAN_READY;
    }
    return usable;
}

static cublasStatus_t choose(const fl__cuda_library *l, fl__product_plan *plan,
                             const fl__cuda_product *p)
{
    LT_TRY(describe(l->lt, plan));
    LT_TRY(point(l->lt, plan, p));
    if (plan->state == FL__PLAN_READ && is_usable(l, plan)) {
        return CUBLAS_STATUS_SUCCESS;
    }
    return ask(l, plan);
}

/* A plan that has been chosen for once. */
static cublasStatus_t prepare(const fl__cuda_library *l, fl__product_plan *plan,
                              const fl__cuda_product *p)
{
    if (plan->state == FL__PLAN_READY || plan->state == FL__PLAN_NONE) {
        return point(l->lt, plan, p);
    }
    cublasStatus_t status = choose(l, plan, p);
    if (status != CUBLAS_STATUS_SUCCESS) {
        fl__plan_drop(l->lt, plan);
    }
    return status;
}

/* ---- the product ---- */

static int multiply_by(const fl__cuda_library *l, const fl__product_plan *plan, fl__cuda_queue *q,
                       const fl__cuda_product *p)
{
    const float one = 1.0f, beta = p->added == nullptr ? 0.0f : 1.0f;
    if (plan->state == FL__PLAN_NONE) {
        return FL__CUDA_NO_PRODUCT;
    }
    q->needed_bytes = plan->workspace_bytes;
    if (q->workspace_bytes < q->needed_bytes) {
        return FL__CUDA_MORE;
    }
    return code_of(l->lt->cublasLtMatmul(
        l->handle, plan->desc, &one, p->b, plan->left, p->a, plan->right, &beta,
        p->added == nullptr ? p->y : p->added, plan->result, p->y, plan->result, &plan->algorithm,
        q->workspace, q->workspace_bytes, static_cast<cudaStream_t>(q->stream)));
}

int fl__cublaslt_multiply(fl__cuda_library *l, fl__cuda_queue *q, const fl__cuda_product *p)
{
    const fl__product_key key = key_of(l, p);
    if (key.pre && key.cols % PRE_COLUMNS != 0) {
        return FL__CUDA_NO_PRODUCT;
    }
    pthread_mutex_lock(&l->lock);
    fl__product_plan *plan = fl__plans_find(l->lt, l->plans, &key);
    int code = code_of(prepare(l, plan, p));
    code = code == 0 ? multiply_by(l, plan, q, p) : code;
    pthread_mutex_unlock(&l->lock);
    return code;
}

/* ---- answers that are kept ---- */

int fl__cublaslt_save(fl__cuda_library *l, char *text, size_t size_bytes, size_t *needed_bytes)
{
    pthread_mutex_lock(&l->lock);
    *needed_bytes = fl__plans_write(l->lt, l->plans, text, size_bytes);
    pthread_mutex_unlock(&l->lock);
    return 0;
}

int fl__cublaslt_take(fl__cuda_library *l, const char *text, int *n_taken)
{
    pthread_mutex_lock(&l->lock);
    *n_taken = fl__plans_read(l->lt, l->plans, text);
    pthread_mutex_unlock(&l->lock);
    return 0;
}
