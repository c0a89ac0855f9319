/* The view of the run that reports are made from. */
#ifndef FL_CONTROL_CONTROLLER_VIEW_H
#define FL_CONTROL_CONTROLLER_VIEW_H

#include "control/state/run_view.h"

typedef struct fl_controller fl_controller;

/* Look at every part and fill the view; returns it. */
const fl_run_view *fl_view_look(fl_controller *controller);

/* Where the metrics are; NULL: nowhere. */
const char *fl_view_metrics_url(const fl_controller *controller);

#endif
