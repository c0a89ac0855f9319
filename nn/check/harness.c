#include "nn/check/harness.h"

#include "device/system/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    GUARD_BYTES = 256,
    FIRST_ID = 1000, /* ids are no places: a layer that takes one for the other is found */
    ID_STEP = 7,
    STREAM_IN = 0,
    STREAM_OUT = 1,
    STREAM_PARAMS = 16,
};

static const size_t DEVICE_BYTES = (size_t)1 << 40;
static const float PARAM_NOISE = 0.3f; /* moves parameters away from zeros and ones */

void fl__harness_noise(uint64_t seed, int index, float scale, float *out, int64_t n)
{
    const fl_param_spec spec = {.rows = n, .cols = 1, .init = FL_INIT_NORMAL, .scale = scale};
    fl_param_init(&spec, seed ^ UINT64_C(0x636865636B), 0, index, out);
}

int64_t fl__in_elements(const fl__harness *h)
{
    return h->in_row[h->n_samples] * h->in_shape.width;
}

int64_t fl__out_elements(const fl__harness *h)
{
    return h->out_row[h->n_samples] * h->out_shape.width;
}

/* ---- memory between guards ---- */

static fl_status guarded_init(fl__guarded *m, int64_t n)
{
    size_t bytes = (size_t)n * sizeof(float);
    FL_TRY(fl_alloc(bytes + 2 * GUARD_BYTES, &m->whole));
    m->n = n;
    m->data = (float *)(void *)((char *)m->whole + GUARD_BYTES);
    memset(m->whole, FL_GUARD_BYTE, GUARD_BYTES);
    memset((char *)m->whole + GUARD_BYTES + bytes, FL_GUARD_BYTE, GUARD_BYTES);
    return FL_OK;
}

static void poison(float *data, int64_t n)
{
    const uint32_t value = FL_POISON;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&data[i], &value, sizeof value);
    }
}

static bool is_poison(const float *value)
{
    uint32_t bits;
    memcpy(&bits, value, sizeof bits);
    return bits == FL_POISON;
}

/* n: the values that the call was given, of those that there is room for. */
static fl_status check_guards(const char *call, const char *what, const fl__guarded *m, int64_t n)
{
    const unsigned char *whole = m->whole;
    size_t end = GUARD_BYTES + (size_t)m->n * sizeof(float);
    for (int i = 1; i <= GUARD_BYTES; i++) {
        if (whole[GUARD_BYTES - i] != FL_GUARD_BYTE) {
            return fl_fail(FL_EINVAL, "%s writes before the start of %s, at byte -%d", call, what,
                           i);
        }
    }
    for (int64_t i = n; i < m->n; i++) {
        if (!is_poison(&m->data[i])) {
            return fl_fail(FL_EINVAL, "%s writes value %lld of %s, which has %lld", call,
                           (long long)i, what, (long long)n);
        }
    }
    for (int i = 0; i < GUARD_BYTES; i++) {
        if (whole[end + (size_t)i] != FL_GUARD_BYTE) {
            int64_t bytes = m->n * (int64_t)sizeof(float);
            return fl_fail(FL_EINVAL, "%s writes behind the end of %s, at byte %lld of %lld", call,
                           what, (long long)bytes + i, (long long)bytes);
        }
    }
    return FL_OK;
}

static fl_status check_same(const char *call, const char *what, const float *now,
                            const float *before, int64_t n, int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&now[i], &before[i], sizeof now[i]) != 0) {
            return fl_fail(FL_EINVAL,
                           "%s changes %s, which it must not: element [%lld, %lld] was %g, is %g",
                           call, what, (long long)(i / width), (long long)(i % width),
                           (double)before[i], (double)now[i]);
        }
    }
    return FL_OK;
}

static fl_status check_written(const char *call, const char *what, const float *v, int64_t n,
                               int64_t width)
{
    for (int64_t i = 0; i < n; i++) {
        if (is_poison(&v[i])) {
            return fl_fail(
                FL_EINVAL,
                "%s does not write element [%lld, %lld] of %s, or computes it from memory "
                "that it has not written",
                call, (long long)(i / width), (long long)(i % width), what);
        }
        if (!isfinite(v[i])) {
            return fl_fail(FL_EINVAL, "%s gives %g for element [%lld, %lld] of %s", call,
                           (double)v[i], (long long)(i / width), (long long)(i % width), what);
        }
    }
    return FL_OK;
}

static fl_status check_arenas(const fl__harness *h, const fl__slot *s, const char *call)
{
    size_t off = 0;
    char what[48] = "a piece of scratch memory";
    const fl_arena_piece *p = fl_arena_guard_find(&s->keep_guard, &off);
    for (int slot = 0; p != NULL && slot < FL_KEEP_MAX; slot++) {
        if (s->frame.kept[slot] == p->at) {
            snprintf(what, sizeof what, "what it kept under slot %d", slot);
        }
    }
    p = p == NULL ? fl_arena_guard_find(&h->scratch_guard, &off) : p;
    return p == NULL ? FL_OK
                     : fl_fail(FL_EINVAL, "%s writes behind the end of %s, at byte %zu of %zu",
                               call, what, p->size_bytes + off, p->size_bytes);
}

/* ---- making it ---- */

static fl_status init_rows(fl__harness *h, const fl_shape *shape)
{
    const fl_layer *l = fl_model_layer(h->model, h->layer);
    for (int s = 0; s < h->n_samples; s++) {
        fl_shape out = {0};
        FL_TRY(l->ops->shape(l->self, &shape[s], &out));
        h->in_shape = shape[s];
        h->out_shape = out;
        h->in_row[s + 1] = h->in_row[s] + shape[s].tokens;
        h->out_row[s + 1] = h->out_row[s] + out.tokens;
    }
    return FL_OK;
}

static fl_status copy_of(const float *v, int64_t n, float **out)
{
    void *memory = NULL;
    FL_TRY(fl_alloc_array((size_t)n, sizeof(float), &memory));
    *out = memory;
    if (v != NULL) {
        memcpy(*out, v, (size_t)n * sizeof(float));
    }
    return FL_OK;
}

static fl_status init_values(fl__harness *h, const void *input)
{
    FL_TRY(copy_of(input, fl__in_elements(h), &h->in));
    FL_TRY(copy_of(NULL, fl__out_elements(h), &h->weight_of_out));
    if (input == NULL) {
        fl__harness_noise(h->seed, STREAM_IN, 1.0f, h->in, fl__in_elements(h));
    }
    fl__harness_noise(h->seed, STREAM_OUT, 1.0f, h->weight_of_out, fl__out_elements(h));
    return FL_OK;
}

/* As a model starts, and then a little away from it: zeros hide wrong gradients. */
static fl_status init_param(fl__harness *h, const fl_param_spec *spec, int i)
{
    int64_t n = spec->rows * spec->cols;
    float scale = spec->cols == 1 ? PARAM_NOISE : PARAM_NOISE / sqrtf((float)spec->cols);
    FL_TRY(guarded_init(&h->value[i], n));
    FL_TRY(guarded_init(&h->grad[i], n));
    FL_TRY(copy_of(NULL, n, &h->value_copy[i]));
    FL_TRY(copy_of(NULL, n, &h->grad_copy[i]));
    h->weight[i] =
        (fl_weight){.data = h->value[i].data, .rows = spec->rows, .cols = spec->cols, .version = 1};
    fl_model_draw_param(h->model, h->layer, i, h->seed, h->value_copy[i]);
    fl__harness_noise(h->seed, STREAM_PARAMS + i, scale, h->value[i].data, n);
    for (int64_t k = 0; k < n; k++) {
        h->value[i].data[k] += h->value_copy[i][k];
    }
    fl__harness_moved(h, i);
    return FL_OK;
}

static fl_status init_params(fl__harness *h)
{
    const fl_param_list *list = fl_model_params(h->model, h->layer);
    if (list->n > FL__CHECK_PARAMS_MAX) {
        return fl_fail(FL_EINVAL, "%d parameters, at most %d can be checked", list->n,
                       FL__CHECK_PARAMS_MAX);
    }
    for (int i = 0; i < list->n; i++) {
        h->params.n = i + 1;
        FL_TRY(init_param(h, &list->spec[i], i));
    }
    h->params.weight = h->weight;
    h->params.grad = h->want;
    return FL_OK;
}

static fl_status init_arena(fl_arena *arena, fl_arena_guard *guard, void **memory, const char *what)
{
    FL_TRY(fl_alloc_untouched(FL__CHECK_ARENA_BYTES, memory));
    fl_arena_init(arena, *memory, FL__CHECK_ARENA_BYTES, what);
    arena->guard = guard;
    return FL_OK;
}

static fl_status init_slot(fl__harness *h, fl__slot *s)
{
    int64_t n_in = fl__in_elements(h), n_out = fl__out_elements(h);
    FL_TRY(guarded_init(&s->in_memory, n_in));
    FL_TRY(guarded_init(&s->grad_in_memory, n_in));
    FL_TRY(guarded_init(&s->out_memory, n_out));
    FL_TRY(guarded_init(&s->grad_out_memory, n_out));
    FL_TRY(copy_of(NULL, n_out, &s->out_copy));
    return init_arena(&s->keep, &s->keep_guard, &s->keep_memory, "kept memory");
}

fl_status fl__harness_init(fl__harness *h, const fl_model *model, int layer, const fl_shape *shape,
                           int n_samples, const void *input, uint64_t seed)
{
    *h = (fl__harness){
        .model = model, .layer = layer, .seed = seed, .epoch = 3, .n_samples = n_samples};
    FL_TRY(fl_device_cpu_create(1, NULL, DEVICE_BYTES, &h->device));
    FL_TRY(init_rows(h, shape));
    FL_TRY(init_values(h, input));
    FL_TRY(init_params(h));
    FL_TRY(init_arena(&h->scratch, &h->scratch_guard, &h->scratch_memory, "scratch memory"));
    for (int i = 0; i < FL__SLOTS; i++) {
        FL_TRY(init_slot(h, &h->slot[i]));
    }
    fl__harness_fill_grads(h, 0.0f);
    return FL_OK;
}

static void fini_slot(fl__slot *s)
{
    fl_free(s->in_memory.whole);
    fl_free(s->grad_in_memory.whole);
    fl_free(s->out_memory.whole);
    fl_free(s->grad_out_memory.whole);
    fl_free(s->out_copy);
    fl_free(s->keep_memory);
}

void fl__harness_fini(fl__harness *h)
{
    for (int i = 0; i < h->params.n; i++) {
        h->device->ops->weight_release(h->device, &h->weight[i]);
        fl_free(h->value[i].whole);
        fl_free(h->grad[i].whole);
        fl_free(h->value_copy[i]);
        fl_free(h->grad_copy[i]);
    }
    for (int i = 0; i < FL__SLOTS; i++) {
        fini_slot(&h->slot[i]);
    }
    fl_free(h->scratch_memory);
    fl_free(h->in);
    fl_free(h->weight_of_out);
    fl_device_destroy(&h->device);
}

/* ---- using it ---- */

void fl__harness_moved(fl__harness *h, int i)
{
    h->weight[i].version++;
    memcpy(h->value_copy[i], h->value[i].data, (size_t)h->value[i].n * sizeof(float));
}

void fl__harness_fill_grads(fl__harness *h, float value)
{
    for (int i = 0; i < h->params.n; i++) {
        for (int64_t k = 0; k < h->grad[i].n; k++) {
            h->grad[i].data[k] = value;
        }
        h->want[i] = h->grad[i].data;
    }
}

/* Rows first[order[i]] .. of every sample, one after another, into `to`; returns where they end. */
static void gather(const int *order, int n, const int64_t *first, int64_t width, const float *from,
                   float *to, int32_t *offsets)
{
    int64_t row = 0;
    offsets[0] = 0;
    for (int i = 0; i < n; i++) {
        int64_t rows = first[order[i] + 1] - first[order[i]];
        memcpy(to + row * width, from + first[order[i]] * width,
               (size_t)(rows * width) * sizeof(float));
        row += rows;
        offsets[i + 1] = (int32_t)row;
    }
}

static void scatter(const int *order, int n, const int64_t *first, int64_t width, const float *from,
                    float *to)
{
    for (int i = 0; i < n; i++) {
        int64_t values = (first[order[i] + 1] - first[order[i]]) * width;
        memcpy(to + first[order[i]] * width, from, (size_t)values * sizeof(float));
        from += values;
    }
}

static fl_tensor tensor_of(const fl__guarded *m, const int32_t *offsets, int n,
                           const fl_shape *shape)
{
    return (fl_tensor){.data = m->data,
                       .offsets = offsets,
                       .offsets_device = offsets,
                       .n_samples = n,
                       .n_tokens = offsets[n],
                       .width = shape->width,
                       .dtype = shape->dtype};
}

void fl__harness_load(fl__harness *h, int slot, const int *order, int n)
{
    fl__slot *s = &h->slot[slot];
    fl__guarded *all[] = {&s->in_memory, &s->out_memory, &s->grad_in_memory, &s->grad_out_memory};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        poison(all[i]->data, all[i]->n);
    }
    for (int i = 0; i < n; i++) {
        s->order[i] = order[i];
        s->ids[i] = FIRST_ID + h->id_shift + ID_STEP * order[i];
    }
    gather(order, n, h->in_row, h->in_shape.width, h->in, s->in_memory.data, s->in_offsets);
    gather(order, n, h->out_row, h->out_shape.width, h->weight_of_out, s->grad_out_memory.data,
           s->out_offsets);
    s->batch = (fl_batch){.n_samples = n,
                          .sample_ids = s->ids,
                          .sample_ids_device = s->ids,
                          .seed = h->seed,
                          .epoch = h->epoch,
                          .n_global = h->n_samples};
    s->in = tensor_of(&s->in_memory, s->in_offsets, n, &h->in_shape);
    s->out = tensor_of(&s->out_memory, s->out_offsets, n, &h->out_shape);
    s->grad_in = tensor_of(&s->grad_in_memory, s->in_offsets, n, &h->in_shape);
    s->grad_out = tensor_of(&s->grad_out_memory, s->out_offsets, n, &h->out_shape);
    s->keep.used_bytes = 0;
    s->keep_guard.n = 0;
}

static void enter(fl__harness *h, fl__slot *s, bool training)
{
    h->scratch_guard.n = 0;
    h->x = (fl_exec){.device = h->device,
                     .batch = &s->batch,
                     .training = training,
                     .keep = &s->keep,
                     .scratch = &h->scratch};
    for (int i = 0; i < h->params.n; i++) {
        memcpy(h->grad_copy[i], h->grad[i].data, (size_t)h->grad[i].n * sizeof(float));
    }
}

static int64_t elements(const fl_tensor *t)
{
    return t->n_tokens * t->width;
}

/* What no call may change: parameters, and gradients that are not asked for. */
static fl_status check_params(const fl__harness *h, const char *call, bool backward)
{
    char what[FL_CHECK_NAME_MAX];
    const fl_param_list *list = fl_model_params(h->model, h->layer);
    for (int i = 0; i < h->params.n; i++) {
        const char *name = list->spec[i].name;
        int64_t n = h->value[i].n, cols = list->spec[i].cols;
        snprintf(what, sizeof what, "parameter %s", name);
        FL_TRY(check_guards(call, what, &h->value[i], n));
        FL_TRY(check_same(call, what, h->value[i].data, h->value_copy[i], n, cols));
        bool wanted = backward && h->want[i] != NULL;
        snprintf(what, sizeof what, "the gradient of %s%s", name,
                 wanted || !backward ? "" : ", which is not wanted");
        FL_TRY(check_guards(call, what, &h->grad[i], n));
        FL_TRY(wanted ? check_written(call, what, h->grad[i].data, n, cols)
                      : check_same(call, what, h->grad[i].data, h->grad_copy[i], n, cols));
    }
    return FL_OK;
}

/* What the slot holds in `memory` is what the samples have in `from`. */
static fl_status check_rows(const fl__slot *s, const char *call, const char *what,
                            const fl__guarded *memory, const float *from, const int64_t *row,
                            int64_t width)
{
    const float *now = memory->data;
    for (int i = 0; i < s->batch.n_samples; i++) {
        int64_t first = row[s->order[i]], n = (row[s->order[i] + 1] - first) * width;
        FL_TRY(check_same(call, what, now, from + first * width, n, width));
        now += n;
    }
    return check_guards(call, what, memory, now - memory->data);
}

static fl_status check_input(const fl__harness *h, const fl__slot *s, const char *call)
{
    return check_rows(s, call, "the input", &s->in_memory, h->in, h->in_row, h->in_shape.width);
}

static fl_status check_grad_out(const fl__harness *h, const fl__slot *s, const char *call)
{
    return check_rows(s, call, "the gradient of the output", &s->grad_out_memory, h->weight_of_out,
                      h->out_row, h->out_shape.width);
}

static fl_status run_forward(fl__harness *h, fl__slot *s, bool training)
{
    enter(h, s, training);
    return fl_exec_forward(&h->x, h->model, h->layer, &h->params, &s->frame, &s->in, &s->out);
}

fl_status fl__harness_forward(fl__harness *h, int slot, bool training)
{
    fl__slot *s = &h->slot[slot];
    const char *call = training ? "forward" : "forward in evaluation";
    if (run_forward(h, s, training) != FL_OK) {
        return fl_within(FL_EINVAL, "%s fails", call);
    }
    FL_TRY(check_guards(call, "the output", &s->out_memory, elements(&s->out)));
    FL_TRY(check_input(h, s, call));
    FL_TRY(check_arenas(h, s, call));
    FL_TRY(check_params(h, call, false));
    memcpy(s->out_copy, s->out_memory.data, (size_t)s->out_memory.n * sizeof(float));
    return check_written(call, "the output", s->out_memory.data, elements(&s->out), s->out.width);
}

fl_status fl__harness_backward(fl__harness *h, int slot, bool want_input)
{
    fl__slot *s = &h->slot[slot];
    const char *call = "backward", *what = "the gradient of the input";
    enter(h, s, true);
    if (fl_exec_backward(&h->x, h->model, h->layer, &h->params, &s->frame, &s->grad_out,
                         want_input ? &s->grad_in : NULL) != FL_OK) {
        return fl_within(FL_EINVAL, "%s fails", call);
    }
    FL_TRY(check_guards(call, what, &s->grad_in_memory, want_input ? elements(&s->grad_in) : 0));
    FL_TRY(check_grad_out(h, s, call));
    FL_TRY(check_guards(call, "the output", &s->out_memory, elements(&s->out)));
    FL_TRY(check_same(call, "the output", s->out_memory.data, s->out_copy, elements(&s->out),
                      s->out.width));
    FL_TRY(check_input(h, s, call));
    FL_TRY(check_arenas(h, s, call));
    FL_TRY(check_params(h, call, true));
    return want_input ? check_written(call, what, s->grad_in_memory.data, elements(&s->grad_in),
                                      s->in.width)
                      : FL_OK;
}

void fl__harness_take_out(const fl__harness *h, int slot, float *to)
{
    const fl__slot *s = &h->slot[slot];
    scatter(s->order, (int)s->batch.n_samples, h->out_row, h->out_shape.width, s->out_memory.data,
            to);
}

void fl__harness_take_grad_in(const fl__harness *h, int slot, float *to)
{
    const fl__slot *s = &h->slot[slot];
    scatter(s->order, (int)s->batch.n_samples, h->in_row, h->in_shape.width, s->grad_in_memory.data,
            to);
}

fl_status fl__harness_value(fl__harness *h, double *f)
{
    fl__slot *s = &h->slot[0];
    int order[FL_CHECK_SAMPLES_MAX];
    for (int i = 0; i < h->n_samples; i++) {
        order[i] = i;
    }
    fl__harness_load(h, 0, order, h->n_samples);
    FL_TRY(run_forward(h, s, true));
    *f = 0;
    for (int64_t i = 0; i < elements(&s->out); i++) {
        *f += (double)s->out_memory.data[i] * (double)h->weight_of_out[i];
    }
    return FL_OK;
}
