/* What to do when the frost line is to move from F to F', or when workers have joined: a function
 * from values to a decision.
 *
 *     F' ──> ways to run it ①  ──> each priced over the steps that remain ②  ──> the cheapest ③
 *        ──> or none of them, if leaving the blocks unfrozen is cheaper still ④
 *
 *     keep       the running K, R, M and cuts
 *     rebalance  the running K, R and M, with new cuts
 *     repack     any K, R and M that the job allows
 *
 * When workers have joined, F stays, `repack` is the only way, and the running plan stays unless
 * that pays.
 *
 * Equal inputs give equal decisions, in the controller and in a simulator. */
#ifndef FL_PIPE_PLAN_DECISION_H
#define FL_PIPE_PLAN_DECISION_H

#include "pipe/cost/time/cache_warmup.h"
#include "pipe/plan/plan_change.h"
#include "pipe/plan/worker_pool.h"

enum { FL_DECISION_OPTIONS = 3, FL_DECISION_STAY = -1 };

/* Everything a decision depends on. */
typedef struct fl_decision_input {
    /* The model and what it costs. Its F, missing and kept are not read: they follow from what is
     * below. */
    const fl_plan_input *costs;
    const fl_plan *running;
    int own_m;    /* the M that keep and rebalance use: running->M, unless that is only a trial */
    int wanted;   /* F' */
    bool by_hand; /* a person asked for F': it is carried out whatever it costs */
    bool joined;  /* workers have joined; F' is F */
    int64_t step, n_steps, steps_per_epoch; /* steps done, of the run, of an epoch */
    double ratio;      /* measured by predicted step time of the running plan; 1: not measured */
    double fixed_ms;   /* the time of a transition besides moving bytes */
    const int *parked; /* [n_layers] the rank that keeps a frozen layer's moments; -1: none */
    const fl_worker_pool *usable;
    fl_cache_warmup warming; /* what the cache has of the frozen blocks' outputs */
} fl_decision_input;

/* One way to run with F' blocks frozen. */
typedef struct fl_decision_option {
    const char *name; /* "keep", "rebalance", "repack" */
    fl_status status; /* FL_OK, or why it is impossible */
    char why_not[256];
    fl_plan plan;
    double step_ms; /* mean of the steps that remain, corrected by ratio; a cold cache counts */
    fl_plan_change change;
} fl_decision_option;

typedef struct fl_decision {
    int64_t step, left; /* steps done, steps that remain */
    int F, wanted;
    bool joined;
    double ratio;
    double stay_ms; /* as step_ms, for the running plan with F blocks frozen */
    int n_options;
    int best;   /* the cheapest option; -1: none is possible */
    int chosen; /* best, or FL_DECISION_STAY */
    fl_decision_option option[FL_DECISION_OPTIONS];
    char why[512]; /* of the choice, with the numbers */
} fl_decision;

/* An option's time over the remaining steps, including its transition, ms. Options that move state
 * are charged 3 % more, because predictions are not more accurate than that. */
double fl_decision_total_ms(const fl_decision *decision, int option);

/* The cheapest option by fl_decision_total_ms. A policy's wish to freeze more is carried out only
 * if that total is below the one of staying, unless freeze.must_pay is false. A thaw is carried out
 * in any case: it is about accuracy, not about time.
 * Threads: pure; any. Allocates and frees. */
void fl_decision_make(const fl_decision_input *input, fl_decision *out);

#endif
