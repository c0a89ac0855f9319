/* Puts the leaders' step reports into the order of the steps.
 *
 *     leader of generation g   ── link ──┐
 *     leader of generation g+1 ── link ──┴──> report order ──> run statistics, steps.jsonl, policy
 *
 * Each leader reports through its own link, and any link may be late: the first report of the new
 * leader may arrive before the last one of the old leader. A step is released once, after all steps
 * before it. Its gradient norms and the samples of each replica, which a leader sends first, and
 * the evaluations after it are released with it: a step is counted if and only if its samples are.
 * No I/O. */
#ifndef FL_CONTROL_LINK_STEP_ORDER_H
#define FL_CONTROL_LINK_STEP_ORDER_H

#include "control/link/wire/wire.h"

/* A step that is further ahead than this is refused. */
enum { FL_REPORTS_AHEAD_MAX = 1 << 20 };

/* The samples of one replica in a step. */
typedef struct fl_step_share {
    struct fl_step_share *next; /* of a replica with a higher number */
    int64_t epoch;
    uint32_t generation;
    int32_t replica;
    int64_t n;
    int64_t ids[]; /* [n] */
} fl_step_share;

/* All reports about one step. */
typedef struct fl_step_record {
    struct fl_step_record *next; /* a later step; used by the list alone */
    int64_t step;
    bool has_norms, has_step, has_eval; /* which of the following are valid */
    fl_wire_norms norms;
    fl_step_report report;
    int64_t at_us; /* the sender's clock at the report */
    fl_eval_report eval;
    fl_step_share *shares; /* in the order of the replicas */
} fl_step_record;

typedef struct fl_step_order {
    fl_step_record *first; /* the records that were not released yet, in the order of steps */
    int64_t next_step;     /* every step before it has been released */
} fl_step_order;

void fl_step_order_fini(fl_step_order *order);

/* Add a report. A duplicate, and a report about a step that was released already, change nothing.
 * Returns FL_EFORMAT for a step that is too far ahead, FL_ENOMEM. Threads: one at a time. */
fl_status fl_step_order_norms(fl_step_order *order, const fl_wire_norms *norms) FL_MUST_CHECK;
fl_status fl_step_order_step(fl_step_order *order, const fl_step_report *report,
                             int64_t at_us) FL_MUST_CHECK;
fl_status fl_step_order_eval(fl_step_order *order, const fl_eval_report *eval) FL_MUST_CHECK;

/* The same for a decoded ledger frame. */
fl_status fl_step_order_share(fl_step_order *order, const fl_wire_message *frame) FL_MUST_CHECK;

/* Forget what has arrived about steps that have not been released: they will be done again. */
void fl_step_order_forget(fl_step_order *order);

void fl_step_record_free(fl_step_record **record);

/* Take the next record; free it with fl_step_record_free. NULL while it has not arrived. A record
 * without has_step is an evaluation of a step that was released before. */
fl_step_record *fl_step_order_take(fl_step_order *order);

/* Number of steps missing before the first record that waits; 0 if none waits. */
int64_t fl_step_order_gap(const fl_step_order *order);

/* Give up the missing steps: the leader that had to report them is lost. */
void fl_step_order_skip(fl_step_order *order);

#endif
