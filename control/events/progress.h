/* The output of a run: on a terminal one live line and a line for each epoch, in a pipe plain lines
 * only; and the summary at the end. */
#ifndef FL_CONTROL_EVENTS_PROGRESS_H
#define FL_CONTROL_EVENTS_PROGRESS_H

#include "control/state/options.h"
#include "control/state/sums/run_stats.h"

#include <stdio.h>

enum { FL_PROGRESS_TEXT = 512 };

typedef struct fl_progress {
    FILE *out;     /* borrowed */
    bool terminal; /* out can redraw a line */
    bool drawn;    /* a live line is on the screen */
    bool stopping;
    int64_t drawn_us, line_us; /* when a line was last redrawn, or added */
    char plan[64];
    char shown[FL_PROGRESS_TEXT]; /* the newest line of progress */
    bool cache_told, cache_on;    /* whether a line has reported the cache, and its last state */
} fl_progress;

/* out: standard output, for fl_controller_run. */
void fl_progress_init(fl_progress *progress, FILE *out, const fl_plan *plan);

/* Show this plan in the line from now on. */
void fl_progress_plan(fl_progress *progress, const fl_plan *plan);

/* The run has advanced, or time has passed: redraw the live line (at most ten times a second), or
 * add a plain line (at most one in ten seconds). */
void fl_progress_update(fl_progress *progress, const fl_run_stats *stats);

/* The same for a pass over samples (control/state/pass.h): its verb, as in "evaluating", how many
 * samples are done, and in how many seconds. */
void fl_progress_pass(fl_progress *progress, const char *verb, int64_t done, int64_t all,
                      double seconds);

/* Print the line of the epoch in stats->past, which is over. */
void fl_progress_epoch(fl_progress *progress, const fl_run_stats *stats);

/* Print the line of an evaluation within an epoch. */
void fl_progress_evaluation(fl_progress *progress, const fl_run_stats *stats,
                            const fl_eval_report *eval);

/* "best validation loss 0.2312 after epoch 5", for train.stop_after. validation: of the validation
 * samples; otherwise of the test samples. best_epoch: from 1. Returns text. */
enum { FL_PROGRESS_BEST_BYTES = FL_TEXT_MAX + 96 };
const char *fl_progress_best(const fl_job *job, bool validation, double best, int64_t best_epoch,
                             char text[FL_PROGRESS_BEST_BYTES]);

/* Print that the cache is used, or no longer used. The same decision again, by another worker or
 * under another plan, prints nothing. */
void fl_progress_cache(fl_progress *progress, const fl_cache_report *report);

/* Print a line of its own, above the live one. */
void fl_progress_note(fl_progress *progress, const char *format, ...) FL_PRINTF(2, 3);

/* Show in the line that the run is stopping. */
void fl_progress_stopping(fl_progress *progress);

/* Remove the live line. */
void fl_progress_hide(fl_progress *progress);

/* The live line's text without its newline: the words that fit into `columns`, the plan last;
 * columns < 0: all. Pure. */
const char *fl_progress_text(const fl_progress *progress, const fl_run_stats *stats, int columns,
                             char *text, size_t size_bytes);

/* The end of a run, in words; each is "" if there is nothing to report. */
typedef struct fl_progress_end {
    fl_status status;
    const char *message;                          /* of a run that failed: why */
    const char *ledger;                           /* what the ledger proves */
    const char *missing;                          /* what the files of the run lack */
    const struct fl_checkpoint_sums *checkpoints; /* NULL: none were to be written */
    const fl_recovery_sums *recovery;             /* what losses have cost; NULL: unknown */
    int64_t evaluated;  /* steps that were done before the last evaluation */
    const char *tuning; /* what the race between several M cost */
} fl_progress_end;

/* Print the block at the end of a run. */
void fl_progress_summary(FILE *out, const fl_controller_options *options,
                         const fl_run_result *result, const fl_progress_end *end);

#endif
