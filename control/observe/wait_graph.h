/* Explains which workers wait for which, from the flight recorders of a run that has stalled or has
 * lost a worker. Pure: from each worker's current operation to a line for people. */
#ifndef FL_CONTROL_OBSERVE_WAIT_GRAPH_H
#define FL_CONTROL_OBSERVE_WAIT_GRAPH_H

#include "device/flight/flight.h"

#include <frostline/model.h>
#include <frostline/plan.h>

/* One worker's current operations. An entry of kind FL_FLIGHT_NONE is empty. */
typedef struct fl_wait_graph_worker {
    fl_flight_entry at;    /* the innermost operation of its main thread */
    fl_flight_entry phase; /* the step, evaluation or part of a transition that contains it */
    fl_flight_entry last;  /* the operation that its main thread finished last */
    /* The newest of each kind that it has entered, finished or not. */
    fl_flight_entry sum, gather, reduce;
} fl_wait_graph_worker;

/* Write one line without a newline: which worker is in which operation, which workers wait for it
 * in which operation, and which never arrived there. "" when no worker waits and none is lost.
 * workers  [n], by rank
 * plan     of the running generation
 * model    names the kind of a layer; NULL: layers are named by their number alone
 * lost     the worker because of which the run ends; -1: none, the run only stalls
 * now_ns   when the entries were read, on their clock
 * text     [size_bytes] out; what does not fit is left out
 * Returns  text
 * Threads  pure; any */
const char *fl_wait_graph_explain(const fl_wait_graph_worker *workers, int n, const fl_plan *plan,
                                  const fl_model *model, int lost, int64_t now_ns, char *text,
                                  size_t size_bytes);

/* Write one line without a newline: which workers are in which call that opens a communicator, as
 * "workers 0 and 2 wait in ncclCommSplit; worker 1 waits in ncclCommInitRankConfig". "" when none
 * is in such a call.
 * call     [n], by rank: the innermost such operation; kind FL_FLIGHT_NONE: none
 * text     [size_bytes] out; what does not fit is left out
 * Returns  text. Pure; any thread */
const char *fl_wait_graph_openings(const fl_flight_entry *call, int n, char *text,
                                   size_t size_bytes);

/* Whether the operation opens a communicator. Pure. */
bool fl_wait_graph_opens(fl_flight_kind kind);

/* The first worker, by rank, that others wait for while it waits for nobody; -1 if no worker is so.
 * Arguments as above. Pure; any thread. */
int fl_wait_graph_culprit(const fl_wait_graph_worker *workers, int n, const fl_plan *plan);

#endif
