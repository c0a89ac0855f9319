/* What to freeze, and which plan to run then. */
#ifndef FL_CONTROL_ELASTIC_DECIDE_H
#define FL_CONTROL_ELASTIC_DECIDE_H

#include "control/link/wire.h"
#include "freeze/norms.h"
#include "pipe/plan/cache_warmup.h"

typedef struct fl_controller fl_controller;

enum { FL_DECIDE_OPTIONS = 3 };

/* One way to run F' blocks frozen. */
typedef struct fl_decide_option {
    const char *name; /* "keep", "rebalance", "repack" */
    fl_status status; /* FL_OK, or why it cannot be */
    char why_not[256];
    fl_plan plan;
    double step_ms; /* predicted, corrected by the live ratio */
    double cost_ms; /* of the transition: training stands still */
    int64_t move_bytes;
} fl_decide_option;

/* A decision as it was taken, for its events. */
typedef struct fl_decision {
    int64_t step; /* steps done */
    int F, wanted;
    char why[256];         /* the policy's */
    int64_t left;          /* steps */
    double ratio;          /* measured step time of the running plan by predicted */
    double stay_ms;        /* predicted step time if nothing were frozen */
    int n_options, chosen; /* chosen -1: none can be */
    fl_decide_option option[FL_DECIDE_OPTIONS];
    char choice_why[512];
} fl_decision;

typedef struct fl_decide {
    fl_norms norms;
    int64_t heard;   /* steps whose norms have come */
    int64_t due_at;  /* a decision is to be taken, after so many steps; -1: none */
    bool started;    /* a decision before the first step has been looked for */
    int *parked;     /* [n_layers] who keeps a frozen layer's moments */
    double fixed_ms; /* what a transition takes beside moving bytes */
    fl_cache_warmup warming;
    bool measuring; /* the generation at work is new: its step time is still to be told */
    fl_decision decision;
} fl_decide;

fl_status fl_decide_open(fl_controller *controller) FL_MUST_CHECK;
void fl_decide_close(fl_controller *controller);

/* Norms of a step have come. */
void fl_decide_norms(fl_controller *controller, const fl_wire_norms *norms);

/* Take the decision that is due, if any. True when *next is to be gone over to; why [size_bytes].
 */
bool fl_decide_next(fl_controller *controller, fl_plan *next, char *why, size_t size_bytes);

/* Give the places of a plan that follows the running one to the workers that have most of what
 * belongs there. */
void fl_decide_place(const fl_controller *controller, fl_plan *next);

/* The best plan with F blocks frozen because somebody wants it so, as it would be chosen for a
 * policy; it is told as an event. Returns FL_EBUDGET and others, with why there is none. */
fl_status fl_decide_by_hand(fl_controller *controller, int F, const char *why,
                            fl_plan *next) FL_MUST_CHECK;

/* Whether a worker keeps moments of frozen layers, for a thaw. */
bool fl_decide_keeps(const fl_controller *controller, int rank);

/* Whether every worker has room for `next` when the running plan gives way to it: FL_EBUDGET with
 * the numbers if not. */
fl_status fl_decide_check_room(const fl_controller *controller, const fl_plan *next) FL_MUST_CHECK;

/* Mean step time, ms, of the generation at work over its last 100 steps; 0 before it has any. */
double fl_decide_step_ms(const fl_controller *controller);

/* Measured by predicted step time of the running plan; 1 before it has been measured. */
double fl_decide_ratio(const fl_controller *controller);

/* The next steps of `plan` as predicted, ms each, corrected by what the running plan measures. */
double fl_decide_predict_ms(const fl_controller *controller, const fl_plan *plan);

/* The controller's plan becomes elastic.next; called before it does, and when the transition is
 * over. */
void fl_decide_switching(fl_controller *controller);
void fl_decide_switched(fl_controller *controller);

/* Tell how fast the generation at work is, once it has run for long enough (or is about to end). */
void fl_decide_measure(fl_controller *controller, bool ending);

#endif
