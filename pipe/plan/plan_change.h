/* What it takes to change from the running plan to another one: places, room, bytes and time.
 * Pure. */
#ifndef FL_PIPE_PLAN_PLAN_CHANGE_H
#define FL_PIPE_PLAN_PLAN_CHANGE_H

#include "pipe/plan/planner.h"

/* What a transition is expected to cost. Training stands still for cost_ms. */
typedef struct fl_plan_change {
    int64_t move_bytes; /* weights and moments, from worker to worker */
    double cost_ms;     /* a fixed part, and move_bytes at the rates of their links */
} fl_plan_change;

/* Give the places of `next` to the workers that already have most of what belongs there.
 * With a cluster, next has places already, and they stay within their hosts.
 * drained  [n_workers] workers that must not have a place; enough others must be left */
void fl_plan_change_place(const fl_plan_input *input, const fl_plan *running, fl_plan *next,
                          const bool *drained);

/* Whether every worker has room for `next` while the running plan gives way to it. Workers apply
 * the same rule when they prepare. Returns FL_EBUDGET with the numbers. */
fl_status fl_plan_change_check_room(const fl_plan_input *input, const fl_plan *running,
                                    const fl_plan *next) FL_MUST_CHECK;

/* parked    [n_layers] the rank that keeps a frozen layer's moments; -1: none
 * fixed_ms  the time of a transition besides moving bytes
 * Returns   FL_ENOMEM; FL_EINTERNAL when the moments of a layer that thaws are kept nowhere. */
fl_status fl_plan_change_price(const fl_plan_input *input, const fl_plan *running,
                               const fl_plan *next, const int *parked, double fixed_ms,
                               fl_plan_change *out) FL_MUST_CHECK;

#endif
