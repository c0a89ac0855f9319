/* What a trace says. All workers of a host share one clock, so what one waits for can be looked up
 * in what another did:
 *
 *     receive   idle until the peer's send of the same message was entered, then communication
 *     sum       idle until the last member entered it
 *     all-reduce (the training thread's wait)   idle until the last owner's transfer was entered */
#include "control/trace.h"

#include "control/slow.h"
#include "device/alloc.h"
#include "pipe/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An operation that others may wait for; for a collective, from and to are -1. */
typedef struct arrival {
    fl_flight_kind kind;
    uint32_t generation;
    int64_t step;
    int micro_batch, item, from, to;
    int64_t entered_ns;
} arrival;

/* A training step of one worker. */
typedef struct step_span {
    int rank;
    int64_t entered_ns, left_ns;
} step_span;

/* One step of one replica, as its stages went through it. */
typedef struct window {
    uint32_t generation;
    int64_t step;
    int replica;
    int64_t first_ns, last_ns, busy_ns;
} window;

/* What one stage's micro-batches took, over all replicas and steps of a generation. */
typedef struct stage_cost {
    double fwd_ns, bwd_ns, link_ns;
    int64_t n_forward, n_link;
} stage_cost;

typedef struct analysis {
    const fl_trace_data *trace;
    fl_trace_report *report;
    arrival *arrivals;
    size_t n_arrivals;
    step_span *spans;
    size_t n_spans;
    window *windows;
    size_t n_windows;
    stage_cost *costs; /* [n_plans][FL_MAX_STAGES] */
} analysis;

static int compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- who came when ---- */

static int same_arrival(const arrival *a, const arrival *b)
{
    int order = compare((int64_t)a->kind, (int64_t)b->kind);
    order = order != 0 ? order : compare(a->generation, b->generation);
    order = order != 0 ? order : compare(a->step, b->step);
    order = order != 0 ? order : compare(a->micro_batch, b->micro_batch);
    order = order != 0 ? order : compare(a->item, b->item);
    order = order != 0 ? order : compare(a->from, b->from);
    return order != 0 ? order : compare(a->to, b->to);
}

static int by_arrival(const void *left, const void *right)
{
    const arrival *a = left, *b = right;
    int order = same_arrival(a, b);
    return order != 0 ? order : compare(a->entered_ns, b->entered_ns);
}

/* The key of what `event` does for others; false if nobody waits for it. */
static bool offers(const fl_trace_event *event, arrival *key)
{
    const fl_flight_entry *e = &event->e;
    *key = (arrival){e->kind, e->generation, e->step, e->micro_batch,
                     -1,      event->rank,   e->peer, e->entered_ns};
    switch (e->kind) {
    case FL_FLIGHT_SEND:
    case FL_FLIGHT_SEND_GRAD:
        return true;
    case FL_FLIGHT_STATE_OUT:
        key->item = e->item;
        return true;
    case FL_FLIGHT_SUM:
    case FL_FLIGHT_REDUCE:
        key->item = e->item;
        key->from = key->to = key->micro_batch = -1;
        return true;
    default:
        return false;
    }
}

/* The key of what `event` waits for; false if it waits for nothing that is in a trace. */
static bool awaits(const fl_trace_event *event, arrival *key)
{
    static const struct {
        fl_flight_kind waits, offered;
    } pairs[] = {{FL_FLIGHT_RECEIVE, FL_FLIGHT_SEND},
                 {FL_FLIGHT_RECEIVE_GRAD, FL_FLIGHT_SEND_GRAD},
                 {FL_FLIGHT_STATE_IN, FL_FLIGHT_STATE_OUT},
                 {FL_FLIGHT_SUM, FL_FLIGHT_SUM},
                 {FL_FLIGHT_REDUCE_WAIT, FL_FLIGHT_REDUCE}};
    fl_trace_event other = *event;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (event->e.kind == pairs[i].waits) {
            other.rank = event->e.peer;
            other.e.peer = event->rank;
            other.e.kind = pairs[i].offered;
            return offers(&other, key);
        }
    }
    return false;
}

static void list_arrivals(analysis *a)
{
    for (size_t i = 0; i < a->trace->n; i++) {
        a->n_arrivals += offers(&a->trace->events[i], &a->arrivals[a->n_arrivals]);
    }
    qsort(a->arrivals, a->n_arrivals, sizeof *a->arrivals, by_arrival);
}

/* When the last of those came that `event` waits for, before it was over; its own beginning if
 * nobody is known. */
static int64_t came_ns(const analysis *a, const fl_trace_event *event)
{
    arrival key;
    size_t low = 0, high = a->n_arrivals;
    if (!awaits(event, &key)) {
        return event->e.entered_ns;
    }
    key.entered_ns = event->e.left_ns;
    while (low < high) { /* the first that is behind the key */
        size_t middle = low + (high - low) / 2;
        if (by_arrival(&a->arrivals[middle], &key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    bool known = low > 0 && same_arrival(&a->arrivals[low - 1], &key) == 0;
    int64_t ns = known ? a->arrivals[low - 1].entered_ns : event->e.entered_ns;
    return larger(ns, event->e.entered_ns);
}

/* ---- training steps ---- */

static int by_span(const void *left, const void *right)
{
    const step_span *a = left, *b = right;
    int order = compare(a->rank, b->rank);
    return order != 0 ? order : compare(a->entered_ns, b->entered_ns);
}

static void list_spans(analysis *a)
{
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        if (event->e.kind == FL_FLIGHT_STEP) {
            a->spans[a->n_spans++] =
                (step_span){event->rank, event->e.entered_ns, event->e.left_ns};
        }
    }
    qsort(a->spans, a->n_spans, sizeof *a->spans, by_span);
}

/* Whether it is part of a training step: an evaluation also runs forward. */
static bool in_step(const analysis *a, const fl_trace_event *event)
{
    size_t low = 0, high = a->n_spans;
    step_span key = {event->rank, event->e.entered_ns, 0};
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (by_span(&a->spans[middle], &key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low > 0 && a->spans[low - 1].rank == event->rank &&
           event->e.left_ns <= a->spans[low - 1].left_ns;
}

static bool is_stage_work(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_FORWARD || kind == FL_FLIGHT_BACKWARD || kind == FL_FLIGHT_LOSS;
}

/* ---- where time went ---- */

static void add_times(analysis *a, fl_trace_worker *w, const fl_trace_event *event, bool training)
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
        int64_t idle_ns = came_ns(a, event) - e->entered_ns;
        w->idle_ns += idle_ns;
        w->communication_ns += took_ns - idle_ns;
    } else if (category == FL_FLIGHT_IS_WAIT) {
        w->idle_ns += took_ns;
    }
    if (training && is_stage_work(e->kind)) {
        w->own_us += (double)took_ns * 1e-3;
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
        if (event->role == FL_FLIGHT_MAIN) {
            add_times(a, &a->report->worker[rank], event, in_step(a, event));
            first_ns[rank] = smaller(first_ns[rank], event->e.entered_ns);
            last_ns[rank] = larger(last_ns[rank], event->e.left_ns);
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

static bool is_computing(const fl_trace_event *event)
{
    fl_flight_category category = fl_flight_category_of(event->e.kind);
    return event->role == FL_FLIGHT_MAIN &&
           (category == FL_FLIGHT_IS_COMPUTE || category == FL_FLIGHT_IS_OPTIMIZER);
}

static int by_entered(const void *left, const void *right)
{
    const fl_trace_event *a = left, *b = right;
    int order = compare(a->rank, b->rank);
    return order != 0 ? order : compare(a->e.entered_ns, b->e.entered_ns);
}

/* `own` [n] are one worker's operations by time. Computing is one thread's, and transfers are
 * another's, so within each they do not overlap. */
static void overlap_of(fl_trace_worker *w, const fl_trace_event *own, size_t n)
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
            int64_t begin = larger(own[j].e.entered_ns, t->entered_ns);
            int64_t end = smaller(own[j].e.left_ns, t->left_ns);
            w->hidden_ns += is_computing(&own[j]) && end > begin ? end - begin : 0;
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
        if (event->e.kind == FL_FLIGHT_REDUCE || is_computing(event)) {
            list[n++] = *event;
        }
    }
    qsort(list, n, sizeof *list, by_entered);
    for (size_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && list[end].rank == list[first].rank; end++) {
        }
        overlap_of(&a->report->worker[list[first].rank], list + first, end - first);
    }
    fl_free(list);
    return FL_OK;
}

/* ---- bubbles ---- */

static int plan_index(const fl_trace_about *about, uint32_t generation)
{
    for (int i = 0; i < about->n_plans; i++) {
        if (about->plan[i].generation == generation) {
            return i;
        }
    }
    return -1;
}

static int by_window(const void *left, const void *right)
{
    const window *a = left, *b = right;
    int order = compare(a->generation, b->generation);
    order = order != 0 ? order : compare(a->step, b->step);
    return order != 0 ? order : compare(a->replica, b->replica);
}

static void add_cost(const analysis *a, const fl_trace_event *event, const fl_plan *plan,
                     stage_cost *cost)
{
    const fl_flight_entry *e = &event->e;
    double took_ns = (double)(e->left_ns - e->entered_ns);
    int stage = fl_plan_place(plan, event->rank).stage;
    switch (e->kind) {
    case FL_FLIGHT_FORWARD:
        cost[stage].fwd_ns += took_ns;
        cost[stage].n_forward += e->item == plan->first[stage];
        break;
    case FL_FLIGHT_BACKWARD:
    case FL_FLIGHT_LOSS:
        cost[stage].bwd_ns += took_ns;
        break;
    case FL_FLIGHT_RECEIVE:
        cost[stage - 1].link_ns += (double)(e->left_ns - came_ns(a, event));
        cost[stage - 1].n_link++;
        break;
    default:
        break;
    }
}

/* Gather what the stages of pipelines did in training steps; one window an operation first. */
static void list_windows(analysis *a)
{
    const fl_trace_about *about = &a->trace->about;
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        int p = plan_index(about, event->e.generation);
        bool counts = is_stage_work(event->e.kind) || event->e.kind == FL_FLIGHT_RECEIVE;
        if (p < 0 || !counts || about->plan[p].K == 1 || !in_step(a, event)) {
            continue;
        }
        const fl_plan *plan = &about->plan[p];
        fl_place place = fl_plan_place(plan, event->rank);
        if (!place.active || (event->e.kind == FL_FLIGHT_RECEIVE && place.stage == 0)) {
            continue;
        }
        add_cost(a, event, plan, &a->costs[p * FL_MAX_STAGES]);
        if (is_stage_work(event->e.kind)) {
            int64_t from = event->e.entered_ns, to = event->e.left_ns;
            a->windows[a->n_windows++] =
                (window){event->e.generation, event->e.step, place.replica, from, to, to - from};
        }
    }
    qsort(a->windows, a->n_windows, sizeof *a->windows, by_window);
}

/* What the clock makes of a plan when every micro-batch takes what it took on average. */
static double clock_bubble(const fl_plan *plan, const stage_cost *cost)
{
    double fwd[FL_MAX_STAGES], bwd[FL_MAX_STAGES], link[FL_MAX_STAGES], busy = 0.0;
    for (int k = 0; k < plan->K; k++) {
        double n = cost[k].n_forward > 0 ? (double)cost[k].n_forward : 1.0;
        fwd[k] = cost[k].fwd_ns * 1e-3 / n;
        bwd[k] = cost[k].bwd_ns * 1e-3 / n;
        link[k] = cost[k].n_link > 0 ? cost[k].link_ns * 1e-3 / (double)cost[k].n_link : 0.0;
        busy += plan->M * (fwd[k] + bwd[k]);
    }
    double span = fl_clock_play(plan->schedule, plan->K, plan->M, fwd, bwd, link, NULL);
    return span > 0.0 ? 1.0 - busy / (plan->K * span) : 0.0;
}

static void find_bubbles(analysis *a)
{
    const fl_trace_about *about = &a->trace->about;
    double bubble = 0.0, expected = 0.0, of_plan[FL_TRACE_PLANS] = {0};
    int n = 0;
    list_windows(a);
    for (int p = 0; p < about->n_plans; p++) {
        of_plan[p] = clock_bubble(&about->plan[p], &a->costs[p * FL_MAX_STAGES]);
    }
    for (size_t i = 0, next; i < a->n_windows; i = next) {
        window w = a->windows[i];
        for (next = i + 1; next < a->n_windows && by_window(&w, &a->windows[next]) == 0; next++) {
            w.first_ns = smaller(w.first_ns, a->windows[next].first_ns);
            w.last_ns = larger(w.last_ns, a->windows[next].last_ns);
            w.busy_ns += a->windows[next].busy_ns;
        }
        int p = plan_index(about, w.generation);
        const fl_plan *plan = &about->plan[p];
        double all_ns = (double)(w.last_ns - w.first_ns) * plan->K;
        if (all_ns > 0.0) {
            bubble += 1.0 - (double)w.busy_ns / all_ns;
            expected += of_plan[p];
            n++;
        }
    }
    a->report->n_pipelines = n;
    a->report->bubble = n > 0 ? bubble / n : NAN;
    a->report->clock_bubble = n > 0 ? expected / n : NAN;
}

/* ---- long operations ---- */

static int by_total(const void *left, const void *right)
{
    const fl_trace_top *a = left, *b = right;
    int order = -compare(a->total_ns, b->total_ns);
    order = order != 0 ? order : compare((int64_t)a->kind, (int64_t)b->kind);
    return order != 0 ? order : compare(a->item, b->item);
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
        if (fl_flight_category_of(e->kind) != FL_FLIGHT_IS_PHASE) {
            fl_trace_top *top = &all[(size_t)e->kind * ITEMS + (size_t)(item + 1)];
            top->kind = e->kind;
            top->item = item;
            top->n++;
            top->total_ns += e->left_ns - e->entered_ns;
            top->longest_ns = larger(top->longest_ns, e->left_ns - e->entered_ns);
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

/* What the layers' passes that were run should take: a frozen layer has no backward, and one whose
 * output is cached no forward. */
static void expect(analysis *a)
{
    const fl_trace_about *about = &a->trace->about;
    for (size_t i = 0; i < a->trace->n; i++) {
        const fl_trace_event *event = &a->trace->events[i];
        const fl_flight_entry *e = &event->e;
        const fl_plan *plan = fl_trace_plan(about, e->generation);
        bool layered = e->kind == FL_FLIGHT_FORWARD || e->kind == FL_FLIGHT_BACKWARD;
        if (plan == NULL || !layered || e->item < 0 || e->item >= about->n_layers ||
            !in_step(a, event)) {
            continue;
        }
        const fl_trace_layer *layer = &about->layer[e->item];
        double samples = (double)about->batch / plan->R / plan->M;
        double sample_us = e->kind == FL_FLIGHT_FORWARD ? layer->fwd_us : layer->bwd_us;
        a->report->worker[event->rank].expected_us += samples * sample_us + layer->call_us / 2.0;
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

/* ---- all of it ---- */

static fl_status open_tables(analysis *a)
{
    size_t n = a->trace->n, n_plans = (size_t)a->trace->about.n_plans;
    FL_TRY(fl_alloc_array((size_t)a->report->n_workers, sizeof *a->report->worker,
                          (void **)&a->report->worker));
    FL_TRY(fl_alloc_array(n + 1, sizeof *a->arrivals, (void **)&a->arrivals));
    FL_TRY(fl_alloc_array(n + 1, sizeof *a->spans, (void **)&a->spans));
    FL_TRY(fl_alloc_array(n + 1, sizeof *a->windows, (void **)&a->windows));
    return fl_alloc_array(n_plans * FL_MAX_STAGES + 1, sizeof *a->costs, (void **)&a->costs);
}

static fl_status analyse(analysis *a)
{
    FL_TRY(open_tables(a));
    list_arrivals(a);
    list_spans(a);
    sum_times(a);
    FL_TRY(find_overlap(a));
    find_bubbles(a);
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
    fl_free(a.arrivals);
    fl_free(a.spans);
    fl_free(a.windows);
    fl_free(a.costs);
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
