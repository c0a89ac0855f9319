/* Kernels: a call checks and translates the pointers of its arguments, and queues a copy of them;
 * the stream's thread hands that copy to the CPU device.
 *
 * Each kernel has a table of the fields in its arguments that point to memory. What the host's side
 * of the arguments points to is taken at the call: weights by value, lists in pieces. Where an
 * argument comes twice, for the host and for the device, the kernel gets the device's, so that one
 * that was not uploaded shows. */
#include "device/async/parts.h"

#include <stddef.h>
#include <string.h>

typedef enum field_kind {
    MEMORY,  /* device memory */
    WEIGHT,  /* an fl_weight of the host, whose data is device memory */
    OFFSETS, /* an fl_offsets */
    MASK,    /* an fl_mask */
} field_kind;

typedef struct field {
    const char *name;
    size_t at;
    field_kind kind;
} field;

struct fl__async_kernel {
    fl__async_entry entry;
    size_t args_bytes;
    const field *fields;
    int n_fields;
    fl_status (*run)(fl_device *cpu, const void *args);
};

/* ---- lists, in pieces that fit a queue's place ---- */

enum { UPDATES = 8, SQUARES = 16 };

typedef struct adamw_args {
    fl_adamw_step step;
    int n;
    fl_update list[UPDATES];
} adamw_args;

typedef struct sgd_args {
    fl_sgd_step step;
    int n;
    fl_update list[UPDATES];
} sgd_args;

typedef struct squares_args {
    int n;
    fl_square_sum list[SQUARES];
} squares_args;

typedef struct add_to_sum_args {
    double value;
    double *sum;
} add_to_sum_args;

/* ---- where the arguments point to memory ---- */

#define FIELDS_linear(F, T)                                                                        \
    F(T, MEMORY, in)                                                                               \
    F(T, WEIGHT, w) F(T, WEIGHT, bias) F(T, MEMORY, residual) F(T, MEMORY, pre) F(T, MEMORY, y)
#define FIELDS_linear_backward_input(F, T)                                                         \
    F(T, MEMORY, grad_out)                                                                         \
    F(T, WEIGHT, w) F(T, MEMORY, grad_in)
#define FIELDS_linear_backward_weights(F, T)                                                       \
    F(T, MEMORY, grad_out)                                                                         \
    F(T, MEMORY, in) F(T, MEMORY, grad_w) F(T, MEMORY, grad_bias)
#define FIELDS_activate(F, T)                                                                      \
    F(T, MEMORY, in)                                                                               \
    F(T, MEMORY, y)
#define FIELDS_activate_backward(F, T)                                                             \
    F(T, MEMORY, grad_y)                                                                           \
    F(T, MEMORY, pre) F(T, MEMORY, grad_pre) F(T, MEMORY, y)
#define FIELDS_layernorm(F, T)                                                                     \
    F(T, MEMORY, in)                                                                               \
    F(T, MEMORY, residual)                                                                         \
    F(T, WEIGHT, gamma)                                                                            \
    F(T, WEIGHT, beta)                                                                             \
    F(T, MEMORY, sum) F(T, MEMORY, y) F(T, MEMORY, mean) F(T, MEMORY, rstd)
#define FIELDS_layernorm_backward(F, T)                                                            \
    F(T, MEMORY, grad_y)                                                                           \
    F(T, MEMORY, in)                                                                               \
    F(T, WEIGHT, gamma)                                                                            \
    F(T, MEMORY, mean)                                                                             \
    F(T, MEMORY, rstd)                                                                             \
    F(T, MEMORY, grad_residual)                                                                    \
    F(T, MEMORY, grad_in) F(T, MEMORY, grad_gamma) F(T, MEMORY, grad_beta)
#define FIELDS_rmsnorm FIELDS_layernorm
#define FIELDS_rmsnorm_backward FIELDS_layernorm_backward
#define FIELDS_attention(F, T)                                                                     \
    F(T, MEMORY, qkv)                                                                              \
    F(T, OFFSETS, offsets) F(T, MASK, mask) F(T, MEMORY, y) F(T, MEMORY, lse)
#define FIELDS_attention_backward(F, T)                                                            \
    F(T, MEMORY, forward.qkv)                                                                      \
    F(T, OFFSETS, forward.offsets)                                                                 \
    F(T, MASK, forward.mask)                                                                       \
    F(T, MEMORY, forward.y)                                                                        \
    F(T, MEMORY, forward.lse) F(T, MEMORY, grad_y) F(T, MEMORY, grad_qkv)
#define FIELDS_dropout(F, T)                                                                       \
    F(T, MEMORY, in)                                                                               \
    F(T, OFFSETS, offsets) F(T, MASK, mask) F(T, MEMORY, y)
#define FIELDS_add(F, T)                                                                           \
    F(T, MEMORY, a)                                                                                \
    F(T, MEMORY, b) F(T, MEMORY, y)
#define FIELDS_convert FIELDS_activate
#define FIELDS_gather_rows(F, T)                                                                   \
    F(T, MEMORY, in)                                                                               \
    F(T, MEMORY, index) F(T, MEMORY, y)
#define FIELDS_scatter_rows FIELDS_gather_rows
#define FIELDS_embed(F, T)                                                                         \
    F(T, OFFSETS, offsets)                                                                         \
    F(T, WEIGHT, table[0].weight)                                                                  \
    F(T, MEMORY, table[0].ids)                                                                     \
    F(T, WEIGHT, table[1].weight)                                                                  \
    F(T, MEMORY, table[1].ids)                                                                     \
    F(T, WEIGHT, table[2].weight) F(T, MEMORY, table[2].ids) F(T, MEMORY, y)
#define FIELDS_embed_backward(F, T)                                                                \
    F(T, OFFSETS, forward.offsets)                                                                 \
    F(T, WEIGHT, forward.table[0].weight)                                                          \
    F(T, MEMORY, forward.table[0].grad)                                                            \
    F(T, MEMORY, forward.table[0].ids)                                                             \
    F(T, WEIGHT, forward.table[1].weight)                                                          \
    F(T, MEMORY, forward.table[1].grad)                                                            \
    F(T, MEMORY, forward.table[1].ids)                                                             \
    F(T, WEIGHT, forward.table[2].weight)                                                          \
    F(T, MEMORY, forward.table[2].grad) F(T, MEMORY, forward.table[2].ids) F(T, MEMORY, grad_y)
#define FIELDS_patchify(F, T)                                                                      \
    F(T, MEMORY, images)                                                                           \
    F(T, MEMORY, patches)
#define FIELDS_patchify_backward FIELDS_patchify
#define FIELDS_vit_assemble(F, T)                                                                  \
    F(T, MEMORY, patches)                                                                          \
    F(T, WEIGHT, cls) F(T, WEIGHT, pos) F(T, MEMORY, y)
#define FIELDS_vit_assemble_backward(F, T)                                                         \
    F(T, MEMORY, grad_y)                                                                           \
    F(T, MEMORY, grad_patches) F(T, MEMORY, grad_cls) F(T, MEMORY, grad_pos)
#define FIELDS_cross_entropy(F, T)                                                                 \
    FIELDS_rows_cross_entropy(F, T) F(T, MEMORY, n_positive) F(T, MEMORY, n_true_positive)
#define FIELDS_rows_cross_entropy(F, T)                                                            \
    F(T, MEMORY, logits)                                                                           \
    F(T, MEMORY, targets)                                                                          \
    F(T, MEMORY, grad) F(T, MEMORY, loss) F(T, MEMORY, n_correct) F(T, MEMORY, n_counted)
#define FIELDS_span_cross_entropy(F, T)                                                            \
    F(T, OFFSETS, offsets)                                                                         \
    FIELDS_rows_cross_entropy(F, T)
#define FIELDS_squared_error(F, T)                                                                 \
    F(T, MEMORY, out)                                                                              \
    F(T, MEMORY, targets) F(T, MEMORY, grad) F(T, MEMORY, square_sum) F(T, MEMORY, absolute_sum)
#define FIELDS_add_to_sum(F, T) F(T, MEMORY, sum)
#define FIELDS_update(F, T, i)                                                                     \
    F(T, MEMORY, list[i].w)                                                                        \
    F(T, MEMORY, list[i].g) F(T, MEMORY, list[i].moment[0]) F(T, MEMORY, list[i].moment[1])
#define FIELDS_adamw_many(F, T)                                                                    \
    FIELDS_update(F, T, 0) FIELDS_update(F, T, 1) FIELDS_update(F, T, 2) FIELDS_update(F, T, 3)    \
        FIELDS_update(F, T, 4) FIELDS_update(F, T, 5) FIELDS_update(F, T, 6)                       \
            FIELDS_update(F, T, 7)
#define FIELDS_sgd_many FIELDS_adamw_many
#define FIELDS_square(F, T, i) F(T, MEMORY, list[i].x) F(T, MEMORY, list[i].out)
#define FIELDS_four_squares(F, T, i)                                                               \
    FIELDS_square(F, T, i) FIELDS_square(F, T, i + 1) FIELDS_square(F, T, i + 2)                   \
        FIELDS_square(F, T, i + 3)
#define FIELDS_sum_squares_many(F, T)                                                              \
    FIELDS_four_squares(F, T, 0) FIELDS_four_squares(F, T, 4) FIELDS_four_squares(F, T, 8)         \
        FIELDS_four_squares(F, T, 12)

#define FIELD(type, kind_, member) {#member, offsetof(type, member), kind_},
#define FIELD_TABLE(name, type)                                                                    \
    static const field fields_of_##name[] = {FIELDS_##name(FIELD, type)};                          \
    _Static_assert(sizeof(type) <= FL__ASYNC_ARGS_BYTES, "the arguments fit a queue's place");
FL__ASYNC_KERNELS(FIELD_TABLE)
FL__ASYNC_OTHER_KERNELS(FIELD_TABLE)

/* ---- on the stream's thread ---- */

#define RUN_KERNEL(name, type)                                                                     \
    static fl_status run_##name(fl_device *cpu, const void *args)                                  \
    {                                                                                              \
        return cpu->ops->name(cpu, NULL, args);                                                    \
    }
FL__ASYNC_KERNELS(RUN_KERNEL)

static fl_status run_add_to_sum(fl_device *cpu, const void *args)
{
    const add_to_sum_args *a = args;
    return cpu->ops->add_to_sum(cpu, NULL, a->value, a->sum);
}

static fl_status run_adamw_many(fl_device *cpu, const void *args)
{
    const adamw_args *a = args;
    return cpu->ops->adamw_many(cpu, NULL, a->list, a->n, &a->step);
}

static fl_status run_sgd_many(fl_device *cpu, const void *args)
{
    const sgd_args *a = args;
    return cpu->ops->sgd_many(cpu, NULL, a->list, a->n, &a->step);
}

static fl_status run_sum_squares_many(fl_device *cpu, const void *args)
{
    const squares_args *a = args;
    return cpu->ops->sum_squares_many(cpu, NULL, a->list, a->n);
}

static void run_kernel(fl__async *a, fl_device *cpu, fl__async_work *w)
{
    (void)a;
    w->status = w->kernel->run(cpu, w->args);
    if (w->status != FL_OK) {
        w->status = fl_within(w->status, "device async-test: the work of %s",
                              fl__async_entry_name(w->entry));
    }
}

/* ---- on the caller's ---- */

static void *pointer_at(const unsigned char *args, size_t at)
{
    void *pointer;
    memcpy(&pointer, args + at, sizeof pointer);
    return pointer;
}

static void put_pointer(unsigned char *args, size_t at, const void *pointer)
{
    memcpy(args + at, &pointer, sizeof pointer);
}

static fl_status translate_memory(fl__async *a, fl__async_work *w, const char *name, size_t at)
{
    void *handed = pointer_at(w->args, at), *bytes = NULL;
    if (handed != NULL) {
        FL_TRY(fl__async_translate(a, w->entry, name, handed, 0, &bytes));
        put_pointer(w->args, at, bytes);
    }
    return FL_OK;
}

static fl_status translate_weight(fl__async *a, fl__async_work *w, const field *f, int *n_weights)
{
    const fl_weight *weight = pointer_at(w->args, f->at);
    void *bytes = NULL;
    if (weight == NULL) {
        return FL_OK;
    }
    fl_weight *taken = &w->weight[(*n_weights)++];
    *taken = *weight;
    FL_TRY(fl__async_translate(a, w->entry, f->name, weight->data, 0, &bytes));
    taken->data = bytes;
    put_pointer(w->args, f->at, taken);
    return FL_OK;
}

/* Two pointers to the same values: the host's must not be needed by then. */
static fl_status translate_pair(fl__async *a, fl__async_work *w, const char *name, size_t host,
                                size_t device)
{
    if (pointer_at(w->args, device) == NULL && pointer_at(w->args, host) != NULL) {
        return fl_fail(FL_EINVAL, "device async-test: %s: `%s` is in host memory only",
                       fl__async_entry_name(w->entry), name);
    }
    FL_TRY(translate_memory(a, w, name, device));
    put_pointer(w->args, host, pointer_at(w->args, device));
    return FL_OK;
}

static fl_status translate(fl__async *a, fl__async_work *w, const field *f, int *n_weights)
{
    switch (f->kind) {
    case MEMORY:
        return translate_memory(a, w, f->name, f->at);
    case WEIGHT:
        return translate_weight(a, w, f, n_weights);
    case OFFSETS:
        return translate_pair(a, w, f->name, f->at + offsetof(fl_offsets, host),
                              f->at + offsetof(fl_offsets, device));
    case MASK:
        FL_TRY(translate_memory(a, w, f->name, f->at + offsetof(fl_mask, epoch_key_device)));
        return translate_pair(a, w, f->name, f->at + offsetof(fl_mask, sample_ids),
                              f->at + offsetof(fl_mask, sample_ids_device));
    }
    return FL_OK;
}

/* With the lock. Nothing is queued on failure. */
static fl_status queue_kernel(fl__async *a, fl_stream *s, const fl__async_kernel *k,
                              const void *args, bool fails)
{
    int n_weights = 0;
    fl__async_work *w = fl__stream_begin(a, s, k->entry);
    w->run = run_kernel;
    w->fails = fails;
    w->kernel = k;
    memcpy(w->args, args, k->args_bytes);
    for (int i = 0; i < k->n_fields; i++) {
        FL_TRY(translate(a, w, &k->fields[i], &n_weights));
    }
    fl__stream_push(a, s);
    return FL_OK;
}

static fl_status start_kernel(fl_device *d, fl_stream *s, const fl__async_kernel *k,
                              const void *args)
{
    fl__async *a = fl__async_of(d);
    bool fails = false;
    FL_TRY(fl__async_enter(a, k->entry, &fails));
    pthread_mutex_lock(&a->lock);
    fl_status status = queue_kernel(a, fl__stream_of(a, s), k, args, fails);
    pthread_mutex_unlock(&a->lock);
    return status;
}

#define KERNEL(name_, type)                                                                        \
    static const fl__async_kernel kernel_##name_ = {                                               \
        .entry = FL__ASYNC_##name_,                                                                \
        .args_bytes = sizeof(type),                                                                \
        .fields = fields_of_##name_,                                                               \
        .n_fields = (int)(sizeof fields_of_##name_ / sizeof(field)),                               \
        .run = run_##name_,                                                                        \
    };
FL__ASYNC_KERNELS(KERNEL)
FL__ASYNC_OTHER_KERNELS(KERNEL)

#define START_KERNEL(name, type)                                                                   \
    fl_status fl__async_##name(fl_device *d, fl_stream *s, const type *args)                       \
    {                                                                                              \
        return start_kernel(d, s, &kernel_##name, args);                                           \
    }
FL__ASYNC_KERNELS(START_KERNEL)

fl_status fl__async_add_to_sum(fl_device *d, fl_stream *s, double value, double *sum)
{
    return start_kernel(d, s, &kernel_add_to_sum, &(add_to_sum_args){value, sum});
}

static int piece_of(int n, int most)
{
    return n < most ? n : most;
}

fl_status fl__async_adamw_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                               const fl_adamw_step *step)
{
    for (int first = 0; first < n; first += UPDATES) {
        adamw_args args = {.step = *step, .n = piece_of(n - first, UPDATES)};
        memcpy(args.list, list + first, (size_t)args.n * sizeof *list);
        FL_TRY(start_kernel(d, s, &kernel_adamw_many, &args));
    }
    return FL_OK;
}

fl_status fl__async_sgd_many(fl_device *d, fl_stream *s, const fl_update *list, int n,
                             const fl_sgd_step *step)
{
    for (int first = 0; first < n; first += UPDATES) {
        sgd_args args = {.step = *step, .n = piece_of(n - first, UPDATES)};
        memcpy(args.list, list + first, (size_t)args.n * sizeof *list);
        FL_TRY(start_kernel(d, s, &kernel_sgd_many, &args));
    }
    return FL_OK;
}

fl_status fl__async_sum_squares_many(fl_device *d, fl_stream *s, const fl_square_sum *list, int n)
{
    for (int first = 0; first < n; first += SQUARES) {
        squares_args args = {.n = piece_of(n - first, SQUARES)};
        memcpy(args.list, list + first, (size_t)args.n * sizeof *list);
        FL_TRY(start_kernel(d, s, &kernel_sum_squares_many, &args));
    }
    return FL_OK;
}

bool fl__async_kernel_uses(const fl__async_work *w, const void *bytes, size_t size_bytes)
{
    for (int i = 0; i < w->kernel->n_fields; i++) {
        const field *f = &w->kernel->fields[i];
        const unsigned char *at = pointer_at(w->args, f->at); /* a pair begins with its host's */
        if (f->kind == WEIGHT && at != NULL) {
            at = (const unsigned char *)((const fl_weight *)(const void *)at)->data;
        } else if (f->kind == MASK) {
            at = pointer_at(w->args, f->at + offsetof(fl_mask, sample_ids_device));
        }
        if (at != NULL && (size_t)(at - (const unsigned char *)bytes) < size_bytes) {
            return true;
        }
    }
    return false;
}
