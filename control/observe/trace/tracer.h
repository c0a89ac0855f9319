/* Traces some steps of a run while it trains. */
#ifndef FL_CONTROL_OBSERVE_TRACE_TRACER_H
#define FL_CONTROL_OBSERVE_TRACE_TRACER_H

#include "control/agent/client/agent_client.h"
#include "control/events/log/event_log.h"
#include "control/observe/trace/trace.h"
#include "control/state/run_facts.h"

typedef struct fl_tracer fl_tracer;

/* run, log  borrowed while the tracer exists */
fl_status fl_tracer_create(const fl_run_facts *run, fl_event_log *log,
                           fl_tracer **out) FL_MUST_CHECK;
void fl_tracer_destroy(fl_tracer **tracer);

/* Through which workers of other hosts are reached; borrowed until fl_tracer_destroy, or NULL. */
void fl_tracer_reach(fl_tracer *tracer, fl_agent *agent);

/* As the run begins or continues: trace the steps that its job asks for, without those that are
 * behind it. Warns if the run has none of them. */
void fl_tracer_begin(fl_tracer *tracer);

/* Trace n_steps steps (1 .. FL_TRACE_STEPS_MAX) from *first_step on; -1: as soon as possible, then
 * *first_step is set. Fewer steps if the run ends before: the file's name and the event name those
 * that it holds. The event trace.written or trace.failed reports the outcome. Returns FL_EINVAL
 * when a trace is in progress already, or when the step is over or beyond the end of the run. */
fl_status fl_tracer_request(fl_tracer *tracer, int64_t *first_step, int64_t n_steps) FL_MUST_CHECK;

/* The last step of the trace requested last, and its file, if the run does all of its steps: text
 * [size_bytes] out. */
int64_t fl_tracer_last_step(const fl_tracer *tracer);
void fl_tracer_file_name(const fl_tracer *tracer, char *text, size_t size_bytes);

/* Drain the recorders, and write the trace when it is complete. Called in every turn of the loop;
 * turns must be at most fl_tracer_turn_ms apart. When the run is over, it waits for a second at
 * most until the agents of other hosts have answered. */
void fl_tracer_watch(fl_tracer *tracer);
int fl_tracer_turn_ms(const fl_tracer *tracer, int turn_ms);

#endif
