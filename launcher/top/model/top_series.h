/* A curve of constant memory for any number of values: it stores means over ranges of steps, and
 * doubles the length of the ranges whenever its memory is full. */
#ifndef FL_LAUNCHER_TOP_MODEL_TOP_SERIES_H
#define FL_LAUNCHER_TOP_MODEL_TOP_SERIES_H

#include <stdint.h>

enum { FL_TOP_POINTS = 1024 };

/* Zeroed is empty. */
typedef struct fl_top_series {
    int64_t stride; /* steps of a point; 0: no point yet */
    int64_t newest; /* step that was added last */
    int n;          /* points */
    struct {
        int64_t index; /* its steps are index * stride .. (index + 1) * stride - 1 */
        double sum, weight;
    } point[FL_TOP_POINTS];
} fl_top_series;

/* Steps come in rising order: one that does not is passed over, and so is what is not finite. */
void fl_top_series_add(fl_top_series *series, int64_t step, double value);

/* The curve in `n` columns from its first step to its newest: value [n] out, NAN where a column has
 * none. Returns how many have one; *least and *most are then those of the columns. */
int fl_top_series_columns(const fl_top_series *series, double *value, int n, double *least,
                          double *most);

#endif
