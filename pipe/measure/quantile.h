/* What measurements that were disturbed now and then amount to. */
#ifndef FL_PIPE_MEASURE_QUANTILE_H
#define FL_PIPE_MEASURE_QUANTILE_H

/* The median and the lower quartile of values [n], n >= 1. Both sort the values. */
double fl_quantile_median(double *values, int n);
double fl_quantile_lower(double *values, int n);

#endif
