/* What is kept of a loss until the run goes on: see recovery.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_RECOVERY_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_RECOVERY_STATE_H

#include "control/controller/judge/watch.h"
#include "control/state/sums/recovery_sums.h"

typedef enum fl_recovery_state {
    FL_RECOVERY_NONE,
    FL_RECOVERY_COLLECTING, /* ② */
    FL_RECOVERY_MOVING,     /* ④ */
} fl_recovery_state;

typedef struct fl_recovery {
    fl_recovery_state state;
    uint32_t serial;                       /* of the last order to break */
    int64_t begun_us;                      /* ① of the first loss */
    int64_t fault_us;                      /* its moment, as far as that is known */
    int64_t trained_us;                    /* the last step was counted then, or the members began
                                              to run the plan after a loss; 0: neither */
    int64_t resolved_us;                   /* ③ */
    int64_t step;                          /* ③: finished steps */
    int rank;                              /* lost last; -1: none, only connections were */
    int suspect;                           /* rank -1: whom to name if the run cannot go on */
    fl_loss_kind kind;                     /* of that loss */
    int n_lost;                            /* since ① */
    const char *no_moments[FL_MAX_LAYERS]; /* frozen layers whose parked moments are lost, ... */
    int n_no_moments;                      /* ... and how many */
    int64_t idle_step;                     /* steps at the last break without a loss, */
    int n_idle;                        /* and how many of those in a row there were at that step */
    char text[FL_WIRE_TEXT_MAX + 256]; /* how it was lost */
    int first;                         /* the worker that was lost first since ①; -1: none was */
    char first_text[512];              /* how */
    fl_recovery_sums sums;
} fl_recovery;

#endif
