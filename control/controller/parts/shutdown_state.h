/* How a run ends, as the controller knows it: see shutdown.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_SHUTDOWN_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_SHUTDOWN_STATE_H

#include "control/controller/judge/watch.h"
#include "control/observe/flight_dump.h"
#include "control/state/lasting.h"
#include "control/state/phase.h"

/* One rank: the loss of a worker that the run continues without, until it is started again. */
typedef struct fl_survived_loss {
    fl_loss_kind kind; /* FL_LOSS_NONE: no such loss */
    int64_t lost_us;
    int64_t step;  /* finished steps of the run then */
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

#endif
