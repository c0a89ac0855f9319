#include "control/link/wire/wire_graphs.h"

#include "control/link/wire/ranges.h"

#include <string.h>

enum { REASON_MAX = FL_STAGE_REASON_BYTES - 1, SHAPE_BYTES = 2 * 4 + 3 * 8 + 2 * 8 };

size_t fl_wire_graphs_size(const fl_graphs_report *report)
{
    return 7 * 8 + 3 * 4 + 4 + strnlen(report->graphs.reason, REASON_MAX) +
           (size_t)report->graphs.shapes * SHAPE_BYTES;
}

static void put_shape(fl_writer *w, const fl_stage_shape_report *shape)
{
    fl_put(w, shape->training ? 1 : 0, 4);
    fl_put(w, (uint32_t)shape->way, 4);
    fl_put_i64(w, shape->samples);
    fl_put_i64(w, shape->rows);
    fl_put_i64(w, shape->longest);
    fl_put_f64(w, shape->calls_us);
    fl_put_f64(w, shape->graphs_us);
}

static bool get_shape(fl_reader *r, fl_stage_shape_report *shape)
{
    uint64_t training = fl_get(r, 4), way = fl_get(r, 4);
    *shape = (fl_stage_shape_report){.training = training == 1, .samples = fl_get_i64(r)};
    shape->rows = fl_get_i64(r);
    shape->longest = fl_get_i64(r);
    shape->calls_us = fl_get_f64(r);
    shape->graphs_us = fl_get_f64(r);
    if (training > 1 || way >= FL_STAGE_WAYS) {
        return false;
    }
    shape->way = (fl_stage_way)way;
    return shape->samples >= 0 && shape->rows >= 0 && shape->longest >= 0 &&
           shape->calls_us >= 0.0 && shape->graphs_us >= 0.0;
}

void fl_wire_put_graphs(fl_writer *w, const fl_graphs_report *report)
{
    const fl_stage_graph_report *g = &report->graphs;
    fl_put_i64(w, report->step);
    fl_put_i64(w, g->captures);
    fl_put_i64(w, g->launches);
    fl_put_i64(w, g->sum_launches);
    fl_put_i64(w, g->calls);
    fl_put_i64(w, g->nodes);
    fl_put_i64(w, g->bytes);
    fl_put(w, (uint32_t)g->shapes, 4);
    fl_put(w, (uint32_t)g->by_graph, 4);
    fl_put(w, g->given_up ? 1 : 0, 4);
    fl_put_text(w, g->reason, REASON_MAX);
    for (int i = 0; i < g->shapes; i++) {
        put_shape(w, &g->shape[i]);
    }
}

bool fl_wire_get_graphs(fl_reader *r, uint32_t generation, fl_graphs_report *report)
{
    fl_stage_graph_report *g = &report->graphs;
    *report = (fl_graphs_report){.generation = generation, .step = fl_get_i64(r)};
    g->captures = fl_get_i64(r);
    g->launches = fl_get_i64(r);
    g->sum_launches = fl_get_i64(r);
    g->calls = fl_get_i64(r);
    g->nodes = fl_get_i64(r);
    g->bytes = fl_get_i64(r);
    g->shapes = fl_get_i32(r);
    g->by_graph = fl_get_i32(r);
    uint64_t given_up = fl_get(r, 4);
    g->given_up = given_up == 1;
    bool good = fl_get_text(r, g->reason, REASON_MAX) && given_up < 2 &&
                fl_wire_is_step(report->step) && fl_wire_is_count(g->captures) &&
                fl_wire_is_count(g->launches) && fl_wire_is_count(g->sum_launches) &&
                fl_wire_is_count(g->calls) && fl_wire_is_count(g->nodes) &&
                fl_wire_is_bytes(g->bytes) && g->shapes >= 0 && g->shapes <= FL_STAGE_SHAPES &&
                g->by_graph >= 0;
    for (int i = 0; good && i < g->shapes; i++) {
        good = get_shape(r, &g->shape[i]);
    }
    return good;
}
