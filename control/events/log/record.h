/* Checks whether the record of a run, its files in the run directory, is complete. The controller
 * reports a gap at once, and the run ends with an exit code of its own for it. */
#ifndef FL_CONTROL_EVENTS_LOG_RECORD_H
#define FL_CONTROL_EVENTS_LOG_RECORD_H

#include "autodp/ledger.h"
#include "control/events/log/event_log.h"

#include <frostline/model.h>

typedef struct fl_record {
    fl_event_log *log;       /* borrowed; with the files of the run */
    const fl_ledger *ledger; /* borrowed */
    int dir_fd;
    bool reported[FL_RUNFILES + 2]; /* by file; then the ledger and the hashes of weights */
    bool ledger_removed;
    bool hashes_failed;             /* weights.jsonl lacks hashes: */
    fl_hashes_failed_report hashes; /* the first such report */
    int64_t looked_us;
} fl_record;

/* Look for gaps and report each file once: a warning, and a record.incomplete event. Called in
 * every turn of the loop, and once when the run is over: at_once. */
void fl_record_watch(fl_record *record, bool at_once, int64_t now_us);

/* What a worker that does not share the run directory has reported: append hashes of weights of the
 * model's layers to weights.jsonl, a line each. After the first
 * failure to write, none is written any more. FL_EFORMAT if the model has no such layers. */
fl_status fl_record_hashes(fl_record *record, const fl_model *model,
                           const fl_hashes_report *report) FL_MUST_CHECK;

/* A worker could not compute or append its hashes of weights. */
void fl_record_hashes_failed(fl_record *record, const fl_hashes_failed_report *report);

/* What is missing, for people; "" while the record is complete. Returns text. */
const char *fl_record_missing(const fl_record *record, char *text, size_t size_bytes);

#endif
