/* Attention over a ragged batch: each (sample, head) by itself, split over the compute threads. */
#include "device/cpu/cpu.h"

#include "device/random/random.h"

/* The mask of head `head`: its key is that of the mask, mixed with the head. */
static void head_key(const uint32_t key[2], int64_t head, uint32_t out[2])
{
    uint64_t mixed = fl_mix64(key[0] | (uint64_t)key[1] << 32, (uint64_t)head);
    out[0] = (uint32_t)mixed;
    out[1] = (uint32_t)(mixed >> 32);
}

/* The head of number `at` % heads in sample `at` / heads, but for its pointers; key: the mask's. */
static fl__attention_head head_of(const fl_attention_args *a, int64_t at, const uint32_t key[2])
{
    int64_t sample = at / a->heads;
    fl__attention_head h = {
        .n_tokens = a->offsets.host[sample + 1] - a->offsets.host[sample],
        .head_dim = a->width / a->heads,
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

/* Where the head's first token and column stand in an array of `widths` times the width. */
static int64_t place_of(const fl_attention_args *a, int64_t at, int64_t widths)
{
    int64_t first = a->offsets.host[at / a->heads];
    return first * widths * a->width + at % a->heads * (a->width / a->heads);
}

static float *lse_of(const fl_attention_args *a, int64_t at)
{
    return a->lse == NULL ? NULL
                          : a->lse + a->offsets.host[at / a->heads] * a->heads + at % a->heads;
}

/* ---- bf16: a head's rows are widened into the thread's scratch, and what comes out is rounded.
 * All arithmetic is fp32. ---- */

/* q, k and v side by side, with `widths` such parts in the arguments' rows; the head then stands in
 * rows of its own width. */
static void widen_parts(const fl__cpu *cpu, const fl_attention_args *a, const fl__attention_head *h,
                        const uint16_t *from, int widths, float *wide)
{
    for (int i = 0; i < widths; i++) {
        cpu->isa->widen_rows(from + i * a->width, widths * a->width, wide + i * h->head_dim,
                             widths * h->head_dim, h->n_tokens, h->head_dim);
    }
}

static void narrow_parts(const fl__cpu *cpu, const fl_attention_args *a,
                         const fl__attention_head *h, const float *wide, int widths, uint16_t *to)
{
    for (int i = 0; i < widths; i++) {
        cpu->isa->narrow_rows(wide + i * h->head_dim, widths * h->head_dim, to + i * a->width,
                              widths * a->width, h->n_tokens, h->head_dim);
    }
}

/* Floats of a head: q, k, v and y, and with backward the gradients of all. */
static int64_t wide_floats(const fl_attention_args *a, bool backward)
{
    return (backward ? 7 : 4) * fl__longest_sample(&a->offsets) * (a->width / a->heads);
}

/* ---- forward ---- */

static void set_qkv(fl__attention_head *h, const float *qkv, int64_t width)
{
    h->q = qkv;
    h->k = qkv + width;
    h->v = qkv + 2 * width;
}

static void forward_fp32(const fl__cpu *cpu, const fl_attention_args *a, int64_t at,
                         fl__attention_head h, float *scratch)
{
    set_qkv(&h, (const float *)a->qkv + place_of(a, at, 3), a->width);
    h.y = (float *)a->y + place_of(a, at, 1);
    cpu->isa->attention(&h, scratch);
}

static void forward_bf16(const fl__cpu *cpu, const fl_attention_args *a, int64_t at,
                         fl__attention_head h, float *scratch)
{
    int64_t n = h.n_tokens * h.head_dim;
    widen_parts(cpu, a, &h, (const uint16_t *)a->qkv + place_of(a, at, 3), 3, scratch);
    h.width = h.head_dim;
    set_qkv(&h, scratch, h.width);
    h.y = scratch + 3 * n;
    cpu->isa->attention(&h, scratch + wide_floats(a, false));
    narrow_parts(cpu, a, &h, h.y, 1, (uint16_t *)a->y + place_of(a, at, 1));
}

static fl_status reserve(fl__cpu *cpu, const fl_attention_args *a, bool backward)
{
    int64_t longest = fl__longest_sample(&a->offsets);
    size_t size = cpu->isa->attention_workspace(longest, a->width / a->heads, backward);
    size_t wide = a->dtype == FL_BF16 ? (size_t)wide_floats(a, backward) * sizeof(float) : 0;
    return fl__cpu_reserve(cpu, size + wide);
}

fl_status fl__cpu_attention(fl_device *d, FL__UNUSED fl_stream *s, const fl_attention_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    uint32_t key[2];
    FL_TRY(reserve(cpu, a, false));
    fl__mask_key(&a->mask, key);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->offsets.n_samples * a->heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(a, at, key);
            h.lse = lse_of(a, at);
            (a->dtype == FL_BF16 ? forward_bf16 : forward_fp32)(cpu, a, at, h,
                                                                fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}

/* ---- backward ---- */

static void set_grads(fl__attention_head *h, float *grad_qkv, int64_t width)
{
    h->grad_q = grad_qkv;
    h->grad_k = grad_qkv + width;
    h->grad_v = grad_qkv + 2 * width;
}

static void backward_fp32(const fl__cpu *cpu, const fl_attention_backward_args *args, int64_t at,
                          fl__attention_head h, float *scratch)
{
    const fl_attention_args *a = &args->forward;
    set_qkv(&h, (const float *)a->qkv + place_of(a, at, 3), a->width);
    set_grads(&h, (float *)args->grad_qkv + place_of(a, at, 3), a->width);
    h.grad_y = (const float *)args->grad_y + place_of(a, at, 1);
    cpu->isa->attention_backward(&h, scratch);
}

static void backward_bf16(const fl__cpu *cpu, const fl_attention_backward_args *args, int64_t at,
                          fl__attention_head h, float *scratch)
{
    const fl_attention_args *a = &args->forward;
    int64_t n = h.n_tokens * h.head_dim;
    float *grad_y = scratch + 3 * n, *grad_qkv = scratch + 4 * n;
    widen_parts(cpu, a, &h, (const uint16_t *)a->qkv + place_of(a, at, 3), 3, scratch);
    widen_parts(cpu, a, &h, (const uint16_t *)args->grad_y + place_of(a, at, 1), 1, grad_y);
    h.width = h.head_dim;
    set_qkv(&h, scratch, h.width);
    set_grads(&h, grad_qkv, h.width);
    h.grad_y = grad_y;
    cpu->isa->attention_backward(&h, scratch + wide_floats(a, true));
    narrow_parts(cpu, a, &h, grad_qkv, 3, (uint16_t *)args->grad_qkv + place_of(a, at, 3));
}

fl_status fl__cpu_attention_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                     const fl_attention_backward_args *args)
{
    fl__cpu *cpu = fl__cpu_of(d);
    const fl_attention_args *a = &args->forward;
    uint32_t key[2];
    FL_TRY(reserve(cpu, a, true));
    fl__mask_key(&a->mask, key);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->offsets.n_samples * a->heads, 1, d->n_threads, t);
        for (int64_t at = r.begin; at < r.end; at++) {
            fl__attention_head h = head_of(a, at, key);
            h.lse_in = lse_of(a, at);
            (a->dtype == FL_BF16 ? backward_bf16 : backward_fp32)(cpu, args, at, h,
                                                                  fl__cpu_scratch(cpu, t));
        }
    }
    return FL_OK;
}
