/* Decides when to freeze, and finds the plan that carries the decision out. */
#ifndef FL_CONTROL_ELASTIC_DECIDE_H
#define FL_CONTROL_ELASTIC_DECIDE_H

#include "control/link/wire/wire.h"
#include "freeze/norms.h"
#include "freeze/policy.h"
#include "pipe/plan/decision.h"

typedef struct fl_elastic fl_elastic;

typedef struct fl_decide {
    fl_norms norms;
    int64_t heard;  /* steps whose norms have arrived */
    int64_t due_at; /* the step count that the pending decision is based on; -1: none is pending */
    int64_t again;  /* the newest decision is pending again, for this step; 0: it is not */
    bool started;   /* whether a decision before the first step was due has been checked */
    int *parked;    /* [n_layers] the rank that keeps a frozen layer's moments; -1: no rank */
    int64_t *since; /* [n_layers] as in fl_parked */
    bool fresh[FL_MAX_LAYERS]; /* layers that the last change thawed without moments ... */
    int n_fresh;               /* ... and how many of them have any */
    fl_cache_warmup warming;
    fl_freeze_decision policy; /* the newest decision, and what was done about it */
    fl_decision decision;
} fl_decide;

fl_status fl_decide_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_decide_close(fl_elastic *elastic);

/* Set freeze.alpha for later decisions. */
void fl_decide_alpha(fl_elastic *elastic, double alpha);

/* Add the norms of a step. */
void fl_decide_norms(fl_elastic *elastic, const fl_wire_norms *norms);

/* The step at which the pending decision takes effect; 0: none is pending. */
int64_t fl_decide_due(fl_elastic *elastic);

/* Take the pending decision. True when *next is to be carried out from that step on; false when
 * nothing changes. why [size_bytes]. */
bool fl_decide_next(fl_elastic *elastic, fl_plan *next, char *why, size_t size_bytes);

/* The newest decision could not be carried out: it is pending again, and takes effect at the same
 * step `effect`. */
void fl_decide_again(fl_elastic *elastic, int64_t effect);

/* Find the best plan with F blocks frozen for a person who asks for it, whatever the switch costs.
 * The event plan.considered lists the alternatives. Returns FL_EBUDGET, with the reason, when no
 * plan is possible. */
fl_status fl_decide_by_hand(fl_elastic *elastic, int F, const char *why,
                            fl_plan *next) FL_MUST_CHECK;

/* Set K and R of `job` for the workers of the pool: those that the run is to have, if the pool has
 * enough for them; else to be chosen, where the job's are too many as well. */
void fl_decide_grid(const fl_elastic *elastic, const fl_worker_pool *usable, fl_job *job);

/* Worker `rank` has joined: find a plan for all workers with the same frozen blocks. True when
 * *next is to be carried out: it has the K and R that the run is to have, or it pays for itself
 * (the event plan.considered lists it); false when nothing changes. why [size_bytes].
 * by_host  a host has joined, with this worker: once the run has the K and R that it is to have,
 *          they are chosen anew where the job does not fix both, also if the run is not elastic */
bool fl_decide_joined(fl_elastic *elastic, int rank, bool by_host, fl_plan *next, char *why,
                      size_t size_bytes);

/* Call fl_plan_change_place and fl_plan_change_check_room for a change of the running plan. */
void fl_decide_place(const fl_elastic *elastic, const fl_worker_pool *usable, fl_plan *next);
fl_status fl_decide_check_room(const fl_elastic *elastic, const fl_plan *next) FL_MUST_CHECK;

/* Whether this worker keeps the moments of frozen layers, for a thaw. */
bool fl_decide_keeps(const fl_elastic *elastic, int rank);

/* Call it before the running plan becomes transition.next at `step`. */
void fl_decide_switching(fl_elastic *elastic, int64_t step);

#endif
