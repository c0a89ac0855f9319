#include "control/observe/trace/trace_index.h"

#include "device/system/alloc.h"

#include <stdlib.h>

/* For a collective, from and to are -1. */
struct fl_trace_arrival {
    fl_flight_kind kind;
    uint32_t generation;
    int64_t step;
    int micro_batch, item, from, to;
    int64_t entered_ns;
};

struct fl_trace_span {
    int rank;
    int64_t entered_ns, left_ns;
};

typedef fl_trace_arrival arrival;
typedef fl_trace_span span;

/* How many elements of a sorted list [n] are not after the key. */
static size_t count_until(const void *list, size_t n, size_t size_bytes, const void *key,
                          int (*order)(const void *, const void *))
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order((const char *)list + middle * size_bytes, key) <= 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* ---- arrivals ---- */

static int same_arrival(const arrival *a, const arrival *b)
{
    int order = fl__compare((int64_t)a->kind, (int64_t)b->kind);
    order = order != 0 ? order : fl__compare(a->generation, b->generation);
    order = order != 0 ? order : fl__compare(a->step, b->step);
    order = order != 0 ? order : fl__compare(a->micro_batch, b->micro_batch);
    order = order != 0 ? order : fl__compare(a->item, b->item);
    order = order != 0 ? order : fl__compare(a->from, b->from);
    return order != 0 ? order : fl__compare(a->to, b->to);
}

static int by_arrival(const void *left, const void *right)
{
    const arrival *a = left, *b = right;
    int order = same_arrival(a, b);
    return order != 0 ? order : fl__compare(a->entered_ns, b->entered_ns);
}

/* The key under which others wait for `event`; false if no worker waits for such an event. */
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

/* The key that `event` waits for; false if it waits for nothing that a trace holds. */
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

static void list_arrivals(fl_trace_index *index, const fl_trace_data *trace)
{
    for (size_t i = 0; i < trace->n; i++) {
        index->n_arrivals += offers(&trace->events[i], &index->arrivals[index->n_arrivals]);
    }
    qsort(index->arrivals, index->n_arrivals, sizeof *index->arrivals, by_arrival);
}

int64_t fl_trace_came_ns(const fl_trace_index *index, const fl_trace_event *event)
{
    arrival key;
    if (!awaits(event, &key)) {
        return event->e.entered_ns;
    }
    key.entered_ns = event->e.left_ns;
    size_t n = count_until(index->arrivals, index->n_arrivals, sizeof key, &key, by_arrival);
    const arrival *last = n > 0 ? &index->arrivals[n - 1] : NULL;
    bool known = last != NULL && same_arrival(last, &key) == 0;
    return fl__larger(known ? last->entered_ns : event->e.entered_ns, event->e.entered_ns);
}

/* ---- training steps ---- */

static int by_span(const void *left, const void *right)
{
    const span *a = left, *b = right;
    int order = fl__compare(a->rank, b->rank);
    return order != 0 ? order : fl__compare(a->entered_ns, b->entered_ns);
}

static void list_spans(fl_trace_index *index, const fl_trace_data *trace)
{
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        if (event->e.kind == FL_FLIGHT_STEP) {
            index->spans[index->n_spans++] =
                (span){event->rank, event->e.entered_ns, event->e.left_ns};
        }
    }
    qsort(index->spans, index->n_spans, sizeof *index->spans, by_span);
}

bool fl_trace_in_step(const fl_trace_index *index, const fl_trace_event *event)
{
    span key = {event->rank, event->e.entered_ns, 0};
    size_t n = count_until(index->spans, index->n_spans, sizeof key, &key, by_span);
    return n > 0 && index->spans[n - 1].rank == event->rank &&
           event->e.left_ns <= index->spans[n - 1].left_ns;
}

bool fl_trace_computes(const fl_trace_index *index, const fl_trace_event *event)
{
    fl_flight_category category = fl_flight_category_of(event->e.kind);
    bool on_device = index->has_device[event->rank];
    return event->role == (on_device ? FL_FLIGHT_DEVICE : FL_FLIGHT_MAIN) &&
           (category == FL_FLIGHT_IS_COMPUTE || category == FL_FLIGHT_IS_OPTIMIZER);
}

static void find_devices(fl_trace_index *index, const fl_trace_data *trace)
{
    for (size_t i = 0; i < trace->n; i++) {
        const fl_trace_event *event = &trace->events[i];
        index->has_device[event->rank] =
            index->has_device[event->rank] || event->role == FL_FLIGHT_DEVICE;
    }
}

/* ---- the whole index ---- */

fl_status fl_trace_index_init(fl_trace_index *index, const fl_trace_data *trace)
{
    size_t room = trace->n + 1;
    *index = (fl_trace_index){.arrivals = NULL};
    FL_TRY(fl_alloc_array(room, sizeof *index->arrivals, (void **)&index->arrivals));
    fl_status status = fl_alloc_array(room, sizeof *index->spans, (void **)&index->spans);
    if (status != FL_OK) {
        fl_trace_index_fini(index);
        return status;
    }
    list_arrivals(index, trace);
    list_spans(index, trace);
    find_devices(index, trace);
    return FL_OK;
}

void fl_trace_index_fini(fl_trace_index *index)
{
    fl_free(index->arrivals);
    fl_free(index->spans);
    *index = (fl_trace_index){.arrivals = NULL};
}
