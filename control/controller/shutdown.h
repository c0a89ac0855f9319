/* The states of a run, and its end: after a lost worker (losses.h), after a stop request
 * (stop_request.h), or because it is complete. */
#ifndef FL_CONTROL_CONTROLLER_SHUTDOWN_H
#define FL_CONTROL_CONTROLLER_SHUTDOWN_H

#include "control/controller/watch.h"
#include "control/observe/flight_dump.h"
#include "control/state/lasting.h"
#include "control/state/phase.h"

typedef struct fl_controller fl_controller;

/* The worker that was lost last among those that the run continues without. */
typedef struct fl_survived_loss {
    int rank; /* -1: none */
    fl_loss_kind kind;
    int64_t lost_us;
    bool reported; /* the event log has the loss and says that the run goes on; before, a vote may
                  be pending */
    char text[FL_WIRE_TEXT_MAX + 256]; /* how it was lost */
} fl_survived_loss;

typedef struct fl_shutdown {
    fl_phase phase;
    fl_watch_limits limits;
    int64_t looked_us;   /* when the loop last ran */
    int64_t alive_us;    /* when the controller last sent its sign of life to the workers */
    int64_t deadline_us; /* FINISHING and ENDING: when the remaining workers receive SIGKILL */
    int64_t moved_sum, moved_us; /* sum of the workers' steps, and when it last changed */
    int64_t stall_reported_us;   /* when the log last mentioned that no step finishes */
    fl_survived_loss spared;
    bool cut_off;         /* workers were killed and may have taken unsent reports with them */
    int64_t n_unreported; /* steps whose reports were lost with the leader that had made them */
    fl_loss_kind loss;    /* the loss that ends the run */
    int64_t lost_us;
    fl_status status;                 /* with which the run ends */
    char waits[FL_FLIGHT_DUMP_BYTES]; /* which workers waited for which when a worker was lost */
    char no_recovery[256]; /* why the run cannot go on without the lost worker; "": it was not asked
                            */
    fl_stop_wish wish;     /* the first request to stop */
    int64_t asked_us;      /* when this controller began to stop for it; 0: it did not */
    char message[4096];    /* why the run ended */
} fl_shutdown;

void fl_shutdown_init(fl_shutdown *shutdown, const fl_job *job);

/* The controller's loop starts: silence counts from now on. */
void fl_shutdown_begin(fl_shutdown *shutdown, int64_t now_us);

/* A step was not finite: log it. If the workers end the run because of it, keep the reason. */
void fl_shutdown_nonfinite(fl_controller *controller, const fl_nonfinite_report *report);

/* There was no memory for a report of worker `rank` (fl_errmsg); `kind` names it. The run ends as
 * after a stop, with FL_EFAILED. */
void fl_shutdown_report_lost(fl_controller *controller, int rank, const char *kind);

/* The lines of a pass could not be kept or written (fl_errmsg): it ends, with FL_EFAILED; with
 * FL_ESTOPPED if their reader has left. */
void fl_shutdown_pass_failed(fl_controller *controller, fl_status status);

/* Detect lost workers and passed deadlines, and enter the next state when its condition holds. */
void fl_shutdown_watch(fl_controller *controller, int64_t now_us);

/* All workers have left: determine the result of the run. */
void fl_shutdown_conclude(fl_controller *controller);

#endif
