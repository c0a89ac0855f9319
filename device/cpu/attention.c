/* Attention over a ragged batch: each (sample, head) by itself, split over the compute threads. */
#include "device/cpu/cpu.h"

static int64_t longest(const int32_t *offsets, int64_t n_samples)
{
    int64_t most = 0;
    for (int64_t i = 0; i < n_samples; i++) {
        int64_t n = offsets[i + 1] - offsets[i];
        most = n > most ? n : most;
    }
    return most;
}

/* The controller of number `at` % heads in sample `at` / heads. */
static fl__attention_head head_of(const float *qkv, const int32_t *offsets, int64_t at,
                                  int64_t heads, int64_t width, bool causal)
{
    int64_t first = offsets[at / heads], head_dim = width / heads;
    const float *q = qkv + first * 3 * width + at % heads * head_dim;
    return (fl__attention_head){
        .q = q,
        .k = q + width,
        .v = q + 2 * width,
        .n_tokens = offsets[at / heads + 1] - first,
        .head_dim = head_dim,
        .width = width,
        .heads = heads,
        .causal = causal,
    };
}

fl_status fl__cpu_attention(fl_device *d, FL__UNUSED fl_stream *s, const float *qkv,
                            const int32_t *offsets, int64_t n_samples, int64_t heads, int64_t width,
                            bool causal, float *y, float *lse)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t head_dim = width / heads;
    FL_TRY(fl__cpu_reserve(
        cpu, cpu->isa->attention_workspace(longest(offsets, n_samples), head_dim, false)));
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n_samples * heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(qkv, offsets, at, heads, width, causal);
            int64_t first = offsets[at / heads], head = at % heads;
            h.y = y + first * width + head * head_dim;
            h.lse = lse == NULL ? NULL : lse + first * heads + head;
            cpu->isa->attention(&h, fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}

fl_status fl__cpu_attention_backward(fl_device *d, FL__UNUSED fl_stream *s, const float *grad_y,
                                     const float *qkv, const float *y, const float *lse,
                                     const int32_t *offsets, int64_t n_samples, int64_t heads,
                                     int64_t width, bool causal, float *grad_qkv)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t head_dim = width / heads;
    FL_TRY(fl__cpu_reserve(
        cpu, cpu->isa->attention_workspace(longest(offsets, n_samples), head_dim, true)));
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n_samples * heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(qkv, offsets, at, heads, width, causal);
            int64_t first = offsets[at / heads], column = at % heads * head_dim;
            h.grad_y = grad_y + first * width + column;
            h.y_in = y + first * width + column;
            h.lse_in = lse + first * heads + at % heads;
            h.grad_q = grad_qkv + first * 3 * width + column;
            h.grad_k = h.grad_q + width;
            h.grad_v = h.grad_k + width;
            cpu->isa->attention_backward(&h, fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}
