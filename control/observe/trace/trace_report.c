/* Analyzes a trace: the parts of the time, communication hidden behind compute, long operations,
 * stragglers. Waiting counts as idle until the awaited worker has arrived, as communication from
 * then on: see trace_index.h. trace_bubbles.c measures bubbles. */
#include "control/observe/trace/trace_index.h"

#include "control/observe/slow.h"
#include "device/system/alloc.h"

#include <stdlib.h>
#include <string.h>

typedef struct analysis {
    const fl_trace_data *trace;
    fl_trace_report *report;
    fl_trace_index index;
} analysis;

/* ---- parts of the time ---- */

static void add_times(const analysis *a, fl_trace_worker *w, const fl_trace_event *event)
{
    const fl_flight_entry *e = &event->e;
    fl_flight_category category = fl_flight_category_of(e->kind);
    int64_t took_ns = e->left_ns - e->entered_ns;
    if (category == FL_FLIGHT_IS_PHASE) {
        return;
    }
    w->in_ns[category] += took_ns;
    if (category == FL_FLIGHT_IS_SEND) {
        w->communication_ns += took_ns;
    } else if (category == FL_FLIGHT_IS_RECEIVE || category == FL_FLIGHT_IS_REDUCE ||
               e->kind == FL_FLIGHT_SUM) {
        int64_t idle_ns = fl_trace_came_ns(&a->index, event) - e->entered_ns;
        w->idle_ns += idle_ns;
        w->communication_ns += took_ns - idle_ns;
    } else if (category == FL_FLIGHT_IS_WAIT) {
        w->idle_ns += took_ns;
    }
}

/* What the stage computed, on the device or on the main thread. */
static void add_own(const analysis *a, const fl_trace_event *event)
{
    fl_trace_worker *w = &a->report->worker[event->rank];
    double took_us = (double)(event->e.left_ns - event->e.entered_ns) * 1e-3;
    if (fl__is_stage_work(event->e.kind) && fl_trace_computes(&a->index, event) &&
        fl_trace_in_step(&a->index, event)) {
        w->own_us += took_us;
    }
    if (event->role == FL_FLIGHT_DEVICE) {
        w->has_device = true;
        w->device_ns += event->e.left_ns - event->e.entered_ns;
    }
}

static void sum_times(analysis *a)
{
    int64_t first_ns[FL_MAX_WORKERS], last_ns[FL_MAX_WORKERS];
    for (int rank = 0; rank < a->report->n_workers; rank++) {
        first_ns[rank] = INT64_MAX;
        last_ns[rank] = INT64_MIN;
    }
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        int rank = event->rank;
        add_own(a, event);
        if (event->role == FL_FLIGHT_MAIN) {
            add_times(a, &a->report->worker[rank], event);
            first_ns[rank] = fl__smaller(first_ns[rank], event->e.entered_ns);
            last_ns[rank] = fl__larger(last_ns[rank], event->e.left_ns);
        }
    }
    for (int rank = 0; rank < a->report->n_workers; rank++) {
        fl_trace_worker *w = &a->report->worker[rank];
        w->wall_ns = last_ns[rank] > first_ns[rank] ? last_ns[rank] - first_ns[rank] : 0;
        w->in_ns[FL_FLIGHT_IS_OTHER] = w->wall_ns;
        for (int i = FL_FLIGHT_IS_OTHER + 1; i < FL_FLIGHT_N_CATEGORIES; i++) {
            w->in_ns[FL_FLIGHT_IS_OTHER] -= w->in_ns[i];
        }
    }
}

/* ---- communication behind computing ---- */

static int by_entered(const void *left, const void *right)
{
    const fl_trace_event *a = left, *b = right;
    int order = fl__compare(a->rank, b->rank);
    return order != 0 ? order : fl__compare(a->e.entered_ns, b->e.entered_ns);
}

/* `own` [n] are one worker's operations by time. One thread computes and another transfers, so the
 * operations of each kind do not overlap. */
static void overlap_of(const fl_trace_index *index, fl_trace_worker *w, const fl_trace_event *own,
                       size_t n)
{
    size_t from = 0;
    for (size_t i = 0; i < n; i++) {
        const fl_flight_entry *t = &own[i].e;
        if (t->kind != FL_FLIGHT_REDUCE) {
            continue;
        }
        w->reduce_ns += t->left_ns - t->entered_ns;
        while (from < i && own[from].e.left_ns <= t->entered_ns) {
            from++;
        }
        for (size_t j = from; j < n && own[j].e.entered_ns < t->left_ns; j++) {
            int64_t begin = fl__larger(own[j].e.entered_ns, t->entered_ns);
            int64_t end = fl__smaller(own[j].e.left_ns, t->left_ns);
            w->hidden_ns += fl_trace_computes(index, &own[j]) && end > begin ? end - begin : 0;
        }
    }
}

static fl_status find_overlap(analysis *a)
{
    fl_trace_event *list = NULL;
    size_t n = 0;
    FL_TRY(fl_alloc_array(a->trace->n, sizeof *list, (void **)&list));
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        if (event->e.kind == FL_FLIGHT_REDUCE || fl_trace_computes(&a->index, event)) {
            list[n++] = *event;
        }
    }
    qsort(list, n, sizeof *list, by_entered);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && list[end].rank == list[first].rank; end++) {
        }
        overlap_of(&a->index, &a->report->worker[list[first].rank], list + first, end - first);
    }
    fl_free(list);
    return FL_OK;
}

/* ---- long operations ---- */

static int by_total(const void *left, const void *right)
{
    const fl_trace_top *a = left, *b = right;
    int order = -fl__compare(a->total_ns, b->total_ns);
    order = order != 0 ? order : fl__compare((int64_t)a->kind, (int64_t)b->kind);
    return order != 0 ? order : fl__compare(a->item, b->item);
}

static fl_status find_longest(analysis *a)
{
    enum { ITEMS = FL_MAX_LAYERS + 1 };
    fl_trace_top *all = NULL;
    size_t n = 0;
    FL_TRY(fl_alloc_array((size_t)FL_FLIGHT_KINDS * ITEMS, sizeof *all, (void **)&all));
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_flight_entry *e = &a->trace->events[i].e;
        bool layered = e->kind == FL_FLIGHT_FORWARD || e->kind == FL_FLIGHT_BACKWARD;
        int item = layered && e->item >= 0 && e->item < FL_MAX_LAYERS ? e->item : -1;
        if (fl_flight_category_of(e->kind) != FL_FLIGHT_IS_PHASE &&
            a->trace->events[i].role != FL_FLIGHT_DEVICE) {
            fl_trace_top *top = &all[(size_t)e->kind * ITEMS + (size_t)(item + 1)];
            top->kind = e->kind;
            top->item = item;
            top->n++;
            top->total_ns += e->left_ns - e->entered_ns;
            top->longest_ns = fl__larger(top->longest_ns, e->left_ns - e->entered_ns);
        }
    }
    for (size_t i = 0; i < (size_t)FL_FLIGHT_KINDS * ITEMS; i++) {
        if (all[i].n > 0) {
            all[n++] = all[i];
        }
    }
    qsort(all, n, sizeof *all, by_total);
    a->report->n_top = n < FL_TRACE_TOP ? (int)n : FL_TRACE_TOP;
    memcpy(a->report->top, all, (size_t)a->report->n_top * sizeof *all);
    fl_free(all);
    return FL_OK;
}

/* ---- stragglers ---- */

/* The layers of a forward or backward: one on the main thread, on the device those from the item to
 * the stage's last one. */
static int layer_behind(const fl_plan *plan, const fl_trace_event *event)
{
    fl_place place = fl_plan_place(plan, event->rank);
    bool all = event->role == FL_FLIGHT_DEVICE && place.active;
    return all ? plan->first[place.stage + 1] : event->e.item + 1;
}

/* The expected time of the passes that were run: a frozen layer has no backward pass, a layer whose
 * output is cached no forward pass. */
static void expect(analysis *a)
{
    const fl_trace_about *about = &a->trace->about;
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        const fl_flight_entry *e = &event->e;
        const fl_plan *plan = fl_trace_plan(about, e->generation);
        bool layered = e->kind == FL_FLIGHT_FORWARD || e->kind == FL_FLIGHT_BACKWARD;
        if (plan == NULL || !layered || e->item < 0 || !fl_trace_computes(&a->index, event) ||
            !fl_trace_in_step(&a->index, event)) {
            continue;
        }
        double samples = (double)about->batch / plan->R / plan->M;
        for (int l = e->item; l < layer_behind(plan, event) && l < about->n_layers; l++) {
            const fl_trace_layer *layer = &about->layer[l];
            double sample_us = e->kind == FL_FLIGHT_FORWARD ? layer->fwd_us : layer->bwd_us;
            a->report->worker[event->rank].expected_us +=
                samples * sample_us + layer->call_us / 2.0;
        }
    }
}

static void find_stragglers(analysis *a)
{
    double own[FL_MAX_WORKERS], expected[FL_MAX_WORKERS], slowness[FL_MAX_WORKERS] = {0};
    int n = a->report->n_workers;
    expect(a);
    for (int i = 0; i < n; i++) {
        own[i] = a->report->worker[i].own_us;
        expected[i] = a->report->worker[i].expected_us;
    }
    (void)fl_slow_find(own, expected, n, slowness);
    for (int i = 0; i < n; i++) {
        a->report->worker[i].slowness = slowness[i];
    }
}

/* ---- the whole report ---- */

static fl_status analyse(analysis *a)
{
    fl_trace_report *report = a->report;
    FL_TRY(fl_alloc_array((size_t)report->n_workers, sizeof *report->worker,
                          (void **)&report->worker));
    FL_TRY(fl_trace_index_init(&a->index, a->trace));
    sum_times(a);
    FL_TRY(find_overlap(a));
    FL_TRY(fl_trace_find_bubbles(a->trace, &a->index, report));
    FL_TRY(find_longest(a));
    find_stragglers(a);
    return FL_OK;
}

fl_status fl_trace_analyse(const fl_trace_data *trace, fl_trace_report *report)
{
    analysis a = {.trace = trace, .report = report};
    memset(report, 0, sizeof *report);
    report->n_workers = trace->about.n_workers;
    if (trace->n == 0) {
        return fl_fail(FL_EINVAL, "the trace holds no operation");
    }
    fl_status status = analyse(&a);
    fl_trace_index_fini(&a.index);
    if (status != FL_OK) {
        fl_trace_report_fini(report);
    }
    return status;
}

void fl_trace_report_fini(fl_trace_report *report)
{
    fl_free(report->worker);
    memset(report, 0, sizeof *report);
}
