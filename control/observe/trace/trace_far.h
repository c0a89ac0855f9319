/* The operations of workers on other hosts, for a trace: asked for from their agents, and put on
 * the head's time line. */
#ifndef FL_CONTROL_OBSERVE_TRACE_TRACE_FAR_H
#define FL_CONTROL_OBSERVE_TRACE_TRACE_FAR_H

#include "control/agent/measure/flight_copy.h"
#include "control/observe/trace/trace.h"
#include "control/state/run_facts.h"

typedef struct fl_trace_far fl_trace_far;

/* Through which the agents are reached: fl_agent_ask_records and fl_agent_take_records. */
typedef struct fl_trace_source {
    bool (*ask)(void *context, int rank, const fl_records_request *request);
    const fl_flight_records *(*take)(void *context, int rank);
    void *context;
} fl_trace_source;

/* run  borrowed while it exists; of a run on one host, nothing below does anything */
fl_status fl_trace_far_create(const fl_run_facts *run, fl_trace_far **out) FL_MUST_CHECK;
void fl_trace_far_destroy(fl_trace_far **far);

/* A trace begins. */
void fl_trace_far_begin(fl_trace_far *far);

/* Take the answers that have come into the trace, and ask on. Never waits.
 * over     the last of its steps is over, as far as the controller knows
 * Returns  FL_ENOMEM, FL_EBUDGET as fl_trace_add */
fl_status fl_trace_far_turn(fl_trace_far *far, const fl_trace_source *source, fl_trace_data *trace,
                            bool over, int64_t now_us) FL_MUST_CHECK;

/* Whether all that was done until the steps were over has come, or has not come in time. */
bool fl_trace_far_is_done(fl_trace_far *far, int64_t now_us);

/* Do not wait any longer: hosts that have not answered are missing. */
void fl_trace_far_give_up(fl_trace_far *far, const char *why);

/* Whether the device of some worker has a track of its own. */
bool fl_trace_far_has_devices(const fl_trace_far *far);

/* Once it is done: put the operations on the head's time line, drop those of hosts that are
 * missing, and describe the hosts. */
fl_status fl_trace_far_finish(fl_trace_far *far, fl_trace_data *trace) FL_MUST_CHECK;

#endif
