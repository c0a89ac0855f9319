/* What the workers' flight recorders show. */
#ifndef FL_CONTROL_OBSERVE_FLIGHT_DUMP_H
#define FL_CONTROL_OBSERVE_FLIGHT_DUMP_H

#include "control/events/json.h"
#include "control/observe/wait_graph.h"

typedef struct fl_controller fl_controller;

enum { FL_FLIGHT_DUMP_BYTES = 1024 };

/* Who waits for whom at this moment, as fl_wait_graph_explain says it; lost -1: nobody. */
const char *fl_flight_dump_explain(fl_controller *controller, int lost, char *text,
                                   size_t size_bytes);

/* The same, and the last operations of every thread of every worker, as fields "waits" and
 * "workers" of the object at hand. */
void fl_flight_dump_json(fl_controller *controller, fl_json *json);

/* That object as flight.json in the run directory; what goes wrong is only warned of. */
void fl_flight_dump_write(fl_controller *controller);

#endif
