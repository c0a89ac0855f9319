/* A trace of some steps of a run, while it trains. */
#ifndef FL_CONTROL_OBSERVE_TRACER_H
#define FL_CONTROL_OBSERVE_TRACER_H

#include "control/events/event_log.h"
#include "control/observe/trace.h"
#include "control/state/run_facts.h"

typedef struct fl_tracer fl_tracer;

/* run, log  borrowed, for as long as the tracer lives */
fl_status fl_tracer_create(const fl_run_facts *run, fl_event_log *log,
                           fl_tracer **out) FL_MUST_CHECK;
void fl_tracer_destroy(fl_tracer **tracer);

/* Trace n_steps steps (1 .. FL_TRACE_STEPS_MAX) from *first_step on; -1: as soon as possible, and
 * out. Fewer if the run ends before. The event trace.written or trace.failed reports the outcome.
 * Returns FL_EINVAL when a trace is under way already, or the step is behind or beyond the run. */
fl_status fl_tracer_request(fl_tracer *tracer, int64_t *first_step, int64_t n_steps) FL_MUST_CHECK;

/* Where the trace that was requested last is written: text [size_bytes] out. */
void fl_tracer_file_name(const fl_tracer *tracer, char *text, size_t size_bytes);

/* Drain the recorders, and write the trace when it is complete. Called in every turn of the loop,
 * which must come round after fl_tracer_turn_ms at the latest. */
void fl_tracer_watch(fl_tracer *tracer);
int fl_tracer_turn_ms(const fl_tracer *tracer, int turn_ms);

#endif
