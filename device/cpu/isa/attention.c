/* Softmax attention of one (sample, head). */
#include "device/cpu/isa/passes.h"

#include <math.h>

size_t FL_ISA_NAME(attention_workspace)(int64_t n_tokens, int64_t head_dim, bool backward)
{
    (void)head_dim;
    (void)backward;
    return (size_t)n_tokens * 2 * sizeof(float);
}

static float dot(const float *a, const float *b, int64_t n)
{
    float s = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        s += a[i] * b[i];
    }
    return s;
}

void FL_ISA_NAME(attention)(const fl__attention_head *h, float *workspace)
{
    int64_t stride = 3 * h->width;
    float scale = 1.0f / sqrtf((float)h->head_dim);
    for (int64_t i = 0; i < h->n_tokens; i++) {
        int64_t n = h->causal ? i + 1 : h->n_tokens;
        float top = -INFINITY, sum = 0.0f;
        for (int64_t j = 0; j < n; j++) {
            workspace[j] = dot(h->q + i * stride, h->k + j * stride, h->head_dim) * scale;
            top = fmaxf(top, workspace[j]);
        }
        for (int64_t j = 0; j < n; j++) {
            workspace[j] = expf(workspace[j] - top);
            sum += workspace[j];
        }
        for (int64_t c = 0; c < h->head_dim; c++) {
            float y = 0.0f;
            for (int64_t j = 0; j < n; j++) {
                y += workspace[j] * h->v[j * stride + c];
            }
            h->y[i * h->width + c] = y / sum;
        }
        if (h->lse != NULL) {
            h->lse[i * h->heads] = top + logf(sum);
        }
    }
}

void FL_ISA_NAME(attention_backward)(const fl__attention_head *h, float *workspace)
{
    (void)workspace;
    int64_t stride = 3 * h->width;
    float scale = 1.0f / sqrtf((float)h->head_dim);
    for (int64_t i = 0; i < h->n_tokens; i++) {
        for (int64_t c = 0; c < h->head_dim; c++) {
            h->grad_q[i * stride + c] = h->grad_k[i * stride + c] = h->grad_v[i * stride + c] = 0;
        }
    }
    for (int64_t i = 0; i < h->n_tokens; i++) {
        const float *q = h->q + i * stride, *gy = h->grad_y + i * h->width;
        float delta = dot(gy, h->y_in + i * h->width, h->head_dim);
        int64_t n = h->causal ? i + 1 : h->n_tokens;
        for (int64_t j = 0; j < n; j++) {
            const float *k = h->k + j * stride, *v = h->v + j * stride;
            float p = expf(dot(q, k, h->head_dim) * scale - h->lse_in[i * h->heads]);
            float ds = p * (dot(gy, v, h->head_dim) - delta) * scale;
            for (int64_t c = 0; c < h->head_dim; c++) {
                h->grad_v[j * stride + c] += p * gy[c];
                h->grad_k[j * stride + c] += ds * q[c];
                h->grad_q[i * stride + c] += ds * k[c];
            }
        }
    }
}
