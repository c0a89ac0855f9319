/* When to freeze, and the way from a decision to the plan that is carried out. */
#ifndef FL_CONTROL_ELASTIC_DECIDE_H
#define FL_CONTROL_ELASTIC_DECIDE_H

#include "control/link/wire.h"
#include "freeze/norms.h"
#include "freeze/policy.h"
#include "pipe/plan/decision.h"

typedef struct fl_elastic fl_elastic;

typedef struct fl_decide {
    fl_norms norms;
    int64_t heard;  /* steps whose norms have come */
    int64_t due_at; /* the steps that the decision to be taken is based on; -1: none is due */
    bool started;   /* a decision before the first step has been looked for */
    int *parked;    /* [n_layers] the rank that keeps a frozen layer's moments; -1: nobody */
    fl_cache_warmup warming;
    fl_freeze_decision policy; /* the newest, and what was decided to do about it */
    fl_decision decision;
} fl_decide;

fl_status fl_decide_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_decide_close(fl_elastic *elastic);

/* freeze.alpha of later decisions. */
void fl_decide_alpha(fl_elastic *elastic, double alpha);

/* The norms of a step have come. */
void fl_decide_norms(fl_elastic *elastic, const fl_wire_norms *norms);

/* The step at which the decision that is due takes effect; 0: none is due. */
int64_t fl_decide_due(fl_elastic *elastic);

/* Take the decision that is due. True when *next is to be carried out from that step on, false when
 * nothing changes; why [size_bytes]. */
bool fl_decide_next(fl_elastic *elastic, fl_plan *next, char *why, size_t size_bytes);

/* The best plan with F blocks frozen because a person asks for it, whatever it costs; the event
 * plan.considered has the alternatives. Returns FL_EBUDGET when no plan is possible, and why. */
fl_status fl_decide_by_hand(fl_elastic *elastic, int F, const char *why,
                            fl_plan *next) FL_MUST_CHECK;

/* fl_plan_change_place and fl_plan_change_check_room after the running plan. */
void fl_decide_place(const fl_elastic *elastic, const fl_worker_pool *usable, fl_plan *next);
fl_status fl_decide_check_room(const fl_elastic *elastic, const fl_plan *next) FL_MUST_CHECK;

/* Whether a worker keeps moments of frozen layers, for a thaw. */
bool fl_decide_keeps(const fl_elastic *elastic, int rank);

/* The running plan becomes transition.next at `step`; called before it does. */
void fl_decide_switching(fl_elastic *elastic, int64_t step);

#endif
