#include "pipe/cost/memory/memory_model.h"

#include "device/system/alloc.h"

#include <math.h>
#include <string.h>

enum { UNIT = 64, PIECE_BYTES = 64 };

/* The fields that are measured; in_bytes and out_bytes follow from rows. */
static const size_t fields[] = {
    offsetof(fl_layer_memory, kept_bytes), offsetof(fl_layer_memory, scratch_bytes),
    offsetof(fl_layer_memory, frozen_kept_bytes), offsetof(fl_layer_memory, frozen_scratch_bytes)};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static int64_t *field_of(fl_layer_memory *memory, int field)
{
    return (int64_t *)(void *)((char *)memory + fields[field]);
}

static int64_t value_of(const fl_layer_memory *memory, int field)
{
    return *(const int64_t *)(const void *)((const char *)memory + fields[field]);
}

/* ---- measuring ---- */

enum { SHORTEST, TWICE_SHORTEST, BETWEEN, LONGEST, N_RUNS };

/* One that occurs: layers need not take others. */
static int64_t middle_length(const fl_sample_sizes *s)
{
    return s->lengths[s->n_lengths / 2];
}

static fl_status measure_runs(const fl_model *model, const fl_sample_sizes *s,
                              fl_layer_memory *run[N_RUNS])
{
    int64_t tokens[N_RUNS] = {s->shortest, s->shortest, middle_length(s), s->longest.tokens};
    int64_t samples[N_RUNS] = {UNIT, 2 * UNIT, UNIT, UNIT};
    for (int i = 0; i < N_RUNS; i++) {
        fl_sample_shape sample;
        FL_TRY(fl_sample_of_length(model, s, tokens[i], &sample));
        FL_TRY(fl_memory_measure(model, &sample, samples[i], run[i]));
    }
    return FL_OK;
}

/* One field of one layer. */
static void conclude(const fl_sample_sizes *s, const int64_t run[N_RUNS], int64_t *base,
                     int64_t *shortest, int64_t *longest)
{
    int64_t alone = 2 * run[SHORTEST] - run[TWICE_SHORTEST];
    int64_t spread = s->longest.tokens - s->shortest;
    int64_t between = middle_length(s) - s->shortest;
    double line = spread == 0 ? (double)run[SHORTEST]
                              : (double)run[SHORTEST] + (double)(run[LONGEST] - run[SHORTEST]) *
                                                            (double)between / (double)spread;
    *base = alone > 0 ? alone : 0;
    *longest = run[LONGEST] - *base;
    *shortest = (double)run[BETWEEN] > line + PIECE_BYTES * FL_MEMORY_PIECES
                    ? *longest
                    : run[SHORTEST] - *base;
}

static void conclude_all(fl_memory_model *m, fl_layer_memory *const run[N_RUNS])
{
    for (int layer = 0; layer < m->sizes->n_layers; layer++) {
        for (int f = 0; f < N_FIELDS; f++) {
            int64_t values[N_RUNS];
            for (int i = 0; i < N_RUNS; i++) {
                values[i] = value_of(&run[i][layer], f);
            }
            conclude(m->sizes, values, field_of(&m->base[layer], f),
                     field_of(&m->shortest[layer], f), field_of(&m->longest[layer], f));
        }
    }
}

static fl_status fill(fl_memory_model *m, const fl_model *model)
{
    size_t n = (size_t)m->sizes->n_layers;
    void *memory = NULL;
    fl_layer_memory *run[N_RUNS];
    FL_TRY(fl_alloc_array(n, sizeof *m->base, (void **)&m->base));
    FL_TRY(fl_alloc_array(n, sizeof *m->shortest, (void **)&m->shortest));
    FL_TRY(fl_alloc_array(n, sizeof *m->longest, (void **)&m->longest));
    FL_TRY(fl_alloc_array(n * N_RUNS, sizeof(fl_layer_memory), &memory));
    for (size_t i = 0; i < N_RUNS; i++) {
        run[i] = (fl_layer_memory *)memory + i * n;
    }
    fl_status status = measure_runs(model, m->sizes, run);
    if (status == FL_OK) {
        conclude_all(m, run);
    }
    fl_free(memory);
    return status;
}

fl_status fl_memory_model_create(const fl_model *model, const fl_sample_sizes *sizes,
                                 fl_memory_model **out)
{
    fl_memory_model *m = NULL;
    *out = NULL;
    FL_TRY(fl_alloc(sizeof *m, (void **)&m));
    m->sizes = sizes;
    fl_status status = fill(m, model);
    if (status != FL_OK) {
        fl_memory_model_destroy(&m);
    }
    *out = m;
    return status;
}

void fl_memory_model_destroy(fl_memory_model **model)
{
    fl_memory_model *m = *model;
    if (m != NULL) {
        fl_free(m->base);
        fl_free(m->shortest);
        fl_free(m->longest);
    }
    fl_free(m);
    *model = NULL;
}

/* ---- asking ---- */

static int64_t at_extent(const fl_sample_sizes *s, fl_extent e, int64_t base, int64_t shortest,
                         int64_t longest)
{
    double each = (double)shortest / UNIT, spread = (double)(s->longest.tokens - s->shortest);
    double more = spread > 0.0 ? (double)(longest - shortest) / UNIT / spread : 0.0;
    double above = (double)(e.tokens - e.samples * s->shortest);
    int64_t rounding = base + longest > 0 ? PIECE_BYTES * FL_MEMORY_PIECES : 0;
    return base + rounding + (int64_t)ceil((double)e.samples * each + above * more);
}

static void take_larger(int64_t *a, int64_t b)
{
    *a = b > *a ? b : *a;
}

static void add_extent(const fl_memory_model *m, int layer, fl_extent e, fl_layer_memory *out)
{
    const fl_sample_sizes *s = m->sizes;
    for (int f = 0; f < N_FIELDS; f++) {
        take_larger(field_of(out, f),
                    at_extent(s, e, value_of(&m->base[layer], f), value_of(&m->shortest[layer], f),
                              value_of(&m->longest[layer], f)));
    }
    take_larger(&out->in_bytes, fl_growth_at(&s->rows[layer], e) * (int64_t)s->row_bytes[layer]);
    take_larger(&out->out_bytes,
                fl_growth_at(&s->rows[layer + 1], e) * (int64_t)s->row_bytes[layer + 1]);
}

void fl_memory_model_at(const fl_memory_model *m, const fl_capacity *capacity,
                        fl_layer_memory *memory)
{
    memset(memory, 0, (size_t)m->sizes->n_layers * sizeof *memory);
    for (int layer = 0; layer < m->sizes->n_layers; layer++) {
        for (int i = 0; i < capacity->n; i++) {
            add_extent(m, layer, capacity->at[i], &memory[layer]);
        }
    }
    fl_memory_set_counts(capacity, m->sizes->n_layers, memory);
    fl_memory_set_ahead(m->sizes, capacity->ahead, memory);
}

/* ---- operations ---- */

/* The mean of the parabola through three lengths, or of the line through two. */
static int64_t mean_of(const fl_sample_sizes *s, const double x[3], int64_t a, int64_t b, int64_t c)
{
    double first = x[1] > x[0] ? (double)(b - a) / (x[1] - x[0]) : 0.0;
    double second = x[2] > x[1] ? ((double)(c - b) / (x[2] - x[1]) - first) / (x[2] - x[0]) : 0.0;
    double mean = (double)a + first * (s->mean_tokens - x[0]) +
                  second * (s->mean_square - s->mean_tokens * (x[0] + x[1]) + x[0] * x[1]);
    return llround(mean);
}

fl_status fl_memory_mean_flops(const fl_model *model, const fl_sample_sizes *s,
                               fl_layer_memory *memory_one)
{
    int64_t tokens[3] = {s->shortest, middle_length(s), s->longest.tokens};
    double x[3] = {(double)tokens[0], (double)tokens[1], (double)tokens[2]};
    size_t n = (size_t)s->n_layers;
    void *memory = NULL;
    fl_status status = FL_OK;
    FL_TRY(fl_alloc_array(3 * n, sizeof(fl_layer_memory), &memory));
    fl_layer_memory *run = memory;
    for (size_t i = 0; i < 3 && status == FL_OK; i++) {
        fl_sample_shape sample;
        status = fl_sample_of_length(model, s, tokens[i], &sample);
        if (status == FL_OK) {
            status = fl_memory_measure(model, &sample, 1, run + i * n);
        }
    }
    for (size_t i = 0; i < n && status == FL_OK; i++) {
        const fl_layer_memory *a = &run[i], *b = &run[n + i], *c = &run[2 * n + i];
        fl_layer_memory *to = &memory_one[i];
        to->forward_flops = mean_of(s, x, a->forward_flops, b->forward_flops, c->forward_flops);
        to->backward_flops = mean_of(s, x, a->backward_flops, b->backward_flops, c->backward_flops);
        to->lowest_backward_flops = mean_of(s, x, a->lowest_backward_flops,
                                            b->lowest_backward_flops, c->lowest_backward_flops);
    }
    fl_free(memory);
    return status;
}
