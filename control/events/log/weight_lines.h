/* The lines of weights.jsonl: hashes of a run's weights. */
#ifndef FL_CONTROL_EVENTS_LOG_WEIGHT_LINES_H
#define FL_CONTROL_EVENTS_LOG_WEIGHT_LINES_H

#include "control/link/wire/messages.h"

#include <frostline/model.h>

/* Append a line for each hash of the report to weights.jsonl in dir_fd. The file is locked
 * meanwhile, so that lines of several processes do not mix and a cut write can be taken back. All
 * layers of the report must be the model's.
 * Returns  0, or errno: ETIMEDOUT if another process keeps the lock for seconds
 * Threads  any */
int fl_weight_lines_append(int dir_fd, const fl_model *model, const fl_hashes_report *report);

#endif
