/* Elasticity: which plan runs, how it is chosen, and the transition from one plan to the next, a
 * small transaction.
 *
 *     elastic.c     which change of the plan comes next
 *     elastic_transition.c
 *                   the transition, from PREPARE to the last worker that has switched
 *     elastic_joining.c
 *                   workers that join the run with it
 *     again.c       changes an attempt at which has failed, and which are taken up again
 *     due_steps.c   the steps at which decisions take effect
 *     decide.c      which layers to freeze, and which plan to run then
 *     replay.c      the decisions of a run that is repeated
 *     measure.c     the speed of the running plan
 *     tune.c        the race between several M
 *     learn.c       corrections of the profile by the run's own times
 *     stragglers.c  workers that are slow in their own compute
 *
 * These files read the run through fl_run_facts. They send, report and store through the pointers
 * in fl_elastic. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_H
#define FL_CONTROL_ELASTIC_ELASTIC_H

#include "autodp/net/store/store.h"
#include "control/elastic/again.h"
#include "control/elastic/decide.h"
#include "control/elastic/due_steps.h"
#include "control/elastic/learn.h"
#include "control/elastic/measure.h"
#include "control/elastic/mfu.h"
#include "control/elastic/replay.h"
#include "control/elastic/stragglers.h"
#include "control/elastic/tune.h"
#include "control/events/log/event_log.h"
#include "control/link/router.h"
#include "control/observe/flight_dump.h"
#include "control/state/run_view.h"
#include "pipe/plan/worker_pool.h"

typedef struct fl_elastic fl_elastic;

/* The transition in progress, if any. */
typedef enum fl_elastic_state {
    FL_ELASTIC_IDLE,
    FL_ELASTIC_PREPARING,  /* workers open the next generation while the current one runs */
    FL_ELASTIC_COMMITTING, /* all are ready: they vote and switch at the next control point */
    FL_ELASTIC_RECOVERING, /* a worker was lost: the others regroup
                            * (control/controller/faults/recovery.h)
                            */
} fl_elastic_state;

/* The outcome of a requested transition. */
typedef struct fl_elastic_outcome {
    uint32_t generation; /* the requested generation */
    bool committed;      /* false: the previous generation continues */
    bool may_pass;       /* what was against it may have gone when it is requested again */
    int64_t step;        /* committed: its first step; otherwise the steps done by then */
    fl_grid grid;        /* the requested grid */
    char why[FL_WIRE_REFUSAL_MAX + 64]; /* the reason for the change, or against it */
} fl_elastic_outcome;

/* Limits of later plans. They take effect when a transition commits: a failed transition leaves
 * nothing to undo. */
typedef struct fl_elastic_terms {
    fl_worker_pool usable;      /* workers that later plans may use */
    bool pinned[FL_MAX_LAYERS]; /* element i: block i + 1 must not be frozen */
    int64_t m;                  /* micro-batches; FL_JOB_AUTO: chosen, and compared (tune.c) */
    int k, r; /* to which the run returns after a loss, once there are enough workers; 0: the best
                 plan for those that there are */
} fl_elastic_terms;

/* Requests whose outcomes are kept. */
enum { FL_ELASTIC_OUTCOMES = 32 };

typedef struct fl_transition {
    fl_elastic_state state;
    uint32_t requested; /* the last generation that fl_elastic_ask requested; 0: none */
    uint32_t told;      /* its requester tells the user if it fails; 0: of none */
    fl_elastic_outcome outcomes[FL_ELASTIC_OUTCOMES]; /* a ring of the last n_outcomes */
    int n_outcomes;
    fl_transition_sums sums;
    int n_scripted;        /* entries of the job's script that were handled */
    uint32_t policy_asked; /* the last generation requested for the freeze policy */
    int64_t due_step;      /* the earliest step of the commit; 0: as soon as all are ready */
    fl_due_kind due;       /* which kind of decision requested it */
    fl_again again;
    uint32_t last_asked, last_forgotten; /* generations */
    fl_plan before, next;
    bool forced;               /* by a loss, of which run.recovered tells */
    bool unresolved;           /* RECOVERING: some workers may have switched to `next` */
    bool lost[FL_MAX_WORKERS]; /* workers that the members of `next` have lost */
    fl_elastic_terms terms;    /* they take effect with `next` */
    char why[512];
    double old_step_ms;  /* mean of the steps before the transition */
    double predicted_ms; /* of a step after it, corrected by the times of the running plan */
    int64_t deadline_us; /* of the preparation, or of the commit */
    int n_ready, n_refused, n_over; /* numbers of workers */
    fl_status refusal;              /* the most informative refusal */
    char refusal_text[FL_WIRE_REFUSAL_MAX + 64];
    int64_t opinion_us; /* until when a more informative refusal may arrive */
    /* the longest time of any worker */
    int64_t prepare_us, wait_us, vote_us, migrate_us, switch_us, stall_us;
    int64_t moved_bytes, kept_bytes, device_bytes;
    fl_transfer_part part[FL_TRANSFER_WAYS]; /* of moved_bytes, by the way; the longest time */
    fl_comm_way comm;                        /* none, where no worker opened communicators */
    int64_t comm_us;                         /* the longest of any worker */
    int64_t first_step;                      /* the first step of the generation */
} fl_transition;

struct fl_elastic {
    /* borrowed while the run lasts */
    const fl_run_facts *run;
    const fl_cache_sums *cache;
    fl_worker *workers; /* [n_workers]; their places change with the plan */
    fl_router *router;
    fl_event_log *log;
    fl_flight_dump *dump;
    fl_store *store;
    fl_job *job;                                  /* the current job: run->options->job */
    void (*stop)(void *context, const char *who); /* end the run after the step in flight */
    void (*end)(void *context, int64_t step);     /* the run ends early, after `step` steps */
    void *context;

    fl_plan plan; /* the plan of the running generation */
    uint32_t generation_before;
    fl_due_steps due;
    fl_worker_pool usable;      /* workers that later plans may use */
    bool pinned[FL_MAX_LAYERS]; /* element i: block i + 1 must not be frozen */
    int k, r;                   /* as in fl_elastic_terms */
    fl_transition transition;
    fl_replay replay;
    fl_decide decide;
    fl_measure measure;
    fl_tune tune;
    fl_tune_sums tune_sums;
    fl_learn learn;
    fl_stragglers *stragglers;
};

/* Set the borrowed fields and the plan before the call. */
fl_status fl_elastic_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_elastic_close(fl_elastic *elastic);

/* The last step is over: report and learn from the speed of the generation that ran until then. */
void fl_elastic_end(fl_elastic *elastic);

/* Forbid or allow later decisions to freeze this block (1 ..); also under the plan that is being
 * prepared, if any. */
void fl_elastic_pin(fl_elastic *elastic, int block, bool pinned);

/* train.lr was changed for the steps from here on. */
void fl_elastic_lr(fl_elastic *elastic, double lr);

/* Start, drive and end transitions; called in every turn of the loop. save_step: the workers were
 * asked to save the state after this step, which is not counted yet (0: they were not). They save
 * it before a commit, at the latest. A commit that is due at a step is therefore sent once the step
 * that they save is counted: the controller's state is then still that before the change. */
void fl_elastic_watch(fl_elastic *elastic, int64_t save_step, int64_t now_us);

/* Start a transition to `next`. This call sets its generation and its places (fl_decide_place). The
 * transition commits at the first control point from step due_step on (0: as soon as all are
 * ready). Its generation is elastic->transition.requested on return; fl_elastic_outcome_of gives
 * its outcome. Returns FL_EBUSY while another transition is in progress, while another decision is
 * due up to due_step, and while the run starts or ends; FL_EINVAL if `next` is not a plan of this
 * run; FL_EBUDGET, with the numbers, when a worker has no room for it. The message says which.
 * Threads: the controller's. */
fl_status fl_elastic_ask(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                         const char *why) FL_MUST_CHECK;

/* The same. When the plan starts to run, *terms take effect, too. */
fl_status fl_elastic_ask_with(fl_elastic *elastic, const fl_plan *next, int64_t due_step,
                              const fl_elastic_terms *terms, const char *why) FL_MUST_CHECK;

/* The outcome of the requested transition to `generation`, whatever other transitions ended since.
 * NULL while it is in progress, and once FL_ELASTIC_OUTCOMES later requests have ended. */
const fl_elastic_outcome *fl_elastic_outcome_of(const fl_elastic *elastic, uint32_t generation);

/* Get the terms in force; replace them without a change of the plan. */
fl_elastic_terms fl_elastic_terms_now(const fl_elastic *elastic);
void fl_elastic_terms_set(fl_elastic *elastic, const fl_elastic_terms *terms);

/* Set K and R of the terms for a run that is to have those of `plan`: 0 where neither the job nor a
 * request has fixed them. */
void fl_elastic_terms_want(const fl_elastic *elastic, const fl_plan *plan, fl_elastic_terms *terms);

/* The controller did not run for this long: the time does not count against a transition. */
void fl_elastic_forgive(fl_elastic *elastic, int64_t gap_us);

/* Continue without the lost worker `rank`: later plans do not use it, and a transition that is
 * being prepared is cancelled. A change for which all workers wait is taken up again (again.h). */
void fl_elastic_without(fl_elastic *elastic, int rank, const char *why);

/* Whether the workers are between two plans: the leader may change at any moment, so nothing must
 * be sent to it. */
bool fl_elastic_is_switching(const fl_elastic *elastic);

/* A worker was lost, and the others leave the running generation. A change that was being prepared
 * is given up; one for which all workers wait is taken up again when they have regrouped. */
void fl_elastic_interrupt(fl_elastic *elastic, const char *why);

/* All workers have reported: those that have switched last run `generation`, from `step` on. */
void fl_elastic_resolve(fl_elastic *elastic, uint32_t generation, int64_t step, const char *why);

/* The living workers go over to `next`, whose generation is set, without the workers that are
 * marked as lost. The change is over, and the state IDLE, when all of them have switched. */
void fl_elastic_force(fl_elastic *elastic, const fl_plan *next, const char *why);

/* A generation number that has not been used. */
uint32_t fl_elastic_next_generation(const fl_elastic *elastic);

/* Whether the transition that is being committed gives this worker a stage. */
bool fl_elastic_counts_on(const fl_elastic *elastic, int rank);

void fl_elastic_prepared(fl_elastic *elastic, const fl_worker *worker,
                         const fl_prepared_report *report);
void fl_elastic_moved(fl_elastic *elastic, fl_worker *worker, const fl_transition_parts *parts);

#endif
