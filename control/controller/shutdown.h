/* A lost worker, the wish to stop, and how a run is ended. */
#ifndef FL_CONTROL_CONTROLLER_SHUTDOWN_H
#define FL_CONTROL_CONTROLLER_SHUTDOWN_H

#include "control/state/worker.h"

typedef struct fl_controller fl_controller;

/* The worker that was lost last and that the run goes on without. */
typedef struct fl_survived_loss {
    int rank; /* -1: none */
    fl_loss_kind kind;
    int64_t lost_us;
    bool told;                         /* that the run goes on; a vote may still be out */
    char text[FL_WIRE_TEXT_MAX + 256]; /* what became of it */
} fl_survived_loss;

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

/* End the ledger and write what it proves into ledger_text. FL_EINTERNAL if an epoch was not used
 * once. */
fl_status fl_shutdown_prove(fl_controller *controller) FL_MUST_CHECK;

#endif
