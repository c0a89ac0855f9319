/* What follows the loss of a worker that the run needs: the others go on.
 *
 *     a loss ① ──> BREAK to all ──> each reports where it stands ② ──(all have)──> resolve ③
 *     ③ the finished steps and the running plan ──> the best plan for the others
 *       ──> REGROUP to all ④ ──(all have switched)──> the run goes on ⑤
 *
 * A loss between ① and ⑤ begins again at ①. Where no living worker has a layer's weights, or where
 * fault.on_loss is stop, fl_recovery_begin returns false and these processes end;
 * launcher/run/returns.c may then begin again from the newest checkpoint.
 *
 * ③: A worker enters the sum of a step when its gradients are complete, and leaves it when all have
 * entered. So if anybody has applied a step, everybody can; if nobody has, nobody does. The same
 * holds for a transition and the meeting at its end (launcher/worker/transition.c). */
#ifndef FL_CONTROL_CONTROLLER_RECOVERY_H
#define FL_CONTROL_CONTROLLER_RECOVERY_H

#include "control/controller/watch.h"
#include "control/state/recovery_sums.h"

typedef struct fl_controller fl_controller;

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

/* Whether the workers of this run regroup at all; false, with the reason in why [size_bytes], which
 * is empty where the job does not want it. */
bool fl_recovery_regroups(const fl_controller *controller, char *why, size_t size_bytes);

/* When a lost worker failed, as far as that is known. */
int64_t fl_recovery_fault_us(const fl_worker *worker, int64_t now_us);

/* ①. rank -1: no worker is lost, but all have left their generation. Returns false, and
 * the reason in why [size_bytes], if the run cannot go on without the worker; nothing has then
 * changed. */
bool fl_recovery_begin(fl_controller *controller, fl_loss_kind kind, int rank, int64_t now_us,
                       char *why, size_t size_bytes);

/* A worker has reported where it stands. */
void fl_recovery_broken(fl_controller *controller, fl_worker *worker,
                        const fl_broken_report *report);

/* ③ and ⑤, when their time has come; called in every turn of the loop. False if the run cannot go
 * on, as above. */
bool fl_recovery_watch(fl_controller *controller, int64_t now_us, char *why, size_t size_bytes);

/* Whether a loss keeps the run from training now. */
bool fl_recovery_is_on(const fl_controller *controller);

/* A step was counted: a run that had gone back goes on. */
void fl_recovery_counted(fl_controller *controller);

#endif
