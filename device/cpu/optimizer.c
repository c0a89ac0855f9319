/* The end of a step: the norm of the gradient and the optimizers, over lists of tensors. All
 * threads share the elements of a list evenly, so that small tensors cost no more than their
 * elements. */
#include "device/cpu/cpu.h"

enum { LINE = 16, CHUNK = 1 << 15 };

static int64_t parts_of(int64_t n, int64_t part)
{
    return (n + part - 1) / part;
}

/* ---- optimizers ---- */

/* The elements of one tensor that a thread takes. */
typedef struct piece {
    const fl_update *u;
    int64_t begin, end;
} piece;

typedef void update_fn(const fl__cpu *cpu, const piece *p, const void *step);

static void update_adamw(const fl__cpu *cpu, const piece *p, const void *step)
{
    const fl_update *u = p->u;
    fl_adamw_step own = *(const fl_adamw_step *)step;
    own.lr *= u->rate;
    cpu->isa->adamw(u->w + p->begin, u->g + p->begin, u->moment[0] + p->begin,
                    u->moment[1] + p->begin, p->end - p->begin, u->weight_decay, &own);
}

static void update_sgd(const fl__cpu *cpu, const piece *p, const void *step)
{
    const fl_update *u = p->u;
    fl_sgd_step own = *(const fl_sgd_step *)step;
    own.lr *= u->rate;
    cpu->isa->sgd(u->w + p->begin, u->g + p->begin, u->moment[0] + p->begin, p->end - p->begin,
                  u->weight_decay, &own);
}

/* Lines lines.begin .. lines.end - 1 of the list's, counted through all its tensors. */
static void update_lines(const fl__cpu *cpu, const fl_update *list, int n, fl__range lines,
                         update_fn *update, const void *step)
{
    int64_t first = 0;
    for (int i = 0; i < n && first < lines.end; i++) {
        int64_t count = parts_of(list[i].n, LINE), end = first + count;
        int64_t from = lines.begin > first ? lines.begin - first : 0;
        int64_t to = lines.end < end ? lines.end - first : count;
        if (from < to) {
            const piece p = {.u = &list[i],
                             .begin = from * LINE,
                             .end = to * LINE < list[i].n ? to * LINE : list[i].n};
            update(cpu, &p, step);
        }
        first = end;
    }
}

static void update_all(fl_device *d, const fl_update *list, int n, update_fn *update,
                       const void *step)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    int64_t lines = 0;
    for (int i = 0; i < n; i++) {
        lines += parts_of(list[i].n, LINE);
    }
    FL__EACH_THREAD(cpu, t)
    {
        update_lines(cpu, list, n, fl__range_of(lines, 1, d->n_threads, t), update, step);
    }
}

fl_status fl__cpu_adamw_many(fl_device *d, FL__UNUSED fl_stream *s, const fl_update *list, int n,
                             const fl_adamw_step *step)
{
    update_all(d, list, n, update_adamw, step);
    return FL_OK;
}

fl_status fl__cpu_sgd_many(fl_device *d, FL__UNUSED fl_stream *s, const fl_update *list, int n,
                           const fl_sgd_step *step)
{
    update_all(d, list, n, update_sgd, step);
    return FL_OK;
}

/* ---- sums of squares ---- */

/* Chunks chunks.begin .. chunks.end - 1, counted through the whole list, to sums[]. */
static void sum_chunks(const fl__cpu *cpu, const fl_square_sum *list, int n, fl__range chunks,
                       double *sums)
{
    int64_t first = 0;
    for (int i = 0; i < n && first < chunks.end; i++) {
        int64_t count = parts_of(list[i].n, CHUNK);
        int64_t from = chunks.begin > first ? chunks.begin - first : 0;
        for (int64_t c = from; c < count && first + c < chunks.end; c++) {
            int64_t left = list[i].n - c * CHUNK;
            sums[first + c] =
                cpu->isa->sum_squares(list[i].x + c * CHUNK, left < CHUNK ? left : CHUNK);
        }
        first += count;
    }
}

/* A tensor's chunks are its own and are added in their order: the rest of the list and the number
 * of threads change no bit. */
fl_status fl__cpu_sum_squares_many(fl_device *d, FL__UNUSED fl_stream *s, const fl_square_sum *list,
                                   int n)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n_chunks = 0, at = 0;
    for (int i = 0; i < n; i++) {
        n_chunks += parts_of(list[i].n, CHUNK);
    }
    FL_TRY(fl__cpu_reserve(cpu, (size_t)n_chunks * sizeof(double)));
    double *sums = fl__cpu_scratch(cpu, 0);
    FL__EACH_THREAD(cpu, t)
    {
        sum_chunks(cpu, list, n, fl__range_of(n_chunks, 1, d->n_threads, t), sums);
    }
    for (int i = 0; i < n; i++) {
        double total = 0.0;
        for (int64_t c = 0; c < parts_of(list[i].n, CHUNK); c++) {
            total += sums[at++];
        }
        *list[i].out = total;
    }
    return FL_OK;
}
