/* Metrics of which everything is known, and every number differs. */
#ifndef FL_TESTS_SUPPORT_CONTROL_SOME_METRICS_H
#define FL_TESTS_SUPPORT_CONTROL_SOME_METRICS_H

#include "control/observe/metrics/metrics.h"

enum { SOME_METRICS_WORKERS = 3 };

/* They refer to `workers`, which it fills in. */
fl_metrics some_metrics(fl_metrics_worker workers[SOME_METRICS_WORKERS]);

#endif
