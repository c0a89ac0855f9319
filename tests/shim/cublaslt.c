/* The functions of cuBLASLt on the host: handles, descriptions and algorithms. A call whose
 * descriptions contradict each other is refused, and cublaslt_error tells why. */
#include "tests/shim/cublaslt_parts.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUNCTIONS_MAX = 32, WORKSPACE_BYTES = 4096, ALGORITHM = 0x46726F73 };

typedef struct cublaslt_preference {
    size_t workspace_bytes;
    uint32_t alignment[4]; /* of A, B, C and D */
} cublaslt_preference;

static struct {
    char function[64]; /* that fails next */
    int n;
    cublasStatus_t status;
    int refused_epilogue, outstanding;
    size_t version;
    struct {
        const char *function;
        int n;
    } calls[FUNCTIONS_MAX];
    char error[300];
} standin = {.version = 130100};

static char log_path[4096]; /* "": calls of the heuristic are not written down */

void cublaslt_log(const char *path)
{
    snprintf(log_path, sizeof log_path, "%s", path);
}

/* Processes append at once, so it is a byte a call. */
static void log_question(void)
{
    int fd = log_path[0] == '\0' ? -1 : open(log_path, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd >= 0 && (write(fd, "?", 1) != 1 || close(fd) != 0)) {
        abort();
    }
}

void cublaslt_begin(const char *function, int n, cublasStatus_t status)
{
    int outstanding = standin.outstanding;
    memset(&standin, 0, sizeof standin);
    standin.outstanding = outstanding;
    standin.version = 130100;
    snprintf(standin.function, sizeof standin.function, "%s", function);
    standin.n = n;
    standin.status = status;
}

void cublaslt_refuse(int epilogue)
{
    standin.refused_epilogue = epilogue;
}

void cublaslt_set_version(size_t version)
{
    standin.version = version;
}

int cublaslt_outstanding(void)
{
    return standin.outstanding;
}

const char *cublaslt_error(void)
{
    return standin.error;
}

/* NULL if there is no room. */
static int *count_of(const char *function)
{
    for (int i = 0; i < FUNCTIONS_MAX; i++) {
        if (standin.calls[i].function == NULL) {
            standin.calls[i].function = function;
        }
        if (strcmp(standin.calls[i].function, function) == 0) {
            return &standin.calls[i].n;
        }
    }
    fprintf(stderr, "stand-in of cuBLASLt: too many functions\n");
    abort();
}

int cublaslt_calls(const char *function)
{
    return *count_of(function);
}

cublasStatus_t cublaslt_begin_call(const char *function)
{
    ++*count_of(function);
    bool fails = standin.n > 0 && strcmp(function, standin.function) == 0 && --standin.n == 0;
    return fails ? standin.status : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublaslt_invalid(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(standin.error, sizeof standin.error, format, list);
    va_end(list);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- handles ---- */

static void *create(size_t size_bytes)
{
    void *memory = calloc(1, size_bytes);
    if (memory == NULL) {
        abort();
    }
    standin.outstanding++;
    return memory;
}

static cublasStatus_t destroy(void *memory, const char *function)
{
    standin.outstanding--;
    free(memory);
    return cublaslt_begin_call(function);
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    BEGIN();
    *out = create(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return destroy(handle, __func__);
}

size_t cublasLtGetVersion(void)
{
    return standin.version;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_INVALID_VALUE:
        return standin.error[0] == '\0' ? "an unsupported value was passed" : standin.error;
    case CUBLAS_STATUS_EXECUTION_FAILED:
        return "the GPU program failed to execute";
    default:
        return "another status";
    }
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    BEGIN();
    *out = create(sizeof **out);
    **out =
        (cublaslt_desc){.compute = compute, .scale = scale, .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc, __func__);
}

static cublasStatus_t set_field(void *field, size_t field_bytes, const void *value, size_t n)
{
    REQUIRE(n == field_bytes, "an attribute of %zu bytes is set with %zu", field_bytes, n);
    memcpy(field, value, n);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t n)
{
    BEGIN();
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set_field(&d->left_op, sizeof d->left_op, value, n);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set_field(&d->right_op, sizeof d->right_op, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set_field(&d->epilogue, sizeof d->epilogue, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set_field(&d->bias, sizeof d->bias, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return set_field(&d->aux, sizeof d->aux, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return set_field(&d->aux_ld, sizeof d->aux_ld, value, n);
    }
    return cublaslt_invalid("no attribute %d", (int)attribute);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    BEGIN();
    *out = create(sizeof **out);
    **out = (cublaslt_layout){.type = type, .rows = (int64_t)rows, .cols = (int64_t)cols, .ld = ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    BEGIN();
    *out = create(sizeof **out);
    **out = (cublaslt_preference){.alignment = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference, __func__);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t n)
{
    BEGIN();
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        return set_field(&p->workspace_bytes, sizeof p->workspace_bytes, value, n);
    }
    int at = (int)attribute - (int)CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
    REQUIRE(at >= 0 && at < 4, "no preference %d", (int)attribute);
    return set_field(&p->alignment[at], sizeof *p->alignment, value, n);
}

/* ---- descriptions that contradict each other ---- */

static cublasStatus_t check_layout(const char *name, const cublaslt_layout *l)
{
    REQUIRE(l->rows > 0 && l->cols > 0, "%s is %lld x %lld", name, (long long)l->rows,
            (long long)l->cols);
    REQUIRE(l->ld >= l->rows, "the leading dimension of %s is %lld, its rows are %lld", name,
            (long long)l->ld, (long long)l->rows);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const cublaslt_matrices *m)
{
    const cublaslt_desc *d = m->desc;
    bool aux = (d->epilogue & 128) != 0, bias = (d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    REQUIRE(!bias || d->bias != NULL, "the epilogue adds a bias, and there is none");
    REQUIRE(!aux || d->aux != NULL, "the epilogue writes what is before GELU, and nowhere");
    REQUIRE(!aux || (d->aux_ld >= m->rows && d->aux_ld % 8 == 0),
            "the leading dimension before GELU is %lld of %lld rows, divisible by 8 is allowed",
            (long long)d->aux_ld, (long long)m->rows);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_shapes(cublaslt_matrices *m)
{
    const cublaslt_desc *d = m->desc;
    bool left = d->left_op == CUBLAS_OP_T, right = d->right_op == CUBLAS_OP_T;
    int64_t right_depth = right ? m->b->cols : m->b->rows;
    int64_t right_cols = right ? m->b->rows : m->b->cols;
    m->rows = left ? m->a->cols : m->a->rows;
    m->depth = left ? m->a->rows : m->a->cols;
    m->cols = m->d->cols;
    REQUIRE(right_depth == m->depth, "A has %lld columns, B %lld rows", (long long)m->depth,
            (long long)right_depth);
    REQUIRE(m->rows == m->d->rows && right_cols == m->cols, "D is %lld x %lld, A times B not",
            (long long)m->d->rows, (long long)m->d->cols);
    REQUIRE(m->c->rows == m->d->rows && m->c->cols == m->d->cols, "C and D are not of one shape");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_types(const cublaslt_matrices *m)
{
    bool tf32 = m->desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    REQUIRE(m->desc->scale == CUDA_R_32F, "alpha and beta are not fp32");
    REQUIRE(m->a->type == m->b->type, "A and B are not of one type");
    REQUIRE(m->c->type == m->d->type, "C and D are not of one type");
    REQUIRE(m->a->type == CUDA_R_16BF || m->d->type == CUDA_R_32F, "fp32 times fp32 gives bf16");
    REQUIRE(!tf32 || m->a->type == CUDA_R_32F, "TF32 of bf16");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublaslt_check(cublaslt_matrices *m)
{
    cublasStatus_t status = check_layout("A", m->a);
    status = status == CUBLAS_STATUS_SUCCESS ? check_layout("B", m->b) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_layout("D", m->d) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_shapes(m) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_types(m) : status;
    return status == CUBLAS_STATUS_SUCCESS ? check_epilogue(m) : status;
}

/* ---- algorithms: which one it is stands in what it was chosen for ---- */

size_t cublaslt_workspace(const cublaslt_matrices *m)
{
    return m->depth > 30 ? WORKSPACE_BYTES : 0;
}

/* A product by another algorithm than its own is refused. alignment: of A, B, C and D */
static cublasLtMatmulAlgo_t algorithm_of(const cublaslt_matrices *m, const uint32_t alignment[4])
{
    return (cublasLtMatmulAlgo_t){
        {ALGORITHM, (uint64_t)m->rows, (uint64_t)m->cols, (uint64_t)m->depth,
         (uint64_t)m->desc->epilogue, (uint64_t)alignment[0] | (uint64_t)alignment[1] << 32,
         (uint64_t)alignment[2] | (uint64_t)alignment[3] << 32, standin.version}};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int n_asked,
                                              cublasLtMatmulHeuristicResult_t *results, int *n)
{
    BEGIN();
    cublaslt_matrices m = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    cublasStatus_t status = cublaslt_check(&m);
    (void)handle;
    *n = 0;
    log_question();
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    int refused = standin.refused_epilogue;
    if (n_asked < 1 || (refused != 0 && (desc->epilogue & refused) == refused) || refused == -1 ||
        preference->workspace_bytes < cublaslt_workspace(&m)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *n = 1;
    *results = (cublasLtMatmulHeuristicResult_t){.algo = algorithm_of(&m, preference->alignment),
                                                 .workspaceSize = cublaslt_workspace(&m),
                                                 .state = CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublaslt_check_algorithm(const cublaslt_matrices *m,
                                        const cublasLtMatmulAlgo_t *algorithm)
{
    const uint32_t alignment[4] = {
        (uint32_t)algorithm->data[5], (uint32_t)(algorithm->data[5] >> 32),
        (uint32_t)algorithm->data[6], (uint32_t)(algorithm->data[6] >> 32)};
    const cublasLtMatmulAlgo_t own = algorithm_of(m, alignment);
    REQUIRE(memcmp(&own, algorithm, sizeof own) == 0, "the algorithm is for another product");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t *algorithm,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    BEGIN();
    cublaslt_matrices m = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    cublasStatus_t status = cublaslt_check(&m);
    (void)handle;
    status = status == CUBLAS_STATUS_SUCCESS ? cublaslt_check_algorithm(&m, algorithm) : status;
    *result = (cublasLtMatmulHeuristicResult_t){
        .algo = *algorithm, .workspaceSize = cublaslt_workspace(&m), .state = status};
    return status;
}
