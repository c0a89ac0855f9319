/* Look-ups for the analysis of a trace: which workers had arrived by when, and which operations are
 * part of a training step. All workers of a host share one clock, so what one worker waits for can
 * be looked up in the operations of another:
 *
 *     receive   the peer's send of the same message was entered
 *     sum       the last member entered it
 *     all-reduce (the training thread's wait)   the last owner's transfer was entered */
#ifndef FL_CONTROL_OBSERVE_TRACE_TRACE_INDEX_H
#define FL_CONTROL_OBSERVE_TRACE_TRACE_INDEX_H

#include "control/observe/trace/trace.h"

typedef struct fl_trace_arrival fl_trace_arrival;
typedef struct fl_trace_span fl_trace_span;

typedef struct fl_trace_index {
    fl_trace_arrival *arrivals; /* operations that others may wait for, in order */
    size_t n_arrivals;
    fl_trace_span *spans; /* the workers' training steps, in order */
    size_t n_spans;
    bool has_device[FL_MAX_WORKERS]; /* the trace has what the worker's device computed */
} fl_trace_index;

/* FL_ENOMEM: it is then empty. */
fl_status fl_trace_index_init(fl_trace_index *index, const fl_trace_data *trace) FL_MUST_CHECK;
void fl_trace_index_fini(fl_trace_index *index);

/* When the last worker arrived that `event` waits for, if before its end; the start of `event` if
 * it waits for no worker, or for an unknown one. */
int64_t fl_trace_came_ns(const fl_trace_index *index, const fl_trace_event *event);

/* Whether it is part of a training step: an evaluation, too, has forward passes. */
bool fl_trace_in_step(const fl_trace_index *index, const fl_trace_event *event);

/* Whether it computed: an operation of the device where the trace has these, because the main
 * thread's then only tell when work was queued; else one of the main thread. */
bool fl_trace_computes(const fl_trace_index *index, const fl_trace_event *event);

/* ---- for the files of the analysis ---- */

static inline int fl__compare(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static inline int64_t fl__larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t fl__smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- trace_bubbles.c ---- */

/* Fill n_pipelines, bubble and schedule_bubble of the report. FL_ENOMEM. */
fl_status fl_trace_find_bubbles(const fl_trace_data *trace, const fl_trace_index *index,
                                fl_trace_report *report) FL_MUST_CHECK;

/* Whether it is a stage's work on a micro-batch. */
static inline bool fl__is_stage_work(fl_flight_kind kind)
{
    return kind == FL_FLIGHT_FORWARD || kind == FL_FLIGHT_BACKWARD || kind == FL_FLIGHT_LOSS;
}

#endif
