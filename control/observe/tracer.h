/* A trace of some steps of a run that trains. */
#ifndef FL_CONTROL_OBSERVE_TRACER_H
#define FL_CONTROL_OBSERVE_TRACER_H

#include "control/observe/trace.h"

typedef struct fl_controller fl_controller;

typedef struct fl_tracer fl_tracer;

/* Trace n_steps steps (1 .. FL_TRACE_STEPS_MAX) from *first_step on; -1: as soon as possible, and
 * out. Fewer if the run ends before. The outcome is told by the event trace.written or
 * trace.failed. Returns FL_EINVAL when one is under way already, or the step is behind or beyond
 * the run. */
fl_status fl_trace_request(fl_controller *controller, int64_t *first_step,
                           int64_t n_steps) FL_MUST_CHECK;

/* Where the trace that was asked for last is written: text [size_bytes] out. */
void fl_trace_file_name(const fl_controller *controller, char *text, size_t size_bytes);

/* Drain the recorders, and write the trace when it is complete; called every turn of the loop,
 * which is to come round after turn_ms at the latest. */
void fl_trace_watch(fl_controller *controller);
int fl_trace_turn_ms(const fl_controller *controller, int turn_ms);
void fl_trace_close(fl_controller *controller);

#endif
