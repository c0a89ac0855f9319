/* The state of a run, from its start to its end. */
#ifndef FL_CONTROL_STATE_PHASE_H
#define FL_CONTROL_STATE_PHASE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum fl_phase_state {
    FL_CONTROLLER_STARTING,  /* until every worker is ready */
    FL_CONTROLLER_RUNNING,   /* until every worker is done */
    FL_CONTROLLER_FINISHING, /* until every worker has left */
    FL_CONTROLLER_ENDING,    /* a worker was lost: ABORT is sent, SIGKILL follows */
    FL_CONTROLLER_OVER,      /* every worker has exited */
} fl_phase_state;

/* Where a run goes back to whose lost worker had what no other one has. */
typedef struct fl_return_choice {
    bool returns;
    bool to_snapshot;  /* in memory; false: a checkpoint, or the first step */
    int64_t step;      /* finished steps there */
    char why_not[256]; /* returns is false */
} fl_return_choice;

/* Choose that. Changes nothing.
 * fails_again  the lost worker reported a failure of its own
 * recorded     the files of the run have the steps before that one; INT64_MAX: all of them */
typedef void fl_return_finder(void *context, bool fails_again, int64_t recorded,
                              fl_return_choice *out);

/* Only shutdown.c, losses.c and stop_request.c in control/controller/ write it. */
typedef struct fl_phase {
    fl_phase_state state;
    int n_stops;           /* how often the user asked the run to stop */
    int lost;              /* rank of the worker whose loss ends these processes; -1: none */
    fl_return_choice back; /* ENDING and OVER, after a loss: where another controller begins */
} fl_phase;

#endif
