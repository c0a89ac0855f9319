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
#ifndef FL_CONTROL_CONTROLLER_FAULTS_RECOVERY_H
#define FL_CONTROL_CONTROLLER_FAULTS_RECOVERY_H

#include "control/controller/parts/recovery_state.h"

typedef struct fl_controller fl_controller;

/* Whether the workers of this run regroup at all; false, with the reason in why [size_bytes], which
 * is empty where the job does not want it. */
bool fl_recovery_regroups(const fl_controller *controller, char *why, size_t size_bytes);

/* When what led to this loss happened, as far as that is known: from then on the run has not
 * trained. rank: see fl_recovery_begin. */
int64_t fl_recovery_fault_us(const fl_controller *controller, fl_loss_kind kind, int rank,
                             int64_t now_us);

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

/* The run goes back, and has not trained since fault_us; since an earlier loss, if it was going
 * back for that already. */
void fl_recovery_begin_return(fl_controller *controller, int64_t fault_us);

/* A step was counted: a run that had gone back goes on. */
void fl_recovery_counted(fl_controller *controller);

/* All workers have left. A run that ends before it has trained again has stood still until now. */
void fl_recovery_over(fl_controller *controller, int64_t now_us);

#endif
