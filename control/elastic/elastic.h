/* Elasticity: which plan runs, what is decided about it, and the transition from one plan to the
 * next, a small transaction.
 *
 *     elastic.c     the transition, from PREPARE to the last worker that has switched
 *     due_steps.c   the steps at which decisions take effect
 *     decide.c      what to freeze, and which plan to run then
 *     replay.c      the decisions of a run that is repeated
 *     measure.c     how fast the running plan is
 *     tune.c        a race of several M
 *     learn.c       what the run teaches the profile
 *     stragglers.c  which workers are slow in their own compute
 *
 * It knows the run through fl_run_facts, and sends, reports and stores through what it is given. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_H
#define FL_CONTROL_ELASTIC_ELASTIC_H

#include "autodp/net/store.h"
#include "control/elastic/decide.h"
#include "control/elastic/due_steps.h"
#include "control/elastic/learn.h"
#include "control/elastic/measure.h"
#include "control/elastic/mfu.h"
#include "control/elastic/replay.h"
#include "control/elastic/stragglers.h"
#include "control/elastic/tune.h"
#include "control/events/event_log.h"
#include "control/link/router.h"
#include "control/state/run_view.h"
#include "pipe/plan/worker_pool.h"

typedef struct fl_elastic fl_elastic;

/* The transition under way, if any. */
typedef enum fl_elastic_state {
    FL_ELASTIC_IDLE,
    FL_ELASTIC_PREPARING,  /* workers open the next generation beside the one that runs */
    FL_ELASTIC_COMMITTING, /* all are ready: they vote and go over at the next control point */
} fl_elastic_state;

/* How the last transition ended that was prepared. */
typedef struct fl_elastic_outcome {
    uint32_t generation; /* that was asked for; 0: it was refused before it had a number */
    bool committed;      /* false: the generation before goes on */
    int64_t step;        /* committed: its first; else the steps that were done by then */
    char why[FL_WIRE_REFUSAL_MAX + 64]; /* committed: what it was for; else why not */
} fl_elastic_outcome;

/* What later plans are held to, too: it comes into force when a transition is committed, and not
 * before, so that one which does not come about leaves nothing to take back. */
typedef struct fl_elastic_terms {
    fl_worker_pool usable;      /* workers that may have work */
    bool pinned[FL_MAX_LAYERS]; /* element i: block i + 1 is never to be frozen */
} fl_elastic_terms;

typedef struct fl_transition {
    fl_elastic_state state;
    fl_elastic_outcome outcome;
    fl_transition_sums sums;
    int n_scripted;        /* entries of the job's script already acted on */
    uint32_t policy_asked; /* generation: the last one for the freeze policy */
    int64_t due_step; /* the transition is not committed before it; 0: as soon as all are ready */
    fl_due_kind due;  /* what asked for it */
    uint32_t last_asked, last_forgotten; /* generations: asked for, dropped from the store */
    fl_plan before, next;
    fl_elastic_terms terms; /* that come into force with `next` */
    char why[512];
    double old_step_ms;             /* mean of the steps before the transition */
    double predicted_ms;            /* of a step after it, with what the running plan taught */
    int64_t deadline_us;            /* of preparing, or of committing */
    int n_ready, n_refused, n_over; /* workers */
    fl_status refusal;              /* the one that says most */
    char refusal_text[FL_WIRE_REFUSAL_MAX + 64];
    int64_t opinion_us; /* until when others may say more of it */
    /* the longest of any worker */
    int64_t prepare_us, wait_us, vote_us, migrate_us, switch_us, stall_us;
    int64_t moved_bytes, kept_bytes;
    int64_t first_step; /* of the generation */
} fl_transition;

struct fl_elastic {
    /* borrowed, for as long as the run goes on */
    const fl_run_facts *run;
    const fl_cache_sums *cache;
    fl_worker *workers; /* [n_workers]; their places change with the plan */
    fl_router *router;
    fl_event_log *log;
    fl_store *store;
    fl_job *job;                                  /* the job as it is by now: run->options->job */
    void (*stop)(void *context, const char *who); /* end the run after the step in flight */
    void *context;

    fl_plan plan; /* of the generation that runs */
    uint32_t generation_before;
    fl_due_steps due;
    fl_worker_pool usable;      /* workers that may have work */
    bool pinned[FL_MAX_LAYERS]; /* element i: block i + 1 is never to be frozen */
    fl_transition transition;
    fl_replay replay;
    fl_decide decide;
    fl_measure measure;
    fl_tune tune;
    fl_tune_sums tune_sums;
    fl_learn learn;
    fl_stragglers *stragglers;
};

/* The borrowed fields and the plan are set. */
fl_status fl_elastic_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_elastic_close(fl_elastic *elastic);

/* Block 1 .. is never frozen by later decisions, or may be again; also under the plan that is being
 * prepared, if any. */
void fl_elastic_pin(fl_elastic *elastic, int block, bool pinned);

/* Begin, drive and end transitions; called every turn of the loop. */
void fl_elastic_watch(fl_elastic *elastic, int64_t now_us);

/* Begin a transition to `next`, which gets a generation and its places (fl_decide_place) here and
 * is committed at the first control point from step due_step on (0: as soon as all are ready). How
 * it ends is then in elastic->transition.outcome, under the generation that
 * elastic->transition.next has on return. Returns FL_EBUSY while another is under way, while
 * another decision is due up to due_step, and when the run starts or ends; FL_EINVAL for what is no
 * plan of this run; FL_EBUDGET with the numbers when a worker has no room for it. The message says
 * which. Threads: the controller's. */
fl_status fl_elastic_ask(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                         const char *why) FL_MUST_CHECK;

/* The same; with the plan, *terms come into force. */
fl_status fl_elastic_ask_with(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                              const fl_elastic_terms *terms, const char *why) FL_MUST_CHECK;

/* The terms in force, and putting others into force without a change of plan. */
fl_elastic_terms fl_elastic_terms_now(const fl_elastic *elastic);
void fl_elastic_terms_set(fl_elastic *elastic, const fl_elastic_terms *terms);

/* Worker `rank` is lost and the run goes on without it: no later plan counts on it, and what is
 * being prepared is cancelled. */
void fl_elastic_without(fl_elastic *elastic, int rank, const char *why);

/* Whether the plan that is being voted for, or gone over to, has a stage for this worker. */
bool fl_elastic_counts_on(const fl_elastic *elastic, int rank);

void fl_elastic_prepared(fl_elastic *elastic, const fl_worker *worker,
                         const fl_prepared_report *report);
void fl_elastic_moved(fl_elastic *elastic, fl_worker *worker, const fl_transition_parts *parts);

#endif
