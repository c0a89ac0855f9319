/* Attention over a ragged batch: each (sample, head) by itself, split over the compute threads. */
#include "device/cpu/wide.h"

#include "device/random.h"

/* The mask of head `head`: its key is that of the mask, mixed with the head. */
static void head_key(const uint32_t key[2], int64_t head, uint32_t out[2])
{
    uint64_t mixed = fl_mix64(key[0] | (uint64_t)key[1] << 32, (uint64_t)head);
    out[0] = (uint32_t)mixed;
    out[1] = (uint32_t)(mixed >> 32);
}

/* The head of number `at` % heads in sample `at` / heads; key: the mask's. */
static fl__attention_head head_of(const fl_attention_args *a, int64_t at, const uint32_t key[2])
{
    int64_t sample = at / a->heads, first = a->offsets.host[sample];
    int64_t head_dim = a->width / a->heads;
    const float *q = (const float *)a->qkv + first * 3 * a->width + at % a->heads * head_dim;
    fl__attention_head h = {
        .q = q,
        .k = q + a->width,
        .v = q + 2 * a->width,
        .n_tokens = a->offsets.host[sample + 1] - first,
        .head_dim = head_dim,
        .width = a->width,
        .heads = a->heads,
        .causal = a->causal,
        .scale = a->scale,
    };
    if (a->mask.p > 0.0f) {
        h.drop = a->mask.p;
        h.sample = a->mask.sample_ids[sample];
        head_key(key, at % a->heads, h.drop_key);
    }
    return h;
}

fl_status fl__cpu_attention(fl_device *d, FL__UNUSED fl_stream *s, const fl_attention_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t head_dim = a->width / a->heads;
    uint32_t key[2];
    FL_TRY(fl__cpu_fp32_only("attention", a->dtype));
    FL_TRY(fl__cpu_reserve(
        cpu, cpu->isa->attention_workspace(fl__longest_sample(&a->offsets), head_dim, false)));
    fl__mask_key(&a->mask, key);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->offsets.n_samples * a->heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(a, at, key);
            int64_t first = a->offsets.host[at / a->heads], head = at % a->heads;
            h.y = (float *)a->y + first * a->width + head * head_dim;
            h.lse = a->lse == NULL ? NULL : a->lse + first * a->heads + head;
            cpu->isa->attention(&h, fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}

fl_status fl__cpu_attention_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                     const fl_attention_backward_args *args)
{
    fl__cpu *cpu = fl__cpu_of(d);
    const fl_attention_args *a = &args->forward;
    int64_t head_dim = a->width / a->heads;
    uint32_t key[2];
    FL_TRY(fl__cpu_fp32_only("attention_backward", a->dtype));
    FL_TRY(fl__cpu_reserve(
        cpu, cpu->isa->attention_workspace(fl__longest_sample(&a->offsets), head_dim, true)));
    fl__mask_key(&a->mask, key);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->offsets.n_samples * a->heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(a, at, key);
            int64_t first = a->offsets.host[at / a->heads], column = at % a->heads * head_dim;
            h.grad_y = (const float *)args->grad_y + first * a->width + column;
            h.y_in = (const float *)a->y + first * a->width + column;
            h.lse_in = a->lse + first * a->heads + at % a->heads;
            h.grad_q = (float *)args->grad_qkv + first * 3 * a->width + column;
            h.grad_k = h.grad_q + a->width;
            h.grad_v = h.grad_k + a->width;
            cpu->isa->attention_backward(&h, fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}
