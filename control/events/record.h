/* Whether the record of a run, its files in the run directory, is complete. The controller says at
 * once what is missing, and the run ends with an exit code of its own for it. */
#ifndef FL_CONTROL_EVENTS_RECORD_H
#define FL_CONTROL_EVENTS_RECORD_H

#include "control/events/runfiles.h"

typedef struct fl_controller fl_controller;

typedef struct fl_record {
    bool told[FL_RUNFILES + 1]; /* by file, the ledger behind the others */
    bool ledger_removed;
    int64_t looked_us;
} fl_record;

/* Look for what is missing and report each file once: a warning, and a record.incomplete event.
 * Called every turn of the loop, and once when it is over. */
void fl_record_watch(fl_controller *controller, int64_t now_us);

/* What is missing, for people: "" when the record is complete so far. Returns text. */
const char *fl_record_missing(const fl_controller *controller, char *text, size_t size_bytes);

#endif
