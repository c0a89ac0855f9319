/* Who waits for whom: what the flight recorders say when a run stands still or has lost a worker.
 * Pure: from what each worker is in to a line for people. */
#ifndef FL_CONTROL_OBSERVE_WAIT_GRAPH_H
#define FL_CONTROL_OBSERVE_WAIT_GRAPH_H

#include "device/flight.h"

#include <frostline/model.h>
#include <frostline/plan.h>

/* What one worker is in. Entries of kind FL_FLIGHT_NONE stand for nothing. */
typedef struct fl_wait_graph_worker {
    fl_flight_entry at;    /* the innermost operation of its main thread */
    fl_flight_entry phase; /* the step, evaluation or part of a transition around it */
    fl_flight_entry last;  /* what its main thread left last */
    /* The newest it has come to, left or not. */
    fl_flight_entry sum, gather, reduce;
} fl_wait_graph_worker;

/* One line, without an end: who is in what, who waits for it in which operation, and who never
 * arrived there. "" when nobody waits and nobody is lost.
 * workers  [n], by rank
 * plan     of the generation that runs
 * model    names the kind of a layer; NULL: layers are told by their number alone
 * lost     the worker that the run ends for; -1: nobody, it only stands still
 * now_ns   when this was seen, on the clock of the entries
 * text     [size_bytes] out; what does not fit is left out
 * Returns  text. Threads: pure; any. */
const char *fl_wait_graph_explain(const fl_wait_graph_worker *workers, int n, const fl_plan *plan,
                                  const fl_model *model, int lost, int64_t now_ns, char *text,
                                  size_t size_bytes);

#endif
