/* The event of work that a worker captures and launches again. */
#include "control/events/event_log.h"

void fl_event_log_graphs(fl_event_log *log, int rank, const fl_graphs_report *r)
{
    fl_json *j = fl_event_log_begin(log, "graphs");
    fl_json_integer(j, "rank", rank);
    fl_json_integer(j, "step", r->step);
    fl_json_text(j, "state", r->graphs.given_up ? "off" : "on");
    fl_json_integer(j, "captures", r->graphs.captures);
    fl_json_integer(j, "launches", r->graphs.launches);
    fl_json_integer(j, "shapes", r->graphs.shapes);
    fl_json_integer(j, "shapes_by_graph", r->graphs.by_graph);
    if (r->graphs.given_up) {
        fl_json_text(j, "reason", r->graphs.reason);
    }
    fl_event_log_end(log);
}
