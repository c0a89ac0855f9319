/* A run's curves for other programs: TensorBoard's event file, and tables. */
#ifndef FL_LAUNCHER_REPORT_EXPORT_EXPORT_H
#define FL_LAUNCHER_REPORT_EXPORT_EXPORT_H

#include "launcher/report/read/read.h"

#include <stdio.h>

/* Every step (loss, gradient norm, learning rate, time, samples a second, F, K, R, M) and every
 * evaluation. What is not known is left out. FL_EIO. */
fl_status fl_export_tensorboard(const fl_report *report, FILE *file) FL_MUST_CHECK;

/* The steps as a table with a line of names (RFC 4180); what is not known is empty. FL_EIO. */
fl_status fl_export_steps(const fl_report *report, FILE *file) FL_MUST_CHECK;

/* The same of the steps after which the run evaluated or an epoch ended: one row each. FL_EIO. */
fl_status fl_export_evaluations(const fl_report *report, FILE *file) FL_MUST_CHECK;

/* The number of steps after which the run evaluated. */
int64_t fl_export_n_evaluations(const fl_report *report);

#endif
