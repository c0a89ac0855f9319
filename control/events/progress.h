/* What the user sees while a run goes on: at a terminal one live line and a line an epoch, in a
 * pipe plain lines only; and the summary at the end. */
#ifndef FL_CONTROL_EVENTS_PROGRESS_H
#define FL_CONTROL_EVENTS_PROGRESS_H

#include "control/state/options.h"
#include "control/state/run_stats.h"

#include <stdio.h>

typedef struct fl_progress {
    FILE *out;     /* borrowed */
    bool terminal; /* out is one that can redraw a line */
    bool drawn;    /* a live line stands there */
    bool stopping;
    int64_t drawn_us, line_us; /* when a line was last redrawn, or added */
    char plan[64];
    bool cache_told,
        cache_on; /* whether a line has told of the cache, and what the last one said */
} fl_progress;

/* out: standard output, for fl_controller_run. */
void fl_progress_init(fl_progress *progress, FILE *out, const fl_plan *plan);

/* From now on the line shows this plan. */
void fl_progress_plan(fl_progress *progress, const fl_plan *plan);

/* The run has moved, or time has gone by: redraw the live line (at most ten times a second), or add
 * a plain line (at most one in ten seconds). */
void fl_progress_update(fl_progress *progress, const fl_run_stats *stats);

/* The line of an epoch that is over: tally->past. */
void fl_progress_epoch(fl_progress *progress, const fl_run_stats *stats);

/* The line of an evaluation within an epoch. */
void fl_progress_evaluation(fl_progress *progress, const fl_eval_report *eval);

/* The line of a decision that the cache is used, or left. The same once more, by another worker or
 * under another plan, is no news. */
void fl_progress_cache(fl_progress *progress, const fl_cache_report *report);

/* A line of its own, above the live one. */
void fl_progress_note(fl_progress *progress, const char *format, ...) FL_PRINTF(2, 3);

/* From now on the line says that the run is stopping. */
void fl_progress_stopping(fl_progress *progress);

/* Remove the live line. */
void fl_progress_hide(fl_progress *progress);

/* The live line's text without its end: of its words, those for which `columns` have room, the plan
 * last; columns < 0: all. Pure. */
const char *fl_progress_text(const fl_progress *progress, const fl_run_stats *stats, int columns,
                             char *text, size_t size_bytes);

/* How a run ended, in words; each is "" if there is nothing to say. */
typedef struct fl_progress_end {
    fl_status status;
    const char *message; /* of a run that failed: why */
    const char *ledger;  /* what the ledger proves */
    const char *missing; /* what the files of the run lack */
    const char *tuning;  /* what it cost to try other M */
} fl_progress_end;

/* The block at the end of a run. */
void fl_progress_summary(FILE *out, const fl_controller_options *options,
                         const fl_run_result *result, const fl_progress_end *end);

#endif
