/* Measures the share of the stages' time without work, and predicts it from the schedule. */
#include "control/observe/trace/trace_index.h"

#include "device/system/alloc.h"
#include "pipe/cost/schedule.h"

#include <math.h>
#include <stdlib.h>

/* One step of one replica, as its stages executed it. */
typedef struct window {
    uint32_t generation;
    int64_t step;
    int replica;
    int64_t first_ns, last_ns, busy_ns;
} window;

/* The cost of one stage's micro-batches, over all replicas and steps of a generation. */
typedef struct stage_cost {
    double fwd_ns, bwd_ns, link_ns;
    int64_t n_forward, n_link;
} stage_cost;

typedef struct gathered {
    const fl_trace_data *trace;
    const fl_trace_about *about;
    const fl_trace_index *index;
    window *windows;
    size_t n_windows;
    stage_cost *costs; /* [n_plans][FL_MAX_STAGES] */
} gathered;

static int by_window(const void *left, const void *right)
{
    const window *a = left, *b = right;
    int order = fl__compare(a->generation, b->generation);
    order = order != 0 ? order : fl__compare(a->step, b->step);
    return order != 0 ? order : fl__compare(a->replica, b->replica);
}

static stage_cost *costs_of(const gathered *g, const fl_plan *plan)
{
    return &g->costs[(plan - g->about->plan) * FL_MAX_STAGES];
}

static void add_cost(const fl_trace_index *index, const fl_trace_event *event, const fl_plan *plan,
                     stage_cost *cost)
{
    const fl_flight_entry *e = &event->e;
    double took_ns = (double)(e->left_ns - e->entered_ns);
    int stage = fl_plan_place(plan, event->rank).stage;
    switch (e->kind) {
    case FL_FLIGHT_FORWARD:
        cost[stage].fwd_ns += took_ns;
        cost[stage].n_forward += event->role == FL_FLIGHT_DEVICE || e->item == plan->first[stage];
        break;
    case FL_FLIGHT_BACKWARD:
    case FL_FLIGHT_LOSS:
        cost[stage].bwd_ns += took_ns;
        break;
    case FL_FLIGHT_RECEIVE:
        cost[stage - 1].link_ns += (double)(e->left_ns - fl_trace_came_ns(index, event));
        cost[stage - 1].n_link++;
        break;
    default:
        break;
    }
}

/* Whether the trace has what every stage of this replica did. */
static bool is_whole(const gathered *g, const fl_plan *plan, int replica)
{
    for (int rank = 0; rank < plan->n_workers && g->trace->n_hosts > 0; rank++) {
        fl_place place = fl_plan_place(plan, rank);
        const fl_trace_host *host = fl_trace_host_of(g->trace, rank);
        if (place.active && place.replica == replica && host != NULL && host->missing[0] != '\0') {
            return false;
        }
    }
    return true;
}

/* Note an operation that a pipeline's stage executed in a training step: its cost, and a window of
 * its own. */
static void gather_event(gathered *g, const fl_trace_event *event)
{
    const fl_flight_entry *e = &event->e;
    const fl_plan *plan = fl_trace_plan(g->about, e->generation);
    bool works = fl__is_stage_work(e->kind) && fl_trace_computes(g->index, event);
    bool counts = works || e->kind == FL_FLIGHT_RECEIVE;
    if (plan == NULL || !counts || plan->K == 1 || !fl_trace_in_step(g->index, event)) {
        return;
    }
    fl_place place = fl_plan_place(plan, event->rank);
    if (!place.active || !is_whole(g, plan, place.replica) ||
        (e->kind == FL_FLIGHT_RECEIVE && place.stage == 0)) {
        return;
    }
    add_cost(g->index, event, plan, costs_of(g, plan));
    if (works) {
        g->windows[g->n_windows++] = (window){
            e->generation, e->step,    place.replica,
            e->entered_ns, e->left_ns, e->left_ns - e->entered_ns,
        };
    }
}

/* The bubble that the schedule predicts if every micro-batch takes its measured mean time. */
static double schedule_bubble(const fl_plan *plan, const stage_cost *cost)
{
    double fwd[FL_MAX_STAGES], bwd[FL_MAX_STAGES], link[FL_MAX_STAGES], busy = 0.0;
    for (int k = 0; k < plan->K; k++) {
        double n = cost[k].n_forward > 0 ? (double)cost[k].n_forward : 1.0;
        fwd[k] = cost[k].fwd_ns * 1e-3 / n;
        bwd[k] = cost[k].bwd_ns * 1e-3 / n;
        link[k] = cost[k].n_link > 0 ? cost[k].link_ns * 1e-3 / (double)cost[k].n_link : 0.0;
        busy += plan->M * (fwd[k] + bwd[k]);
    }
    double span = fl_schedule_play(plan->schedule, plan->K, plan->M, fwd, bwd, link, NULL);
    return span > 0.0 ? 1.0 - busy / (plan->K * span) : 0.0;
}

/* Merge the windows of one step of one replica, starting at `from`. Returns the index of the first
 * window of another step or replica. */
static size_t merge(const gathered *g, size_t from, window *w)
{
    size_t next = from + 1;
    *w = g->windows[from];
    for (; next < g->n_windows && by_window(w, &g->windows[next]) == 0; next++) {
        w->first_ns = fl__smaller(w->first_ns, g->windows[next].first_ns);
        w->last_ns = fl__larger(w->last_ns, g->windows[next].last_ns);
        w->busy_ns += g->windows[next].busy_ns;
    }
    return next;
}

static void average(gathered *g, fl_trace_report *report)
{
    double bubble = 0.0, expected = 0.0, of_plan[FL_TRACE_PLANS] = {0};
    int n = 0;
    for (int i = 0; i < g->about->n_plans; i++) {
        of_plan[i] = schedule_bubble(&g->about->plan[i], costs_of(g, &g->about->plan[i]));
    }
    qsort(g->windows, g->n_windows, sizeof *g->windows, by_window);
    for (size_t i = 0; i < g->n_windows;) {
        window w;
        i = merge(g, i, &w);
        const fl_plan *plan = fl_trace_plan(g->about, w.generation);
        double all_ns = (double)(w.last_ns - w.first_ns) * plan->K;
        if (all_ns > 0.0) {
            bubble += 1.0 - (double)w.busy_ns / all_ns;
            expected += of_plan[plan - g->about->plan];
            n++;
        }
    }
    report->n_pipelines = n;
    report->bubble = n > 0 ? bubble / n : NAN;
    report->schedule_bubble = n > 0 ? expected / n : NAN;
}

fl_status fl_trace_find_bubbles(const fl_trace_data *trace, const fl_trace_index *index,
                                fl_trace_report *report)
{
    gathered g = {.trace = trace, .about = &trace->about, .index = index};
    size_t n_costs = (size_t)trace->about.n_plans * FL_MAX_STAGES + 1;
    FL_TRY(fl_alloc_array(n_costs, sizeof *g.costs, (void **)&g.costs));
    fl_status status = fl_alloc_array(trace->n + 1, sizeof *g.windows, (void **)&g.windows);
    if (status == FL_OK) {
        for (size_t i = 0; i < trace->n; i++) {
            gather_event(&g, &trace->events[i]);
        }
        average(&g, report);
    }
    fl_free(g.windows);
    fl_free(g.costs);
    return status;
}
