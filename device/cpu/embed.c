/* Embeddings: rows of tables by ids. Forward is split over the compute threads by rows, backward by
 * columns: then every element of a gradient gets its rows in one order, whatever the number of
 * threads, and no two threads write to one element. */
#include "device/cpu/wide.h"

#include <string.h>

/* Elements of one cache line, and the widest part of a row that is converted at once. */
enum { LINE = 16, PIECE = 256 };

static int64_t id_of(const fl_embed_table *t, int64_t row, int64_t place)
{
    return t->ids == NULL ? place : t->ids[row * t->stride];
}

static fl_status check_ids(const fl_embed_args *a)
{
    for (int k = 0; k < a->n_tables; k++) {
        const fl_embed_table *t = &a->table[k];
        for (int64_t s = 0; s < a->offsets.n_samples; s++) {
            int64_t first = a->offsets.host[s], end = a->offsets.host[s + 1];
            for (int64_t row = first; row < end; row++) {
                int64_t id = id_of(t, row, row - first);
                if (id < 0 || id >= t->weight->rows) {
                    return fl_fail(FL_EINVAL,
                                   "fl_embed: table %d: id %lld of row %lld in sample %lld of the "
                                   "micro-batch, allowed is 0 to %lld",
                                   k, (long long)id, (long long)(row - first), (long long)s,
                                   (long long)t->weight->rows - 1);
                }
            }
        }
    }
    return FL_OK;
}

/* Row `row`, at `place` of its sample. */
static void embed_row(const fl__cpu *cpu, const fl_embed_args *a, int64_t row, int64_t place,
                      float *y)
{
    for (int k = 0; k < a->n_tables; k++) {
        const fl_embed_table *t = &a->table[k];
        const float *from = t->weight->data + id_of(t, row, place) * a->width;
        if (k == 0) {
            memcpy(y, from, (size_t)a->width * sizeof *y);
        } else {
            cpu->isa->add(y, from, y, a->width);
        }
    }
}

/* The rows of samples begin .. end - 1; `wide`: room for one row. */
static void embed_samples(const fl__cpu *cpu, const fl_embed_args *a, fl__range samples,
                          float *wide)
{
    for (int64_t s = samples.begin; s < samples.end; s++) {
        int64_t first = a->offsets.host[s];
        for (int64_t row = first; row < a->offsets.host[s + 1]; row++) {
            if (a->dtype == FL_F32) {
                embed_row(cpu, a, row, row - first, (float *)a->y + row * a->width);
            } else {
                embed_row(cpu, a, row, row - first, wide);
                cpu->isa->narrow(wide, (uint16_t *)a->y + row * a->width, a->width);
            }
        }
    }
}

fl_status fl__cpu_embed(fl_device *d, FL__UNUSED fl_stream *s, const fl_embed_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    FL_TRY(check_ids(a));
    FL_TRY(fl__cpu_reserve(cpu, (size_t)a->width * sizeof(float)));
    FL__EACH_THREAD(cpu, t)
    {
        embed_samples(cpu, a, fl__range_of(a->offsets.n_samples, 1, d->n_threads, t),
                      fl__cpu_scratch(cpu, t));
    }
    return FL_OK;
}

/* Columns begin .. end - 1, at most PIECE, of grad_y's row `row` as fp32. */
static const float *grad_piece(const fl__cpu *cpu, const fl_embed_backward_args *b, int64_t row,
                               fl__range columns, float wide[PIECE])
{
    int64_t at = row * b->forward.width + columns.begin;
    if (b->forward.dtype == FL_F32) {
        return (const float *)b->grad_y + at;
    }
    cpu->isa->widen((const uint16_t *)b->grad_y + at, wide, columns.end - columns.begin);
    return wide;
}

static void add_columns(const fl__cpu *cpu, const fl_embed_backward_args *b, fl__range columns)
{
    const fl_embed_args *a = &b->forward;
    float wide[PIECE];
    for (int64_t s = 0; s < a->offsets.n_samples; s++) {
        int64_t first = a->offsets.host[s];
        for (int64_t row = first; row < a->offsets.host[s + 1]; row++) {
            const float *piece = grad_piece(cpu, b, row, columns, wide);
            for (int k = 0; k < a->n_tables; k++) {
                const fl_embed_table *t = &a->table[k];
                int64_t id = id_of(t, row, row - first);
                if (t->grad != NULL && !(t->skips && id == t->skipped)) {
                    float *to = t->grad + id * a->width + columns.begin;
                    cpu->isa->add(to, piece, to, columns.end - columns.begin);
                }
            }
        }
    }
}

fl_status fl__cpu_embed_backward(fl_device *d, FL__UNUSED fl_stream *s,
                                 const fl_embed_backward_args *b)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(b->forward.width, LINE, d->n_threads, t);
        for (int64_t from = r.begin; from < r.end; from += PIECE) {
            int64_t end = from + PIECE < r.end ? from + PIECE : r.end;
            add_columns(cpu, b, (fl__range){from, end});
        }
    }
    return FL_OK;
}
