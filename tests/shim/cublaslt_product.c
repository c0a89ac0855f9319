/* The products of cuBLASLt on the host: element by element, as the descriptions say. A call whose
 * pointers contradict its descriptions is refused, and cublaslt_error tells why. */
#include "tests/shim/cublaslt_parts.h"

#include "device/cpu/bf16.h"
#include "tests/shim/capture.h"
#include "tests/shim/shim.h"

#include <math.h>
#include <string.h>

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
static double factor_at(const cublaslt_matrices *m, const void *memory, const cublaslt_layout *l,
                        int32_t op, int64_t row, int64_t column)
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

static void compute_element(const cublaslt_matrices *m, const operands *o, int64_t row,
                            int64_t column)
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

static cublasStatus_t check_operands(const cublaslt_matrices *m, const operands *o,
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
    cublaslt_matrices m; /* its pointers are set when it runs */
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
    cublaslt_matrices m = {
        .desc = desc, .a = a_layout, .b = b_layout, .c = c_layout, .d = d_layout};
    const operands o = {.a = a,
                        .b = b,
                        .c = c,
                        .d = d,
                        .alpha = *(const float *)alpha,
                        .beta = *(const float *)beta};
    cublasStatus_t status = cublaslt_check(&m);
    status = status == CUBLAS_STATUS_SUCCESS ? cublaslt_check_algorithm(&m, algorithm) : status;
    status = status == CUBLAS_STATUS_SUCCESS ? check_operands(&m, &o, algorithm) : status;
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    size_t needed = cublaslt_workspace(&m);
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
