/* The trace files that runs have written. */
#ifndef FL_TESTS_SUPPORT_RUNS_TRACES_H
#define FL_TESTS_SUPPORT_RUNS_TRACES_H

#include "control/observe/trace/trace.h"

/* Read one, or fail. The caller drops it. */
fl_trace_data *read_trace(const char *path);
void drop_trace(fl_trace_data *trace);

/* Operations of one kind of one worker. */
int count_operations(const fl_trace_data *trace, int rank, fl_flight_kind kind);

#endif
