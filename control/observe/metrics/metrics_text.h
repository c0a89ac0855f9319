/* Samples and their families in the text format of Prometheus: see metrics.h. For the files of
 * control/observe/metrics/metrics.h alone: metrics.c has the run, metrics_hosts.c its hosts,
 * metrics_workers.c its workers. */
#ifndef FL_CONTROL_OBSERVE_METRICS_METRICS_TEXT_H
#define FL_CONTROL_OBSERVE_METRICS_METRICS_TEXT_H

#include "control/observe/metrics/metrics.h"

/* Text that may exceed its buffer. */
typedef struct fl__metrics_text {
    char *text;
    size_t size, n; /* n: length of the whole text, also of the part that did not fit */
} fl__metrics_text;

/* Name, value, ...: the labels of a sample. */
#define FL__METRICS_LABELS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A family comes before its samples. labels NULL: none. */
void fl__metrics_family(fl__metrics_text *o, const char *name, const char *type, const char *help);
void fl__metrics_real(fl__metrics_text *o, const char *name, const char *const *labels,
                      double value);
void fl__metrics_integer(fl__metrics_text *o, const char *name, const char *const *labels,
                         int64_t value);

/* ---- families of one sample ---- */

void fl__metrics_counter(fl__metrics_text *o, const char *name, const char *help, int64_t value);
void fl__metrics_gauge(fl__metrics_text *o, const char *name, const char *help, int64_t value);

/* Left out while unknown. */
void fl__metrics_level(fl__metrics_text *o, const char *name, const char *help, double value);

/* A summary without quantiles: count and sum. */
void fl__metrics_summary(fl__metrics_text *o, const char *name, const char *help, double sum,
                         int64_t count);

/* ---- parts of the text ---- */

/* Of a run on several hosts. */
void fl__metrics_put_hosts(fl__metrics_text *o, const fl_metrics *m);

void fl__metrics_put_workers(fl__metrics_text *o, const fl_metrics *m);

/* Of workers whose devices have graphs. */
void fl__metrics_put_graphs(fl__metrics_text *o, const fl_metrics *m);

#endif
