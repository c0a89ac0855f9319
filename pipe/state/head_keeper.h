/* Which worker of the head takes a layer from workers of other hosts, where the hosts of a run
 * share no files. */
#ifndef FL_PIPE_STATE_HEAD_KEEPER_H
#define FL_PIPE_STATE_HEAD_KEEPER_H

#include <frostline/plan.h>

/* The worker of the head that takes this layer from another host, the members of the plan in turn;
 * -1: the head has none. n_head: ranks below it are on the head. Pure. */
int fl_head_keeper(const fl_plan *plan, int n_head, int layer);

#endif
