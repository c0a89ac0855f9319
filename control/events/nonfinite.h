/* Describes a step that was not finite, in sentences. */
#ifndef FL_CONTROL_EVENTS_NONFINITE_H
#define FL_CONTROL_EVENTS_NONFINITE_H

#include "control/link/link.h"

#include <frostline/model.h>

/* "weights", "output", ...: how events name the place of a finding. */
const char *fl_nonfinite_where_text(fl_nonfinite_where where);

/* Describe the step, its loss or norm, the layer, the worker, the samples, and the consequence.
 * model: NULL if only the layer's number is known. Returns text. Pure. */
const char *fl_nonfinite_text(const fl_nonfinite_report *report, const fl_model *model, char *text,
                              size_t size_bytes);

#endif
