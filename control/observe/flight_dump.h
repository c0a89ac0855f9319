/* What the workers' flight recorders show at one moment. */
#ifndef FL_CONTROL_OBSERVE_FLIGHT_DUMP_H
#define FL_CONTROL_OBSERVE_FLIGHT_DUMP_H

#include "control/events/json.h"
#include "control/observe/wait_graph.h"
#include "control/state/run_facts.h"

enum { FL_FLIGHT_DUMP_BYTES = 1024 };

typedef struct fl_flight_dump {
    const fl_run_facts *run;
    fl_wait_graph_worker *workers; /* [n_workers]; room to work in */
} fl_flight_dump;

/* run  borrowed, for as long as the dump lives */
fl_status fl_flight_dump_init(fl_flight_dump *dump, const fl_run_facts *run) FL_MUST_CHECK;
void fl_flight_dump_fini(fl_flight_dump *dump);

/* Who waits for whom at this moment, as fl_wait_graph_explain says it; lost -1: no worker. */
const char *fl_flight_dump_explain(fl_flight_dump *dump, int lost, char *text, size_t size_bytes);

/* The same, and the last operations of every thread of every worker, as fields "waits" and
 * "workers" of the object at hand. */
void fl_flight_dump_json(fl_flight_dump *dump, fl_json *json);

/* That object as flight.json in the run directory; a failure is only warned of. */
void fl_flight_dump_write(fl_flight_dump *dump);

#endif
