#include "launcher/top/model/top_series.h"

#include <math.h>

static void halve(fl_top_series *s)
{
    int n = 0;
    s->stride *= 2;
    for (int i = 0; i < s->n; i++) {
        int64_t index = s->point[i].index / 2;
        if (n > 0 && s->point[n - 1].index == index) {
            s->point[n - 1].sum += s->point[i].sum;
            s->point[n - 1].weight += s->point[i].weight;
        } else {
            s->point[n] = s->point[i];
            s->point[n++].index = index;
        }
    }
    s->n = n;
}

void fl_top_series_add(fl_top_series *s, int64_t step, double value)
{
    if (step < 0 || !isfinite(value) || (s->n > 0 && step <= s->newest)) {
        return;
    }
    s->stride = s->stride == 0 ? 1 : s->stride;
    /* Points far apart share no step however long their runs are, until the runs are very long. */
    while (s->n == FL_TOP_POINTS && s->point[s->n - 1].index != step / s->stride) {
        halve(s);
    }
    if (s->n == 0 || s->point[s->n - 1].index != step / s->stride) {
        s->point[s->n].index = step / s->stride;
        s->point[s->n].sum = s->point[s->n].weight = 0.0;
        s->n++;
    }
    s->point[s->n - 1].sum += value;
    s->point[s->n - 1].weight += 1.0;
    s->newest = step;
}

/* The column that a point belongs to, of n between the first and the last one's steps. */
static int column_of(const fl_top_series *s, int i, int n)
{
    int64_t first = s->point[0].index, span = s->point[s->n - 1].index - first + 1;
    int column = (int)((double)(s->point[i].index - first) / (double)span * n);
    return column < n ? column : n - 1; /* rounding */
}

int fl_top_series_columns(const fl_top_series *s, double *value, int n, double *least, double *most)
{
    int n_known = 0;
    *least = INFINITY;
    *most = -INFINITY;
    for (int column = 0, i = 0; column < n; column++) {
        double sum = 0.0, weight = 0.0;
        for (; i < s->n && column_of(s, i, n) <= column; i++) {
            sum += s->point[i].sum;
            weight += s->point[i].weight;
        }
        value[column] = weight > 0.0 ? sum / weight : NAN;
        if (weight > 0.0) {
            n_known++;
            *least = fmin(*least, value[column]);
            *most = fmax(*most, value[column]);
        }
    }
    return n_known;
}
