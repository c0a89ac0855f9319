/* The end of a step: the loss, the norm of the gradient, the optimizers. Sums over rows and chunks
 * are added in one order, whatever the number of threads. */
#include "device/cpu/cpu.h"

enum { LINE = 16, CHUNK = 1 << 15 };

/* What one row of logits gives. */
typedef struct row_result {
    double loss;
    bool correct;
} row_result;

fl_status fl__cpu_cross_entropy(fl_device *d, FL__UNUSED fl_stream *s, const float *logits,
                                const int32_t *targets, int64_t m, int64_t n, float grad_scale,
                                float *grad, double *loss_sum, double *n_correct)
{
    fl__cpu *cpu = fl__cpu_of(d);
    FL_TRY(fl__cpu_reserve(cpu, (size_t)m * sizeof(row_result)));
    row_result *rows = fl__cpu_scratch(cpu, 0);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(m, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            rows[i].loss =
                cpu->isa->cross_entropy(logits + i * n, targets[i], n, grad_scale,
                                        grad == NULL ? NULL : grad + i * n, &rows[i].correct);
        }
    }
    double loss = 0.0, correct = 0.0;
    for (int64_t i = 0; i < m; i++) {
        loss += rows[i].loss;
        correct += rows[i].correct ? 1.0 : 0.0;
    }
    *loss_sum += loss;
    *n_correct += correct;
    return FL_OK;
}

fl_status fl__cpu_adamw(fl_device *d, FL__UNUSED fl_stream *s, float *w, const float *g, float *m,
                        float *v, int64_t n, const fl_adamw_step *step)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, LINE, d->n_threads, t);
        cpu->isa->adamw(w + r.begin, g + r.begin, m + r.begin, v + r.begin, r.end - r.begin, step);
    }
    return FL_OK;
}

fl_status fl__cpu_sgd(fl_device *d, FL__UNUSED fl_stream *s, float *w, const float *g,
                      float *momentum, int64_t n, const fl_sgd_step *step)
{
    const fl__cpu *cpu = fl__cpu_of(d);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, LINE, d->n_threads, t);
        cpu->isa->sgd(w + r.begin, g + r.begin, momentum + r.begin, r.end - r.begin, step);
    }
    return FL_OK;
}

fl_status fl__cpu_sum_squares(fl_device *d, FL__UNUSED fl_stream *s, const float *g, int64_t n,
                              double *out)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n_chunks = (n + CHUNK - 1) / CHUNK;
    FL_TRY(fl__cpu_reserve(cpu, (size_t)n_chunks * sizeof(double)));
    double *sums = fl__cpu_scratch(cpu, 0);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n_chunks, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            int64_t left = n - i * CHUNK;
            sums[i] = cpu->isa->sum_squares(g + i * CHUNK, left < CHUNK ? left : CHUNK);
        }
    }
    double total = 0.0;
    for (int64_t i = 0; i < n_chunks; i++) {
        total += sums[i];
    }
    *out = total;
    return FL_OK;
}
