/* Fills the view of the run that status and metrics report. */
#ifndef FL_CONTROL_CONTROLLER_REPORT_VIEW_H
#define FL_CONTROL_CONTROLLER_REPORT_VIEW_H

#include "control/state/run_view.h"

typedef struct fl_controller fl_controller;

/* Fill the view from every part of the controller. Returns it. */
const fl_run_view *fl_view_look(fl_controller *controller);

/* The URL of the metrics; NULL: the run has none. */
const char *fl_view_metrics_url(const fl_controller *controller);

#endif
