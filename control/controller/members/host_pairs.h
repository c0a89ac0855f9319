/* Before a loss is guessed at, the hosts try whether they reach each other; and what workers have
 * reported of their connections counts, also of those within a host.
 *
 *     all stand still, connections broke, none gets ready ... ──> the hosts are asked ①
 *       ──(all have answered, or their time is over)──> no pair is apart: as before ②
 *                                                  ──> which host is left out ③
 *       ──(the gate counts it as lost)──> a loss as any other, whose reason names the pair
 *
 * A host that was left out joins again once it reaches the other one
 * (control/agent/gate/gate_reach.c).
 */
#ifndef FL_CONTROL_CONTROLLER_MEMBERS_HOST_PAIRS_H
#define FL_CONTROL_CONTROLLER_MEMBERS_HOST_PAIRS_H

#include "control/controller/parts/host_pairs_state.h"
#include "control/state/worker.h"

typedef struct fl_controller fl_controller;

/* Something has gone wrong that a cut between two hosts would explain. True: the decision has to
 * wait for what the hosts find; call it again in the next turn. False at once in a run on one host,
 * and when they have found nothing just now. */
bool fl_host_pairs_check(fl_controller *controller, int64_t now_us);

/* The same as soon as it may have gone wrong, so that less is to be waited for when it has: at most
 * one trial in the time in which a worker may be silent. */
bool fl_host_pairs_check_early(fl_controller *controller, int64_t now_us);

/* The run makes progress: what the hosts may find now is of no use any more. */
void fl_host_pairs_forget(fl_controller *controller);

/* Why the workers of the head's host do not reach each other, and the last of them; NULL: they do,
 * as far as is known. */
const char *fl_host_pairs_cut_worker(const fl_controller *controller, int *who);

/* Whether a cut between hosts would explain this loss. */
bool fl_host_pairs_may_explain(const fl_controller *controller, fl_loss_kind kind, int who);

/* The same while workers open connections, for the start or for a transition, or meet at the end of
 * the run, and none has become ready for a while. */
bool fl_host_pairs_check_meeting(fl_controller *controller, int64_t now_us);

#endif
