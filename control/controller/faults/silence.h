/* All workers fall silent in the same moment, while the controller runs: something has stopped them
 * together (a frozen control group, SIGSTOP to all, a machine that swaps), and none of them is the
 * one that was lost.
 *
 *     each one quiet for longer than half the silence of a lost worker ──> held ①
 *     held ── one is heard again ──────────────────────────────────────> all count from then on ②
 *     held ── fault.deadline passes ───────────────────────────────────> judged as before ③
 *
 * While they are held, no time counts against any worker, transition or checkpoint. A worker whose
 * process has ended is lost at once. One worker alone is judged as before. */
#ifndef FL_CONTROL_CONTROLLER_FAULTS_SILENCE_H
#define FL_CONTROL_CONTROLLER_FAULTS_SILENCE_H

#include "control/controller/parts/silence_state.h"
#include "control/state/worker.h"

typedef struct fl_controller fl_controller;

/* A message of this worker has come. */
void fl_silence_heard(fl_controller *controller, const fl_worker *worker);

/* Whether the workers are held; each turn of the loop. */
bool fl_silence_holds(fl_controller *controller, int64_t now_us);

#endif
