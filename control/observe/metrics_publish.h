/* What the controller knows, as metrics. */
#ifndef FL_CONTROL_OBSERVE_METRICS_PUBLISH_H
#define FL_CONTROL_OBSERVE_METRICS_PUBLISH_H

#include <frostline/status.h>

typedef struct fl_controller fl_controller;

typedef struct fl_metrics_desk fl_metrics_desk;

/* Answer on the listener of the options, if there is one. */
fl_status fl_metrics_open(fl_controller *controller) FL_MUST_CHECK;
void fl_metrics_close(fl_controller *controller);

/* Tell how things stand, now and then; called every turn of the loop. */
void fl_metrics_watch(fl_controller *controller);

/* Where they are; NULL: nowhere. */
const char *fl_metrics_url(const fl_controller *controller);

#endif
