/* The contents of the workers' flight recorders at one moment. */
#ifndef FL_CONTROL_OBSERVE_FLIGHT_DUMP_H
#define FL_CONTROL_OBSERVE_FLIGHT_DUMP_H

#include "control/events/json.h"
#include "control/observe/wait_graph.h"
#include "control/state/run_facts.h"

enum { FL_FLIGHT_DUMP_BYTES = 1024 };

typedef struct fl_flight_dump {
    const fl_run_facts *run;
    fl_wait_graph_worker *workers; /* [n_workers]; scratch memory */
} fl_flight_dump;

/* run  borrowed while the dump exists */
fl_status fl_flight_dump_init(fl_flight_dump *dump, const fl_run_facts *run) FL_MUST_CHECK;
void fl_flight_dump_fini(fl_flight_dump *dump);

/* Write which workers wait for which at this moment, as fl_wait_graph_explain does; lost -1: none.
 */
const char *fl_flight_dump_explain(fl_flight_dump *dump, int lost, char *text, size_t size_bytes);

/* Which worker that text begins with, where no worker is lost and others wait for one that waits
 * for none; else -1. After fl_flight_dump_explain. */
int fl_flight_dump_culprit(const fl_flight_dump *dump);

/* Write which workers are in which call that opens a communicator, on any thread, as
 * fl_wait_graph_openings does. */
const char *fl_flight_dump_openings(const fl_flight_dump *dump, char *text, size_t size_bytes);

/* Add the same text and the last operations of every thread of every worker, as fields "waits" and
 * "workers" of the open object. */
void fl_flight_dump_json(fl_flight_dump *dump, fl_json *json);

/* Write that object to flight.json in the run directory; a failure only causes a warning. */
void fl_flight_dump_write(fl_flight_dump *dump);

#endif
