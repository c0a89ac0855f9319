#include "control/observe/metrics/metrics_text.h"

#include <stdio.h>

const char *const fl_metrics_parts[FL_METRICS_PARTS] = {"compute", "wait", "all_reduce_wait",
                                                        "optimizer", "data"};

/* Labels without a value are left out: that of the host, and those of the GPU. */
static void put_worker_info(fl__metrics_text *o, const char *name, const fl_metrics *m, int i)
{
    char rank[16], replica[16], stage[16], gpu[16];
    const fl_metrics_worker *w = &m->workers[i];
    bool has_host = w->host >= 0 && w->host < m->n_hosts, has_gpu = w->gpu_name[0] != '\0';
    const char *labels[16] = {"worker",  rank,
                              "state",   w->state,
                              "replica", w->replica < 0 ? "" : replica,
                              "stage",   w->stage < 0 ? "" : stage};
    int n = 8;
    snprintf(rank, sizeof rank, "%d", i);
    snprintf(replica, sizeof replica, "%d", w->replica);
    snprintf(stage, sizeof stage, "%d", w->stage);
    snprintf(gpu, sizeof gpu, "%d", w->gpu);
    if (has_host) {
        labels[n++] = "host";
        labels[n++] = m->hosts[w->host].name;
    }
    if (has_gpu) {
        labels[n++] = "gpu";
        labels[n++] = gpu;
        labels[n++] = "gpu_name";
        labels[n++] = w->gpu_name;
    }
    fl__metrics_integer(o, name, labels, 1);
}

static void put_info(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_info";
    fl__metrics_family(o, name, "gauge",
                       "A worker's state, replica and stage, its host and its GPU.");
    for (int i = 0; i < m->n_workers; i++) {
        put_worker_info(o, name, m, i);
    }
}

static int64_t steps_of(const fl_metrics_worker *w)
{
    return w->steps;
}

static int64_t slow_of(const fl_metrics_worker *w)
{
    return w->slow;
}

static int64_t used_of(const fl_metrics_worker *w)
{
    return w->memory_used_bytes;
}

static int64_t peak_of(const fl_metrics_worker *w)
{
    return w->memory_peak_bytes;
}

static int64_t parked_of(const fl_metrics_worker *w)
{
    return w->memory_parked_bytes;
}

static int64_t workspace_of(const fl_metrics_worker *w)
{
    return w->memory_workspace_bytes;
}

static void each(fl__metrics_text *o, const fl_metrics *m, const char *name, const char *type,
                 const char *help, int64_t (*of)(const fl_metrics_worker *))
{
    fl__metrics_family(o, name, type, help);
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", i);
        fl__metrics_integer(o, name, FL__METRICS_LABELS("worker", rank), of(&m->workers[i]));
    }
}

static void put_seconds(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_seconds_total";
    fl__metrics_family(o, name, "counter", "Time of a worker's steps, by activity.");
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        snprintf(rank, sizeof rank, "%d", i);
        for (int part = 0; part < FL_METRICS_PARTS; part++) {
            fl__metrics_real(o, name,
                             FL__METRICS_LABELS("worker", rank, "part", fl_metrics_parts[part]),
                             m->workers[i].seconds[part]);
        }
    }
}

static int64_t captures_of(const fl_metrics_worker *w)
{
    return w->graphs.captures;
}

static int64_t launches_of(const fl_metrics_worker *w)
{
    return w->graphs.launches;
}

static int64_t calls_of(const fl_metrics_worker *w)
{
    return w->graphs.calls;
}

static int64_t graph_memory_of(const fl_metrics_worker *w)
{
    return w->graphs.memory_bytes;
}

static void put_shapes(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_worker_graph_shapes";
    fl__metrics_family(o, name, "gauge", "Shapes of micro-batches, by how they are computed.");
    for (int i = 0; i < m->n_workers; i++) {
        char rank[16];
        const fl_metrics_graphs *g = &m->workers[i].graphs;
        snprintf(rank, sizeof rank, "%d", i);
        fl__metrics_integer(o, name, FL__METRICS_LABELS("worker", rank, "way", "measuring"),
                            g->n_measured);
        fl__metrics_integer(o, name, FL__METRICS_LABELS("worker", rank, "way", "graphs"),
                            g->n_by_graphs);
        fl__metrics_integer(o, name, FL__METRICS_LABELS("worker", rank, "way", "calls"),
                            g->n_by_calls);
    }
}

/* Of devices that have graphs. */
void fl__metrics_put_graphs(fl__metrics_text *o, const fl_metrics *m)
{
    bool any = false;
    for (int i = 0; i < m->n_workers; i++) {
        any = any || m->workers[i].graphs.any;
    }
    if (any) {
        each(o, m, "frostline_worker_graph_captures_total", "counter",
             "Forwards, and pieces of backwards, captured as CUDA graphs.", captures_of);
        each(o, m, "frostline_worker_graph_launches_total", "counter", "Launches of these graphs.",
             launches_of);
        each(o, m, "frostline_worker_graph_calls_total", "counter",
             "Forwards and backwards computed call by call, though the device has graphs.",
             calls_of);
        each(o, m, "frostline_worker_graph_memory_bytes", "gauge",
             "The driver's memory for these graphs, outside the budget.", graph_memory_of);
        put_shapes(o, m);
    }
}

void fl__metrics_put_workers(fl__metrics_text *o, const fl_metrics *m)
{
    put_info(o, m);
    each(o, m, "frostline_worker_steps_total", "counter", "Steps that a worker has finished.",
         steps_of);
    put_seconds(o, m);
    each(o, m, "frostline_worker_slow", "gauge", "1 for a worker that is reported as slow.",
         slow_of);
    each(o, m, "frostline_worker_memory_used_bytes", "gauge", "Device memory in use.", used_of);
    each(o, m, "frostline_worker_memory_peak_bytes", "gauge", "The most that was in use.", peak_of);
    each(o, m, "frostline_worker_memory_parked_bytes", "gauge",
         "Host memory that keeps the moments of frozen layers, outside the budget.", parked_of);
    each(o, m, "frostline_worker_memory_workspace_bytes", "gauge",
         "Workspaces of kernels, outside the budget.", workspace_of);
    fl__metrics_gauge(o, "frostline_worker_memory_budget_bytes",
                      "Device memory that each worker has.", m->memory_budget_bytes);
}
