#include "control/state/sums/graph_sums.h"

#include <string.h>

fl_graph_counts fl_graph_sums_total(const fl_graph_sums *sums)
{
    const fl_graph_counts *a = &sums->before, *b = &sums->now;
    return (fl_graph_counts){a->captures + b->captures, a->launches + b->launches,
                             a->calls + b->calls};
}

void fl_graph_sums_add(fl_graph_sums *sums, const fl_graphs_report *report)
{
    const fl_stage_graph_report *g = &report->graphs;
    sums->before = sums->any && sums->generation != report->generation ? fl_graph_sums_total(sums)
                                                                       : sums->before;
    sums->any = true;
    sums->generation = report->generation;
    sums->step = report->step;
    sums->memory_bytes = g->bytes;
    sums->now = (fl_graph_counts){g->captures, g->launches, g->calls};
    memset(sums->n_shapes, 0, sizeof sums->n_shapes);
    for (int i = 0; i < g->shapes; i++) {
        sums->n_shapes[g->shape[i].way]++;
    }
}

void fl_graph_sums_end(fl_graph_sums *sums)
{
    sums->before = fl_graph_sums_total(sums);
    sums->now = (fl_graph_counts){0};
    sums->memory_bytes = 0;
    memset(sums->n_shapes, 0, sizeof sums->n_shapes);
}
