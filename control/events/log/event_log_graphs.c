/* The event of work that a worker captures and launches again. */
#include "control/events/log/event_log.h"

static const char *const way_texts[FL_STAGE_WAYS] = {"measuring", "graphs", "calls"};

static void put_us(fl_json *j, const char *key, double us)
{
    if (us > 0.0) {
        fl_json_rounded(j, key, us, 1);
    }
}

static void put_shape(fl_json *j, const fl_stage_shape_report *shape)
{
    fl_json_object(j, NULL);
    fl_json_text(j, "for", shape->training ? "training" : "evaluation");
    fl_json_integer(j, "samples", shape->samples);
    fl_json_integer(j, "rows", shape->rows);
    fl_json_integer(j, "longest", shape->longest);
    fl_json_text(j, "way", way_texts[shape->way]);
    put_us(j, "calls_us", shape->calls_us);
    put_us(j, "graphs_us", shape->graphs_us);
    fl_json_close(j, '}');
}

void fl_event_log_graphs(fl_event_log *log, int rank, const fl_graphs_report *r)
{
    log->event = "graphs";
    /* Of the report's generation, which may have ended since. */
    fl_json *j = fl_runfiles_event(&log->files, log->event, r->generation);
    fl_json_integer(j, "rank", rank);
    fl_json_integer(j, "step", r->step);
    fl_json_text(j, "state", r->graphs.given_up ? "off" : "on");
    fl_json_integer(j, "captures", r->graphs.captures);
    fl_json_integer(j, "launches", r->graphs.launches);
    fl_json_integer(j, "sum_launches", r->graphs.sum_launches);
    fl_json_integer(j, "calls", r->graphs.calls);
    fl_json_integer(j, "nodes", r->graphs.nodes);
    fl_json_integer(j, "memory_bytes", r->graphs.bytes);
    fl_json_integer(j, "shapes", r->graphs.shapes);
    fl_json_integer(j, "shapes_by_graph", r->graphs.by_graph);
    if (r->graphs.given_up) {
        fl_json_text(j, "reason", r->graphs.reason);
    }
    fl_json_array(j, "by_shape");
    for (int i = 0; i < r->graphs.shapes; i++) {
        put_shape(j, &r->graphs.shape[i]);
    }
    fl_json_close(j, ']');
    fl_event_log_end(log);
}
