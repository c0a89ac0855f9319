/* A trace: every operation of every worker over some steps, as the flight recorders hold them.
 *
 *     trace.c          the operations of one trace, in memory
 *     tracer.c         requests a trace while a run trains, drains the recorders, writes the file
 *     trace_far.c      the same of workers on other hosts, and their clocks
 *     trace_file.c     Chrome JSON for Perfetto: written and read
 *     trace_report.c   the analysis: shares, overlap, long operations, stragglers
 *     trace_bubbles.c  the pipelines' bubble
 *     trace_index.c    look-ups for both: arrivals, operations of training steps */
#ifndef FL_CONTROL_OBSERVE_TRACE_TRACE_H
#define FL_CONTROL_OBSERVE_TRACE_TRACE_H

#include "device/flight/flight.h"

#include <frostline/plan.h>

#include <stdio.h>

enum {
    FL_TRACE_STEPS_MAX = 1000,
    FL_TRACE_EVENTS_MAX = 1 << 21,
    FL_TRACE_PLANS = 8, /* the most generations in one trace */
    FL_TRACE_NAME_MAX = 128,
    FL_TRACE_HOST_MAX = 64,
};

/* The longest operation that a file may have. */
#define FL_TRACE_DURATION_MAX_NS INT64_C(3600000000000)

/* One finished operation. */
typedef struct fl_trace_event {
    int32_t rank;
    int32_t role; /* fl_flight_role of the thread */
    fl_flight_entry e;
} fl_trace_event;

/* The expected costs of one layer: microseconds a sample, forward and backward, and of a call. */
typedef struct fl_trace_layer {
    char kind[32];
    double fwd_us, bwd_us, call_us;
} fl_trace_layer;

/* The run to which the operations belong. */
typedef struct fl_trace_about {
    char job[FL_TRACE_NAME_MAX];
    int n_workers;
    int64_t first_step, n_steps;
    int64_t batch; /* samples of a step */
    int64_t lost;  /* operations that were overwritten before they were read */
    int n_layers;  /* 0: the layers are unknown */
    fl_trace_layer layer[FL_MAX_LAYERS];
    int n_plans;
    fl_plan plan[FL_TRACE_PLANS]; /* by rising generation */
} fl_trace_about;

/* A host of a run on several hosts, and its clock, by which times were put right. */
typedef struct fl_trace_host {
    char name[FL_TRACE_HOST_MAX];
    int first, n;                /* its workers */
    int64_t offset_ns, error_ns; /* against the head's clock; 0 of the head */
    int64_t drift_ppb;
    char missing[FL_TRACE_NAME_MAX]; /* why the trace has none of its operations; "": it has them */
} fl_trace_host;

typedef struct fl_trace_data {
    fl_trace_about about;
    fl_trace_host *hosts; /* [n_hosts], the head first; NULL: the run has one host */
    int n_hosts;
    fl_trace_event *events; /* [n] */
    size_t n, capacity;
} fl_trace_data;

/* A zeroed one is empty. FL_ENOMEM, or FL_EBUDGET beyond FL_TRACE_EVENTS_MAX: then it is unchanged.
 */
fl_status fl_trace_add(fl_trace_data *trace, const fl_trace_event *event) FL_MUST_CHECK;
void fl_trace_fini(fl_trace_data *trace);

/* Once all operations are there: first_step and n_steps become the steps that some worker has
 * finished; operations of other steps are dropped. n_steps is 0 if there is no such step. */
void fl_trace_keep_finished(fl_trace_data *trace);

/* Space for this many hosts, cleared, in place of those before. FL_ENOMEM. */
fl_status fl_trace_make_hosts(fl_trace_data *trace, int n) FL_MUST_CHECK;

/* The host of a worker; NULL: the trace knows of none. */
const fl_trace_host *fl_trace_host_of(const fl_trace_data *trace, int rank);

/* On whose track of the trace an operation belongs that a thread of this role has recorded. */
fl_flight_role fl_trace_role(fl_flight_kind kind, fl_flight_role role);

/* The plan of a generation; NULL if the trace has none. */
const fl_plan *fl_trace_plan(const fl_trace_about *about, uint32_t generation);

/* ---- trace_file.c ---- */

/* One JSON object with "traceEvents", times in microseconds from the first operation, a process a
 * worker and a thread a track; and "frostline", which fl_trace_read needs. FL_EIO, FL_ENOMEM. */
fl_status fl_trace_write(const fl_trace_data *trace, FILE *file) FL_MUST_CHECK;

/* Read a file of fl_trace_write. *trace is empty before; free it after a failure, too. FL_EIO;
 * FL_EFORMAT, with what is wrong, for any other content. */
fl_status fl_trace_read(const char *path, fl_trace_data *trace) FL_MUST_CHECK;

/* ---- trace_report.c ---- */

enum { FL_TRACE_TOP = 12 };

/* The parts of one worker's time, nanoseconds, from the start of its main thread's first operation
 * to the end of its last. Idle: waiting until the peer has arrived. Communication: moving the bytes
 * once both are there. */
typedef struct fl_trace_worker {
    int64_t wall_ns;
    int64_t in_ns[FL_FLIGHT_N_CATEGORIES]; /* OTHER: outside any operation; PHASE: 0 */
    int64_t idle_ns, communication_ns;
    int64_t reduce_ns, hidden_ns; /* all-reduce transfers; hidden: while computing */
    bool has_device;              /* the trace has what its device computed */
    int64_t device_ns;            /* by the device's events; evaluations, too */
    double own_us, expected_us;   /* computing in training steps, measured and expected */
    double slowness; /* own / expected, divided by the median of the others' ratios; 0: unknown */
} fl_trace_worker;

typedef struct fl_trace_top {
    fl_flight_kind kind;
    int item; /* layer; -1: none */
    int64_t n, total_ns, longest_ns;
} fl_trace_top;

typedef struct fl_trace_report {
    int n_workers;
    fl_trace_worker *worker;        /* [n_workers] */
    int n_pipelines;                /* replicas' steps over which the bubble was measured */
    double bubble, schedule_bubble; /* shares of the stages' time; NAN without pipelines */
    int n_top;
    fl_trace_top top[FL_TRACE_TOP]; /* by total time, the longest first */
} fl_trace_report;

/* Threads: pure; any. FL_ENOMEM; FL_EINVAL for a trace without operations. */
fl_status fl_trace_analyse(const fl_trace_data *trace, fl_trace_report *report) FL_MUST_CHECK;
void fl_trace_report_fini(fl_trace_report *report);

#endif
