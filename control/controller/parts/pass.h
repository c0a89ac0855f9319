/* The controller's part of a pass (control/state/pass.h): count batches, put the samples' lines
 * into the order of their ids, write them, and open further batches.
 *
 *     report of a worker ──> slot of its batch ──(all samples)──> sorted lines ──> out_fd
 *                                                                                   └─> gate opens
 *
 * It holds the lines of at most FL_PASS_AHEAD batches. A reader that takes its time holds up the
 * workers at the gate, where they wait for nothing but the controller; the loop goes on meanwhile.
 */
#ifndef FL_CONTROL_CONTROLLER_PARTS_PASS_H
#define FL_CONTROL_CONTROLLER_PARTS_PASS_H

#include "control/events/progress.h"
#include "control/state/pass.h"

typedef struct fl_pass_line {
    int64_t id;
    size_t begin, size_bytes; /* in the text of its slot */
} fl_pass_line;

/* A batch, until it is complete. */
typedef struct fl_pass_slot {
    int64_t n_samples; /* reported so far */
    size_t n_lines, lines_capacity;
    fl_pass_line *line;
    size_t text_bytes, text_capacity;
    char *text;
} fl_pass_slot;

typedef struct fl_pass {
    const fl_pass_options *o; /* NULL: the run trains */
    int64_t n_batches;
    int64_t n_done; /* batches that are complete: all before this one */
    fl_pass_slot slot[FL_PASS_AHEAD];
    char *out; /* sorted lines, written up to out_at */
    size_t out_bytes, out_at, out_capacity;
    int64_t begun_us; /* 0: no report has come yet */
    fl_pass_outcome outcome;
} fl_pass;

/* options NULL: the run trains; every other function then does nothing. */
void fl_pass_init(fl_pass *pass, const fl_pass_options *options);
void fl_pass_fini(fl_pass *pass);

/* A worker's report. FL_EFORMAT if it cannot be true; FL_ENOMEM; and as fl_pass_write. */
fl_status fl_pass_heard(fl_pass *pass, const fl_pass_report *report) FL_MUST_CHECK;

/* Write what the receiver takes without waiting; then open further batches. FL_EIO; FL_ESTOPPED if
 * the receiver has closed its end of the pipe. */
fl_status fl_pass_write(fl_pass *pass) FL_MUST_CHECK;

/* Whether lines wait for the receiver. */
bool fl_pass_holds_lines(const fl_pass *pass);

/* Open no further batch. */
void fl_pass_stop(fl_pass *pass);

/* Draw the line of progress. plan: "K=1 R=2 M=4". */
void fl_pass_show(const fl_pass *pass, fl_progress *progress);

#endif
