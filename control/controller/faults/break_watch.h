/* Finds generations that are broken although no worker is known to be lost. */
#ifndef FL_CONTROL_CONTROLLER_FAULTS_BREAK_WATCH_H
#define FL_CONTROL_CONTROLLER_FAULTS_BREAK_WATCH_H

#include "control/state/worker.h"

typedef struct fl_controller fl_controller;

/* Whether all must regroup although no worker is known to be lost (*who -1): some have left their
 * generation, because connections broke; or all stand still, each in a wait or asleep, and the one
 * that hangs will not answer. *who names a worker that counts as lost where that happens again and
 * again without a step in between, or where this run cannot regroup: the first to leave; if all
 * stand still, the last that trains. */
bool fl_break_watch_is_due(fl_controller *controller, int64_t now_us, fl_loss_kind *kind, int *who);

/* The worker that left its generation first; -1: none has. */
int fl_break_watch_first(const fl_controller *controller);

/* That connections broke, and, on several hosts, the first ones from which workers have reported
 * it: mostly the two that a connection was between. */
void fl_break_watch_text(const fl_controller *controller, char *text, size_t size_bytes);

/* Of the workers that train, the one with the fewest steps. */
int fl_break_watch_behind(const fl_controller *controller);

#endif
