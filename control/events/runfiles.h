/* The lines the controller writes into the run directory: steps.jsonl and events.jsonl.
 * Files that cannot be written (a full disk) are warned of once and do not end the run. */
#ifndef FL_CONTROL_EVENTS_RUNFILES_H
#define FL_CONTROL_EVENTS_RUNFILES_H

#include "control/events/json.h"
#include "control/link/link.h"

typedef struct fl_runfiles {
    int steps_fd, events_fd;
    int64_t start_us;
    fl_json steps; /* complete lines not yet written */
    fl_json event; /* the one being built */
    bool warned;
} fl_runfiles;

/* Create both files anew in the directory. The run's clock begins now. */
fl_status fl_runfiles_open(fl_runfiles *files, int dir_fd) FL_MUST_CHECK;
void fl_runfiles_close(fl_runfiles *files);

/* Add a line; fl_runfiles_flush writes it. */
void fl_runfiles_step(fl_runfiles *files, const fl_step_report *step);
void fl_runfiles_flush(fl_runfiles *files);

/* Begin an event's line: time (seconds since the start), wall (UTC), event, generation. The caller
 * adds fields and ends it; the line is then written at once, by one write. */
fl_json *fl_runfiles_event(fl_runfiles *files, const char *event, uint32_t generation);
void fl_runfiles_event_end(fl_runfiles *files);

#endif
