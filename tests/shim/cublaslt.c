/* The functions of cuBLASLt on the host: element by element, as the descriptions say. A call whose
 * descriptions contradict each other or its pointers is refused, and cublaslt_error tells why. */
#include "tests/shim/cublaslt/cublasLt.h"

#include "device/cpu/bf16.h"
#include "tests/shim/capture.h"
#include "tests/shim/shim.h"

#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FUNCTIONS_MAX = 32, WORKSPACE_BYTES = 4096, ALGORITHM = 0x46726F73 };

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

/* Count a call; whether it fails: CUBLAS_STATUS_SUCCESS or the status. */
static cublasStatus_t begin_call(const char *function)
{
    ++*count_of(function);
    bool fails = standin.n > 0 && strcmp(function, standin.function) == 0 && --standin.n == 0;
    return fails ? standin.status : CUBLAS_STATUS_SUCCESS;
}

#define BEGIN()                                                                                    \
    do {                                                                                           \
        cublasStatus_t failure_ = begin_call(__func__);                                            \
        if (failure_ != CUBLAS_STATUS_SUCCESS) {                                                   \
            return failure_;                                                                       \
        }                                                                                          \
    } while (0)

__attribute__((format(printf, 1, 2))) static cublasStatus_t refuse(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(standin.error, sizeof standin.error, format, list);
    va_end(list);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* Return refuse(...) unless what must hold does. */
#define REQUIRE(holds, ...)                                                                        \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            return refuse(__VA_ARGS__);                                                            \
        }                                                                                          \
    } while (0)

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
    return begin_call(function);
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
    return refuse("no attribute %d", (int)attribute);
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

typedef struct matrices {
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t a, b, c, d;
    int64_t rows, cols, depth; /* of D, and what is added over */
} matrices;

static cublasStatus_t check_layout(const char *name, const cublaslt_layout *l)
{
    REQUIRE(l->rows > 0 && l->cols > 0, "%s is %lld x %lld", name, (long long)l->rows,
            (long long)l->cols);
    REQUIRE(l->ld >= l->rows, "the leading dimension of %s is %lld, its rows are %lld", name,
            (long long)l->ld, (long long)l->rows);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_epilogue(const matrices *m)
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

static cublasStatus_t check_shapes(matrices *m)
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

static cublasStatus_t check_types(const matrices *m)
{
    bool tf32 = m->desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    REQUIRE(m->desc->scale == CUDA_R_32F, "alpha and beta are not fp32");
    REQUIRE(m->a->type == m->b->type, "A and B are not of one type");
    REQUIRE(m->c->type == m->d->type, "C and D are not of one type");
    REQUIRE(m->a->type == CUDA_R_16BF || m->d->type == CUDA_R_32F, "fp32 times fp32 gives bf16");
    REQUIRE(!tf32 || m->a->type == CUDA_R_32F, "TF32 of bf16");
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_all(matrices *m)
{
    cublasStatus_t status = check_layout("A", m->a);
    status = status == CUBLAS_STATUS_SUCCESS ? check_layout("B", m->b) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_layout("D", m->d) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_shapes(m) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_types(m) : status;
    return status == CUBLAS_STATUS_SUCCESS ? check_epilogue(m) : status;
}

/* ---- algorithms: which one it is stands in what it was chosen for ---- */

static size_t workspace_of(const matrices *m)
{
    return m->depth > 30 ? WORKSPACE_BYTES : 0;
}

/* A product by another algorithm than its own is refused. alignment: of A, B, C and D */
static cublasLtMatmulAlgo_t algorithm_of(const matrices *m, const uint32_t alignment[4])
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
    matrices m = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    cublasStatus_t status = check_all(&m);
    (void)handle;
    *n = 0;
    log_question();
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    int refused = standin.refused_epilogue;
    if (n_asked < 1 || (refused != 0 && (desc->epilogue & refused) == refused) || refused == -1 ||
        preference->workspace_bytes < workspace_of(&m)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *n = 1;
    *results = (cublasLtMatmulHeuristicResult_t){.algo = algorithm_of(&m, preference->alignment),
                                                 .workspaceSize = workspace_of(&m),
                                                 .state = CUBLAS_STATUS_SUCCESS};
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_algorithm(const matrices *m, const cublasLtMatmulAlgo_t *algorithm)
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
    matrices m = {.desc = desc, .a = a, .b = b, .c = c, .d = d};
    cublasStatus_t status = check_all(&m);
    (void)handle;
    status = status == CUBLAS_STATUS_SUCCESS ? check_algorithm(&m, algorithm) : status;
    *result = (cublasLtMatmulHeuristicResult_t){
        .algo = *algorithm, .workspaceSize = workspace_of(&m), .state = status};
    return status;
}

/* ---- the product ---- */

static size_t size_of(cudaDataType_t type)
{
    return type == CUDA_R_16BF ? sizeof(uint16_t) : sizeof(float);
}

static float value_at(const void *memory, cudaDataType_t type, int64_t at)
{
    float x;
    if (type == CUDA_R_32F) {
        memcpy(&x, (const char *)memory + at * (int64_t)sizeof x, sizeof x);
        return x;
    }
    fl_bf16_widen((const char *)memory + at * (int64_t)sizeof(uint16_t), 1, &x);
    return x;
}

static void put_value(void *memory, cudaDataType_t type, int64_t at, float x)
{
    if (type == CUDA_R_32F) {
        memcpy((char *)memory + at * (int64_t)sizeof x, &x, sizeof x);
        return;
    }
    uint16_t half;
    fl_bf16_narrow(&x, 1, &half);
    memcpy((char *)memory + at * (int64_t)sizeof half, &half, sizeof half);
}

/* Ten bits of the fraction, as tensor cores read fp32 values in TF32. */
static float round_to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xFFFu + (bits >> 13 & 1u)) & ~UINT32_C(0x1FFF);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Element (row, column) of op(matrix). */
static double factor_at(const matrices *m, const void *memory, const cublaslt_layout *l, int32_t op,
                        int64_t row, int64_t column)
{
    int64_t at = op == CUBLAS_OP_T ? row * l->ld + column : column * l->ld + row;
    float x = value_at(memory, l->type, at);
    return m->desc->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? (double)round_to_tf32(x) : (double)x;
}

static float gelu_of(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

typedef struct operands {
    const void *a, *b, *c;
    void *d;
    float alpha, beta;
} operands;

static void compute_element(const matrices *m, const operands *o, int64_t row, int64_t column)
{
    const cublaslt_desc *d = m->desc;
    double sum = 0.0;
    for (int64_t k = 0; k < m->depth; k++) {
        sum += factor_at(m, o->a, m->a, d->left_op, row, k) *
               factor_at(m, o->b, m->b, d->right_op, k, column);
    }
    float x = o->alpha * (float)sum;
    x += o->beta == 0.0f ? 0.0f : o->beta * value_at(o->c, m->c->type, column * m->c->ld + row);
    x += (d->epilogue & CUBLASLT_EPILOGUE_BIAS) == 0 ? 0.0f : value_at(d->bias, m->d->type, row);
    if ((d->epilogue & 128) != 0) {
        put_value(d->aux, m->d->type, column * d->aux_ld + row, x);
    }
    x = (d->epilogue & CUBLASLT_EPILOGUE_GELU) == 0 ? x : gelu_of(x);
    put_value(o->d, m->d->type, column * m->d->ld + row, x);
}

/* Of device memory, to its last element, and aligned as the algorithm was told. */
static cublasStatus_t check_operand(const char *name, const void *memory, const cublaslt_layout *l,
                                    uint32_t alignment)
{
    size_t n = (size_t)((l->cols - 1) * l->ld + l->rows) * size_of(l->type);
    REQUIRE(shim_region_holds(memory, n), "%zu bytes of %s are not in device memory", n, name);
    REQUIRE((uintptr_t)memory % alignment == 0, "%s is not aligned to %u bytes", name, alignment);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_operands(const matrices *m, const operands *o,
                                     const cublasLtMatmulAlgo_t *algorithm)
{
    const cublaslt_desc *d = m->desc;
    size_t element = size_of(m->d->type), bias_bytes = (size_t)m->rows * element;
    size_t aux_bytes = ((size_t)(d->aux_ld * (m->cols - 1) + m->rows)) * element;
    bool has_aux = (d->epilogue & 128) != 0, has_bias = (d->epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
    cublasStatus_t status = check_operand("A", o->a, m->a, (uint32_t)algorithm->data[5]);
    status = status == CUBLAS_STATUS_SUCCESS
                 ? check_operand("B", o->b, m->b, (uint32_t)(algorithm->data[5] >> 32))
                 : status;
    status = status == CUBLAS_STATUS_SUCCESS
                 ? check_operand("C", o->c, m->c, (uint32_t)algorithm->data[6])
                 : status;
    status = status == CUBLAS_STATUS_SUCCESS
                 ? check_operand("D", o->d, m->d, (uint32_t)(algorithm->data[6] >> 32))
                 : status;
    REQUIRE(status != CUBLAS_STATUS_SUCCESS || o->beta != 0.0f || o->c == o->d,
            "C is not D, though it is not added");
    REQUIRE(status != CUBLAS_STATUS_SUCCESS || !has_bias || shim_region_holds(d->bias, bias_bytes),
            "the bias is not in device memory");
    REQUIRE(status != CUBLAS_STATUS_SUCCESS || !has_aux || shim_region_holds(d->aux, aux_bytes),
            "what is before GELU is not in device memory");
    return status;
}

/* All that a product is described by, by value: the descriptions may change before it runs. */
typedef struct product_call {
    cublaslt_desc desc;
    cublaslt_layout a, b, c, d;
    matrices m; /* its pointers are set when it runs */
    operands o;
    void *workspace;
    size_t needed_bytes;
} product_call;

static int compute_product(void *call)
{
    product_call *p = call;
    p->m.desc = &p->desc;
    p->m.a = &p->a;
    p->m.b = &p->b;
    p->m.c = &p->c;
    p->m.d = &p->d;
    memset(p->workspace, 0x5A, p->needed_bytes);
    for (int64_t column = 0; column < p->m.cols; column++) {
        for (int64_t row = 0; row < p->m.rows; row++) {
            compute_element(&p->m, &p->o, row, column);
        }
    }
    return 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    BEGIN();
    matrices m = {.desc = desc, .a = a_layout, .b = b_layout, .c = c_layout, .d = d_layout};
    const operands o = {.a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .alpha = *(const float *)alpha,
                        .beta = *(const float *)beta};
    cublasStatus_t status = check_all(&m);
    status = status == CUBLAS_STATUS_SUCCESS ? check_algorithm(&m, algorithm) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_operands(&m, &o, algorithm) : status;
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    size_t needed = workspace_of(&m);
    REQUIRE(handle != NULL && stream != NULL, "there is no handle or no stream");
    REQUIRE(workspace_bytes >= needed && (needed == 0 || shim_region_holds(workspace, needed)) &&
                (uintptr_t)workspace % 256 == 0,
            "the workspace has %zu bytes, the algorithm needs %zu", workspace_bytes, needed);
    product_call call = {*desc, *a_layout, *b_layout, *c_layout, *d_layout,
                         m,     o,         workspace, needed};
    int code = shim_captures(stream) ? shim_capture_add(stream, compute_product, &call, sizeof call)
                                     : compute_product(&call);
    return code == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}
