/* Metrics of a run that trains: passes values from the view of the run to the server a few times a
 * second. */
#ifndef FL_CONTROL_OBSERVE_METRICS_METRICS_PUBLISH_H
#define FL_CONTROL_OBSERVE_METRICS_METRICS_PUBLISH_H

#include "control/observe/metrics/metrics_http.h"
#include "control/state/run_view.h"

typedef struct fl_metrics_publisher fl_metrics_publisher;

/* Answer on the listener; *out stays NULL without one. After a failure, close *out as well. */
fl_status fl_metrics_open(fl_metrics_listener *listener, int n_workers,
                          fl_metrics_publisher **out) FL_MUST_CHECK;

/* *publisher becomes NULL; NULL is allowed. */
void fl_metrics_close(fl_metrics_publisher **publisher);

/* Whether it is time to publish new values; publisher NULL: never. */
bool fl_metrics_due(const fl_metrics_publisher *publisher, int64_t now_us);
void fl_metrics_tell(fl_metrics_publisher *publisher, const fl_run_view *view, int64_t now_us);

#endif
