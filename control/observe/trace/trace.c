#include "control/observe/trace/trace.h"

#include "device/system/alloc.h"

#include <frostline/status.h>

fl_status fl_trace_add(fl_trace_data *trace, const fl_trace_event *event)
{
    if (trace->n == FL_TRACE_EVENTS_MAX) {
        return fl_fail(FL_EBUDGET, "a trace of more than %d operations", FL_TRACE_EVENTS_MAX);
    }
    void *events = trace->events;
    FL_TRY(fl_alloc_room(&events, trace->n, 1, sizeof *event, &trace->capacity));
    trace->events = (fl_trace_event *)events;
    trace->events[trace->n++] = *event;
    return FL_OK;
}

void fl_trace_keep_finished(fl_trace_data *trace)
{
    int64_t first = INT64_MAX, end = INT64_MIN;
    size_t n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        const fl_flight_entry *e = &trace->events[i].e;
        if (e->kind == FL_FLIGHT_REPORT) { /* a step that fails ends, too, but is not reported */
            first = e->step < first ? e->step : first;
            end = e->step >= end ? e->step + 1 : end;
        }
    }
    for (size_t i = 0; i < trace->n; i++) {
        int64_t step = trace->events[i].e.step;
        if (step >= first && step < end) {
            trace->events[n++] = trace->events[i];
        }
    }
    trace->n = n;
    trace->about.first_step = n > 0 ? first : trace->about.first_step;
    trace->about.n_steps = n > 0 ? end - first : 0;
}

void fl_trace_fini(fl_trace_data *trace)
{
    fl_free(trace->events);
    fl_free(trace->hosts);
    trace->hosts = NULL;
    trace->n_hosts = 0;
    trace->events = NULL;
    trace->n = trace->capacity = 0;
}

const fl_plan *fl_trace_plan(const fl_trace_about *about, uint32_t generation)
{
    for (int i = 0; i < about->n_plans; i++) {
        if (about->plan[i].generation == generation) {
            return &about->plan[i];
        }
    }
    return NULL;
}

fl_status fl_trace_make_hosts(fl_trace_data *trace, int n)
{
    fl_free(trace->hosts);
    trace->hosts = NULL;
    trace->n_hosts = 0;
    FL_TRY(fl_alloc_array((size_t)n, sizeof *trace->hosts, (void **)&trace->hosts));
    trace->n_hosts = n;
    return FL_OK;
}

const fl_trace_host *fl_trace_host_of(const fl_trace_data *trace, int rank)
{
    for (int i = 0; i < trace->n_hosts; i++) {
        const fl_trace_host *host = &trace->hosts[i];
        if (rank >= host->first && rank < host->first + host->n) {
            return host;
        }
    }
    return NULL;
}

fl_flight_role fl_trace_role(fl_flight_kind kind, fl_flight_role role)
{
    return kind == FL_FLIGHT_PREPARE  ? FL_FLIGHT_PREPARER
           : kind == FL_FLIGHT_REDUCE ? FL_FLIGHT_REDUCER
                                      : role;
}
