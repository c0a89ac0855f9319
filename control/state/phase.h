/* How far a run has come. */
#ifndef FL_CONTROL_STATE_PHASE_H
#define FL_CONTROL_STATE_PHASE_H

typedef enum fl_controller_state {
    FL_CONTROLLER_STARTING,  /* until every worker is ready */
    FL_CONTROLLER_RUNNING,   /* until every worker is done */
    FL_CONTROLLER_FINISHING, /* until every worker has left */
    FL_CONTROLLER_ENDING,    /* something was lost: ABORT is out, SIGKILL follows */
    FL_CONTROLLER_OVER,      /* nobody lives */
} fl_controller_state;

#endif
