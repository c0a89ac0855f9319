/* The state of a run, from its start to its end. */
#ifndef FL_CONTROL_STATE_PHASE_H
#define FL_CONTROL_STATE_PHASE_H

typedef enum fl_phase_state {
    FL_CONTROLLER_STARTING,  /* until every worker is ready */
    FL_CONTROLLER_RUNNING,   /* until every worker is done */
    FL_CONTROLLER_FINISHING, /* until every worker has left */
    FL_CONTROLLER_ENDING,    /* a worker was lost: ABORT is sent, SIGKILL follows */
    FL_CONTROLLER_OVER,      /* every worker has exited */
} fl_phase_state;

/* Only shutdown.c, losses.c and stop_request.c in control/controller/ write it. */
typedef struct fl_phase {
    fl_phase_state state;
    int n_stops; /* how often the user asked the run to stop */
    int lost;    /* rank of the worker whose loss ends the run; -1: none */
} fl_phase;

#endif
