/* Losses. Sums over rows are added in one order, whatever the number of threads. */
#include "device/cpu/wide.h"

#include <math.h>

enum { CHUNK = 1 << 15 }; /* elements whose errors are summed together */

/* What one row of logits gives. */
typedef struct row_result {
    double loss;
    bool correct, counted;
    bool positive; /* class 1 is chosen; known only where it is asked for */
} row_result;

static void add(double *sum, double value)
{
    if (sum != NULL) {
        *sum += value;
    }
}

static void add_rows(const row_result *rows, int64_t n, double *loss, double *n_correct,
                     double *n_counted)
{
    double total = 0.0, correct = 0.0, counted = 0.0;
    for (int64_t i = 0; i < n; i++) {
        total += rows[i].loss;
        correct += rows[i].correct ? 1.0 : 0.0;
        counted += rows[i].counted ? 1.0 : 0.0;
    }
    add(loss, total);
    add(n_correct, correct);
    add(n_counted, counted);
}

static void add_positives(const row_result *rows, int64_t n, double *n_positive,
                          double *n_true_positive)
{
    double positive = 0.0, true_positive = 0.0;
    for (int64_t i = 0; i < n; i++) {
        positive += rows[i].positive ? 1.0 : 0.0;
        true_positive += rows[i].positive && rows[i].correct ? 1.0 : 0.0;
    }
    add(n_positive, positive);
    add(n_true_positive, true_positive);
}

/* Whether class 1 has the largest logit. Of equal ones the first counts, as for `correct`. */
static bool is_positive(const float *logits, int64_t n)
{
    bool largest = n > 1 && logits[1] > logits[0];
    for (int64_t i = 2; i < n && largest; i++) {
        largest = logits[i] <= logits[1];
    }
    return largest;
}

static void clear_row(float *grad, int64_t n)
{
    for (int64_t i = 0; grad != NULL && i < n; i++) {
        grad[i] = 0.0f;
    }
}

static row_result one_row(const fl__cpu *cpu, const float *logits, int32_t target, int64_t n,
                          float grad_scale, float *grad)
{
    row_result r = {.counted = target >= 0};
    if (r.counted) {
        r.loss = cpu->isa->cross_entropy(logits, target, n, grad_scale, grad, &r.correct);
    } else {
        clear_row(grad, n);
    }
    return r;
}

fl_status fl__cpu_cross_entropy(fl_device *d, FL__UNUSED fl_stream *s,
                                const fl_cross_entropy_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    const float *logits = a->logits;
    float *grad = a->grad;
    int64_t n_classes = a->n_classes > 0 ? a->n_classes : a->n;
    FL_TRY(fl__cpu_fp32_only("cross_entropy", a->dtype));
    FL_TRY(fl__cpu_reserve(cpu, (size_t)a->m * sizeof(row_result)));
    row_result *rows = fl__cpu_scratch(cpu, 0);
    bool positives = a->n_positive != NULL || a->n_true_positive != NULL;
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(a->m, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            const float *row = logits + i * a->n;
            float *grad_row = grad == NULL ? NULL : grad + i * a->n;
            bool positive = positives && is_positive(row, n_classes); /* grad may be logits */
            rows[i] = one_row(cpu, row, a->targets[i], n_classes, a->grad_scale, grad_row);
            rows[i].positive = positive && rows[i].counted;
            clear_row(grad_row == NULL ? NULL : grad_row + n_classes, a->n - n_classes);
        }
    }
    add_rows(rows, a->m, a->loss, a->n_correct, a->n_counted);
    if (positives) {
        add_positives(rows, a->m, a->n_positive, a->n_true_positive);
    }
    return FL_OK;
}

/* ---- over the tokens of a sample ---- */

/* Column `column` of sample `sample`: its logits stand in a row of their own for the kernel of
 * rows. work: two rows of the sample's tokens. */
static row_result one_column(const fl__cpu *cpu, const fl_span_cross_entropy_args *a,
                             int64_t sample, int64_t column, float *work)
{
    int64_t first = a->offsets.host[sample], n = a->offsets.host[sample + 1] - first;
    const float *logits = (const float *)a->logits + first * a->columns + column;
    float *grad = a->grad == NULL ? NULL : (float *)a->grad + first * a->columns + column;
    for (int64_t i = 0; i < n; i++) {
        work[i] = logits[i * a->columns];
    }
    int32_t target = a->targets[sample * a->columns + column];
    row_result r =
        one_row(cpu, work, n == 0 ? -1 : target, n, a->grad_scale, grad == NULL ? NULL : work + n);
    for (int64_t i = 0; i < n && grad != NULL; i++) {
        grad[i * a->columns] = work[n + i];
    }
    return r;
}

fl_status fl__cpu_span_cross_entropy(fl_device *d, FL__UNUSED fl_stream *s,
                                     const fl_span_cross_entropy_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n = a->offsets.n_samples * a->columns;
    size_t results = ((size_t)n * sizeof(row_result) + 63) / 64 * 64;
    FL_TRY(fl__cpu_fp32_only("span_cross_entropy", a->dtype));
    FL_TRY(fl__cpu_reserve(cpu, results +
                                    (size_t)(2 * fl__longest_sample(&a->offsets)) * sizeof(float)));
    row_result *rows = fl__cpu_scratch(cpu, 0);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n, 1, d->n_threads, t);
        float *work = (float *)(void *)((char *)fl__cpu_scratch(cpu, t) + results);
        for (int64_t i = r.begin; i < r.end; i++) {
            rows[i] = one_column(cpu, a, i / a->columns, i % a->columns, work);
        }
    }
    add_rows(rows, n, a->loss, a->n_correct, a->n_counted);
    return FL_OK;
}

/* ---- squared error ---- */

/* What one chunk of outputs gives. */
typedef struct error_sums {
    double square, absolute;
} error_sums;

static error_sums add_errors(const fl_squared_error_args *a, int64_t first, int64_t n)
{
    const float *out = (const float *)a->out + first, *targets = a->targets + first;
    float *grad = a->grad == NULL ? NULL : (float *)a->grad + first;
    error_sums sums = {0};
    for (int64_t i = 0; i < n; i++) {
        double error = (double)out[i] - (double)targets[i];
        sums.square += error * error;
        sums.absolute += fabs(error);
        if (grad != NULL) {
            grad[i] = 2.0f * a->grad_scale * (float)error;
        }
    }
    return sums;
}

fl_status fl__cpu_squared_error(fl_device *d, FL__UNUSED fl_stream *s,
                                const fl_squared_error_args *a)
{
    fl__cpu *cpu = fl__cpu_of(d);
    int64_t n_chunks = (a->n + CHUNK - 1) / CHUNK;
    FL_TRY(fl__cpu_fp32_only("squared_error", a->dtype));
    FL_TRY(fl__cpu_reserve(cpu, (size_t)n_chunks * sizeof(error_sums)));
    error_sums *sums = fl__cpu_scratch(cpu, 0);
    FL__EACH_THREAD(cpu, t)
    {
        fl__range r = fl__range_of(n_chunks, 1, d->n_threads, t);
        for (int64_t i = r.begin; i < r.end; i++) {
            int64_t left = a->n - i * CHUNK;
            sums[i] = add_errors(a, i * CHUNK, left < CHUNK ? left : CHUNK);
        }
    }
    error_sums total = {0};
    for (int64_t i = 0; i < n_chunks; i++) {
        total.square += sums[i].square;
        total.absolute += sums[i].absolute;
    }
    add(a->square_sum, total.square);
    add(a->absolute_sum, total.absolute);
    return FL_OK;
}

fl_status fl__cpu_add_to_sum(FL__UNUSED fl_device *d, FL__UNUSED fl_stream *s, double value,
                             double *sum)
{
    *sum += value;
    return FL_OK;
}
