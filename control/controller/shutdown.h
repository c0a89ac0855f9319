/* A lost worker, the wish to stop, and how a run is ended. */
#ifndef FL_CONTROL_CONTROLLER_SHUTDOWN_H
#define FL_CONTROL_CONTROLLER_SHUTDOWN_H

#include "control/controller/watch.h"
#include "control/observe/flight_dump.h"
#include "control/state/phase.h"

typedef struct fl_controller fl_controller;

/* The worker that was lost last and that the run goes on without. */
typedef struct fl_survived_loss {
    int rank; /* -1: none */
    fl_loss_kind kind;
    int64_t lost_us;
    bool told;                         /* that the run goes on; a vote may still be out */
    char text[FL_WIRE_TEXT_MAX + 256]; /* what became of it */
} fl_survived_loss;

typedef struct fl_shutdown {
    fl_phase phase;
    fl_watch_limits limits;
    int64_t looked_us;           /* when the loop last came round */
    int64_t alive_us;            /* when workers were last told that the controller lives */
    int64_t deadline_us;         /* of FINISHING and ENDING: then SIGKILL */
    int64_t moved_sum, moved_us; /* steps of all workers, and when that last changed */
    int64_t told_stall_us;       /* when a run that does not move was last mentioned */
    fl_survived_loss spared;
    int64_t n_unreported; /* steps that a worker reported to nobody before it was lost */
    fl_loss_kind loss;    /* that ends the run */
    int64_t lost_us;
    fl_status status;                 /* that the run ends with */
    char waits[FL_FLIGHT_DUMP_BYTES]; /* who waited for whom when a worker was lost */
    char message[4096];               /* why the run ended */
} fl_shutdown;

void fl_shutdown_init(fl_shutdown *shutdown, const fl_job *job);

/* The loop begins: from now on silence counts. */
void fl_shutdown_begin(fl_shutdown *shutdown, int64_t now_us);

/* Take what signals have come: exits of workers, the user's wish to stop. */
void fl_shutdown_signals(fl_controller *controller);

/* End the run after the step in flight, as a first Ctrl-C does; `who` asked for it. */
void fl_shutdown_stop(fl_controller *controller, const char *who);

/* A step was not finite: log it, and where the workers end the run for it, remember why. */
void fl_shutdown_nonfinite(fl_controller *controller, const fl_nonfinite_report *report);

/* Look for lost workers and passed deadlines, and go on to the next state when it is time. */
void fl_shutdown_watch(fl_controller *controller, int64_t now_us);

/* Write into message what was lost, from all that is known by now. */
void fl_shutdown_explain(fl_controller *controller);

/* All workers have left: what that makes of the run. */
void fl_shutdown_conclude(fl_controller *controller);

#endif
