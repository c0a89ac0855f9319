#include "support/runs/traces.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

fl_trace_data *read_trace(const char *path)
{
    fl_trace_data *trace = calloc(1, sizeof *trace);
    assert_non_null(trace);
    if (fl_trace_read(path, trace) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    return trace;
}

void drop_trace(fl_trace_data *trace)
{
    fl_trace_fini(trace);
    free(trace);
}

int count_operations(const fl_trace_data *trace, int rank, fl_flight_kind kind)
{
    int n = 0;
    for (size_t i = 0; i < trace->n; i++) {
        n += trace->events[i].rank == rank && trace->events[i].e.kind == kind;
    }
    return n;
}
