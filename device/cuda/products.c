/* Matrix products: by cuBLASLt, or by the project's own kernel, as the device was created.
 *
 * The library takes bf16 weights as bf16: fl_weight.pack has a copy of the weight and of its bias,
 * made when the weight is first used after an update. The own kernel reads the fp32 weights. Where
 * the library has no algorithm for a product, the own kernel computes it. */
#include "device/cuda/parts.h"
#include "device/system/alloc.h"

/* ---- copies of weights in bf16 ---- */

/* A copy of one fp32 array. The event is reached when it has been written. */
typedef struct half_copy {
    const float *from;
    uint64_t version;
    void *memory; /* NULL: none */
    size_t size_bytes;
    void *event;
    const fl__cuda_queue *written_in;
} half_copy;

/* What fl_weight.pack points to: copies of the weight and of its bias. */
typedef struct packed {
    half_copy weight, bias;
} packed;

static void drop_copy(fl__cuda *c, half_copy *h)
{
    if (h->event != NULL) {
        FL__CUDA_GIVE(c, event_destroy, h->event);
    }
    if (h->memory != NULL) {
        fl__cuda_piece_give(c, h->memory);
        atomic_fetch_sub(&c->base.workspace_bytes, h->size_bytes);
    }
    *h = (half_copy){0};
}

void fl__cuda_weight_release(fl_device *d, fl_weight *w)
{
    packed *p = w->pack;
    if (p != NULL) {
        drop_copy(fl__cuda_of(d), &p->weight);
        drop_copy(fl__cuda_of(d), &p->bias);
        fl_free(p);
        w->pack = NULL;
    }
}

static fl_status take_copy(fl__cuda *c, const fl_weight *w, half_copy *h)
{
    size_t size_bytes = (size_t)(w->rows * w->cols) * fl_dtype_size(FL_BF16);
    if (h->memory != NULL && h->size_bytes == size_bytes && h->from == w->data) {
        return FL_OK;
    }
    drop_copy(c, h);
    FL_TRY(fl__cuda_piece_take(c, size_bytes, &h->memory));
    h->size_bytes = size_bytes;
    atomic_fetch_add(&c->base.workspace_bytes, size_bytes);
    FL__CUDA_CALL(c, event_create, &h->event);
    return FL_OK;
}

/* Whatever reads the copy has been ordered before the update that made it old. */
static fl_status write_copy(fl__cuda *c, fl__cuda_queue *q, const fl_weight *w, half_copy *h)
{
    FL_TRY(take_copy(c, w, h));
    h->from = NULL; /* until it is written */
    const fl_convert_args convert = {
        .in = w->data, .y = h->memory, .from = FL_F32, .to = FL_BF16, .n = w->rows * w->cols};
    FL__CUDA_CALL(c, convert, q, &convert);
    FL__CUDA_CALL(c, event_record, h->event, q->stream);
    h->from = w->data;
    h->version = w->version;
    h->written_in = q;
    return FL_OK;
}

/* The same for work that is captured: what is written anew before each launch (graph.c). */
static fl_status capture_copy(const fl__cuda *c, const fl_weight *w, const half_copy *h,
                              const void **out)
{
    if (h->memory == NULL || h->from != w->data) {
        return fl__cuda_refuse_in_capture(c, "a weight has no bf16 copy yet");
    }
    *out = h->memory;
    return FL_OK;
}

/* *out: the array in bf16, for work of queue q */
static fl_status use_copy(fl__cuda *c, fl__cuda_queue *q, const fl_weight *w, half_copy *h,
                          const void **out)
{
    if (h->from != w->data || h->version != w->version) {
        FL_TRY(write_copy(c, q, w, h));
    } else if (h->written_in != q) {
        FL__CUDA_CALL(c, stream_wait_event, q->stream, h->event);
    }
    *out = h->memory;
    return FL_OK;
}

static fl_status pack_of(fl_weight *w, packed **out)
{
    if (w->pack == NULL) {
        FL_TRY(fl_alloc(sizeof(packed), &w->pack));
    }
    *out = w->pack;
    return FL_OK;
}

fl_status fl__cuda_weight_copies(fl__cuda *c, fl__cuda_stream *s, fl_weight *w,
                                 const fl_weight *bias, const void **copy, const void **bias_copy)
{
    packed *pack = NULL;
    FL_TRY(pack_of(w, &pack));
    if (s->capture != NULL) {
        FL_TRY(capture_copy(c, w, &pack->weight, copy));
        FL_TRY(bias == NULL ? FL_OK : capture_copy(c, bias, &pack->bias, bias_copy));
        return fl__cuda_capture_weight(s, w, bias, *copy, *bias_copy);
    }
    FL_TRY(use_copy(c, &s->queue, w, &pack->weight, copy));
    return bias == NULL ? FL_OK : use_copy(c, &s->queue, bias, &pack->bias, bias_copy);
}

/* Let a product by the library read bf16 copies where its values are bf16. bias: NULL: none */
static fl_status use_pack(fl__cuda *c, fl__cuda_queue *q, fl_weight *w, const fl_weight *bias,
                          fl__cuda_product *p)
{
    if (p->a_dtype == FL_BF16) {
        FL_TRY(fl__cuda_weight_copies(c, (fl__cuda_stream *)q, w, bias, &p->b, &p->bias));
        p->b_dtype = FL_BF16;
    }
    return FL_OK;
}

/* ---- products ---- */

static fl_status multiply_by_kernel(fl__cuda *c, fl__cuda_queue *q, const fl__cuda_product *p)
{
    FL__CUDA_CALL(c, multiply, q, p);
    return FL_OK;
}

/* *done false: the library has no algorithm for this product, and nothing was started */
static fl_status multiply_by_library(fl__cuda *c, fl__cuda_queue *q, const fl__cuda_product *p,
                                     bool *done)
{
    int code;
    FL__CUDA_LAUNCH(c, q, code, library_multiply, c->library, q, p);
    *done = code != FL__CUDA_NO_PRODUCT;
    return *done ? fl__cuda_status(c, "library_multiply", code) : FL_OK;
}

/* The product without its activation, and the activation apart. */
static fl_status multiply_then_activate(fl__cuda *c, fl__cuda_queue *q, const fl__cuda_product *p,
                                        bool *done)
{
    fl__cuda_product plain = *p;
    plain.activation = FL_ACT_NONE;
    plain.pre = NULL;
    plain.y = p->pre == NULL ? p->y : p->pre;
    FL_TRY(multiply_by_library(c, q, &plain, done));
    if (*done) {
        const fl_activate_args activate = {.dtype = p->y_dtype,
                                           .activation = p->activation,
                                           .in = plain.y,
                                           .y = p->y,
                                           .n = p->rows * p->cols};
        FL__CUDA_CALL(c, activate, q, &activate);
    }
    return FL_OK;
}

/* The library computes GELU's tanh form only. */
static fl_status multiply_and_activate(fl__cuda *c, fl__cuda_queue *q, const fl__cuda_product *p,
                                       bool *done)
{
    *done = false;
    if (p->activation == FL_ACT_NONE || p->activation == FL_ACT_GELU_TANH) {
        FL_TRY(multiply_by_library(c, q, p, done));
    }
    if (!*done && p->activation != FL_ACT_NONE) {
        FL_TRY(multiply_then_activate(c, q, p, done));
    }
    return FL_OK;
}

/* w, bias: where the product has a weight as b; NULL: none */
static fl_status multiply(fl__cuda *c, fl__cuda_queue *q, const fl__cuda_product *p, fl_weight *w,
                          const fl_weight *bias)
{
    bool done = false;
    FL_TRY(fl__cuda_enter(c));
    if (c->library != NULL && p->rows > 0 && p->depth > 0) {
        fl__cuda_product by_library = *p;
        if (w != NULL) {
            FL_TRY(use_pack(c, q, w, bias, &by_library));
        }
        FL_TRY(multiply_and_activate(c, q, &by_library, &done));
    }
    return done ? FL_OK : multiply_by_kernel(c, q, p);
}

/* ---- the kernels of the device table ---- */

fl_status fl__cuda_linear(fl_device *d, fl_stream *s, const fl_linear_args *a)
{
    fl__cuda *c = fl__cuda_of(d);
    const fl__cuda_product p = {.a = a->in,
                                .b = a->w->data,
                                .b_transposed = true,
                                .a_dtype = a->dtype,
                                .b_dtype = FL_F32,
                                .y_dtype = a->dtype,
                                .rows = a->m,
                                .cols = a->w->rows,
                                .depth = a->w->cols,
                                .added = a->residual,
                                .bias = a->bias == NULL ? NULL : a->bias->data,
                                .activation = a->activation,
                                .pre = a->pre,
                                .y = a->y};
    FL_TRY(fl__cuda_check_type("linear", a->dtype));
    return multiply(c, fl__cuda_queue_of(c, s), &p, a->w, a->bias);
}

fl_status fl__cuda_linear_backward_input(fl_device *d, fl_stream *s,
                                         const fl_linear_backward_input_args *a)
{
    fl__cuda *c = fl__cuda_of(d);
    const fl__cuda_product p = {.a = a->grad_out,
                                .b = a->w->data,
                                .a_dtype = a->dtype,
                                .b_dtype = FL_F32,
                                .y_dtype = a->dtype,
                                .rows = a->m,
                                .cols = a->w->cols,
                                .depth = a->w->rows,
                                .y = a->grad_in};
    FL_TRY(fl__cuda_check_type("linear_backward_input", a->dtype));
    return multiply(c, fl__cuda_queue_of(c, s), &p, a->w, NULL);
}

fl_status fl__cuda_linear_backward_weights(fl_device *d, fl_stream *s,
                                           const fl_linear_backward_weights_args *a)
{
    fl__cuda *c = fl__cuda_of(d);
    fl__cuda_queue *q = fl__cuda_queue_of(c, s);
    const fl__cuda_product p = {.a = a->grad_out,
                                .b = a->in,
                                .a_transposed = true,
                                .a_dtype = a->dtype,
                                .b_dtype = a->dtype,
                                .y_dtype = FL_F32,
                                .rows = a->n_out,
                                .cols = a->n_in,
                                .depth = a->m,
                                .added = a->grad_w,
                                .y = a->grad_w};
    const fl__cuda_column_sums_args sums = {
        .dtype = a->dtype, .x = a->grad_out, .sums = a->grad_bias, .m = a->m, .n = a->n_out};
    FL_TRY(fl__cuda_check_type("linear_backward_weights", a->dtype));
    if (a->grad_bias != NULL) {
        int code;
        FL__CUDA_LAUNCH(c, q, code, column_sums, q, &sums);
        FL_TRY(fl__cuda_status(c, "column_sums", code));
    }
    return a->grad_w == NULL ? FL_OK : multiply(c, q, &p, NULL, NULL);
}
