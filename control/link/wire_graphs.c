#include "control/link/wire_graphs.h"

#include <string.h>

enum { REASON_MAX = FL_STAGE_REASON_BYTES - 1 };

size_t fl_wire_graphs_size(const fl_graphs_report *report)
{
    return 3 * 8 + 3 * 4 + 4 + strnlen(report->graphs.reason, REASON_MAX);
}

void fl_wire_put_graphs(fl_writer *w, const fl_graphs_report *report)
{
    const fl_stage_graph_report *g = &report->graphs;
    fl_put_i64(w, report->step);
    fl_put_i64(w, g->captures);
    fl_put_i64(w, g->launches);
    fl_put(w, (uint32_t)g->shapes, 4);
    fl_put(w, (uint32_t)g->by_graph, 4);
    fl_put(w, g->given_up ? 1 : 0, 4);
    fl_put_text(w, g->reason, REASON_MAX);
}

bool fl_wire_get_graphs(fl_reader *r, fl_graphs_report *report)
{
    fl_stage_graph_report *g = &report->graphs;
    *report = (fl_graphs_report){.step = fl_get_i64(r)};
    g->captures = fl_get_i64(r);
    g->launches = fl_get_i64(r);
    g->shapes = fl_get_i32(r);
    g->by_graph = fl_get_i32(r);
    uint64_t given_up = fl_get(r, 4);
    g->given_up = given_up == 1;
    return fl_get_text(r, g->reason, REASON_MAX) && given_up < 2 && report->step >= 0 &&
           g->captures >= 0 && g->launches >= 0 && g->shapes >= 0 && g->by_graph >= 0;
}
