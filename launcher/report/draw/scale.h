/* What a curve needs before it is drawn: round ticks, and few enough points. Pure. */
#ifndef FL_LAUNCHER_REPORT_DRAW_SCALE_H
#define FL_LAUNCHER_REPORT_DRAW_SCALE_H

#include "launcher/report/draw/html.h"

#include <stdbool.h>
#include <stdint.h>

/* From low to high, with ticks at multiples of step that lie within. */
typedef struct fl_axis {
    double low, high; /* low < high, finite */
    double step;      /* 1, 2 or 5 times a power of ten */
    int digits;       /* after the point, so that two ticks never read the same */
} fl_axis;

/* The axis that shows low .. high with at most n_ticks steps (>= 2). Whatever the numbers are, also
 * not finite, equal or in the wrong order, what comes out is an axis.
 * round  widen it to whole steps
 * whole  the values are whole numbers, so no tick stands between two */
fl_axis fl_axis_fit(double low, double high, int n_ticks, bool round, bool whole);

/* How many ticks it has, and the value of one (0 .. n - 1). */
int fl_axis_n_ticks(const fl_axis *axis);
double fl_axis_tick(const fl_axis *axis, int i);

/* Where on from .. to the value lies; at an end if beyond it, or if it is no number. */
double fl_axis_at(const fl_axis *axis, double value, double from, double to);

/* A tick as text: "12,000", "0.25", "1.5e-07". Returns text. */
const char *fl_axis_text(const fl_axis *axis, double value, char text[FL_NUMBER_BYTES]);

/* Neighbouring points taken together. */
typedef struct fl_bin {
    double x;               /* the mean of theirs */
    double low, mean, high; /* of the values in it */
} fl_bin;

/* The i-th point of a curve. What is not finite, or has a negative weight, counts for nothing. */
typedef struct fl_point {
    double x, y;
    double weight; /* of y in the mean */
} fl_point;
typedef fl_point fl_point_at(const void *context, int64_t i);

/* The n points of `at` from `first` to `last` on x into at most n_bins bins of equal width; those
 * that hold none are left out. Where all weights of a bin are 0, all weigh the same.
 * bins  [n_bins] out. Returns how many there are. */
int fl_bins_make(fl_point_at *at, const void *context, int64_t n, double first, double last,
                 int n_bins, fl_bin *bins);

/* The range of y that shows all means, and the extremes as far as they do not squeeze the means
 * into a corner. False if there is nothing to show. */
bool fl_bins_range(const fl_bin *bins, int n, double *low, double *high);

#endif
