/* What the files of control/controller/faults/recovery.h share: recovery.c has the steps,
 * recovery_check.c whether the run can go on, recovery_resolve.c ③. */
#ifndef FL_CONTROL_CONTROLLER_FAULTS_RECOVERY_PARTS_H
#define FL_CONTROL_CONTROLLER_FAULTS_RECOVERY_PARTS_H

#include "control/controller/faults/recovery.h"
#include "control/controller/parts/parts.h"

/* ---- recovery_check.c ---- */

/* Whether the run can go on without `rank` (-1: none) and those that are lost already; else why
 * not. */
bool fl__recovery_can_go_on(const fl_controller *controller, int rank, char *why,
                            size_t size_bytes);

/* Those that are lost under the running plan, with `rank`. lost [n_workers] */
void fl__recovery_list_lost(const fl_controller *controller, int rank, bool *lost);

/* Whether only lost workers have the weights of some layers: why [size_bytes] names them. */
bool fl__recovery_name_orphans(const fl_controller *controller, const bool *lost, char *why,
                               size_t size_bytes);

/* Note which frozen layers lose the moments that were kept for a thaw. */
void fl__recovery_list_lost_moments(fl_controller *controller, const bool *lost);

/* Whether somebody has finished: all had met at the end of the run before, and what was to be
 * written is. */
bool fl__recovery_is_complete(const fl_controller *controller);

/* Whether the last step is that of the last evaluation. A run that ends for lack of improvement
 * evaluates twice then: what the decision needs, and the test samples. */
bool fl__recovery_is_evaluated(const fl_controller *controller);

/* How many workers, other than `without` (-1: none), are still to report. */
int fl__recovery_count_awaited(const fl_controller *controller, int without);

/* ---- recovery.c ---- */

/* End workers that were joining: only the leader can tell them the run's state, in the generation
 * that is broken. */
void fl__recovery_take_out_joining(fl_controller *controller, int64_t now_us);

void fl__recovery_send_order(fl_controller *controller, const fl_regroup_order *order);

/* ---- recovery_resolve.c ---- */

/* ③ All have reported: choose the plan for the others, and order them to go over. False: the run
 * cannot go on. */
bool fl__recovery_order_regroup(fl_controller *controller, int64_t now_us, char *why,
                                size_t size_bytes);

#endif
