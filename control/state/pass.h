/* A pass: workers go once over samples, in batches, instead of training (frostline evaluate and
 * predict).
 *
 * The gate bounds how far they run ahead of what the controller has handled: no batch begins before
 * the controller has opened it. To stop a pass, the controller opens no further batch, so all
 * workers end with the same one and none waits for another that has left. */
#ifndef FL_CONTROL_STATE_PASS_H
#define FL_CONTROL_STATE_PASS_H

#include "control/link/link.h"

#include <stdatomic.h>
#include <stdio.h>

enum { FL_PASS_AHEAD = 8 }; /* batches that workers may begin before the first of them is handled */

/* In memory that is shared with forked workers. */
typedef struct fl_pass_gate {
    atomic_llong open; /* batches 0 .. open - 1 may begin; only grows */
    atomic_bool ends;  /* `open` stays as it is */
} fl_pass_gate;

/* FL_ENOMEM. *gate becomes NULL; NULL is fine. */
fl_status fl_pass_gate_create(fl_pass_gate **out) FL_MUST_CHECK;
void fl_pass_gate_destroy(fl_pass_gate **gate);

/* Whether batch `batch` may begin. *over: neither it nor any later one ever will. Threads and
 * processes: any. */
bool fl_pass_gate_admits(fl_pass_gate *gate, int64_t batch, bool *over);

/* What the controller of a pass is given. */
typedef struct fl_pass_options {
    fl_pass_gate *gate;
    const char *verb;  /* "evaluating": for the progress line; NULL: none */
    FILE *terminal;    /* where progress and notes go */
    int64_t n_samples; /* of the whole pass */
    int64_t batch;     /* samples of a batch, but for the last one */
    int out_fd;        /* where the lines go, in the order of the ids; -1: there are none */
    const char *out;   /* its name in messages */
} fl_pass_options;

/* What it found. */
typedef struct fl_pass_outcome {
    int64_t n_samples; /* of batches that are complete, and whose lines are written */
    bool evaluated;
    fl_eval_report evaluation; /* valid if `evaluated` */
} fl_pass_outcome;

#endif
