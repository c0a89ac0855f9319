/* Transitions as the controller sees them: a small transaction. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_H
#define FL_CONTROL_ELASTIC_ELASTIC_H

#include "control/link/wire.h"
#include "control/state/run_view.h"

typedef struct fl_controller fl_controller;

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

typedef struct fl_elastic {
    fl_elastic_state state;
    fl_elastic_outcome outcome;
    fl_transition_sums sums;
    int n_scripted;        /* entries of the job's script already acted on */
    uint32_t policy_asked; /* generation: the last one for the freeze policy */
    int64_t due_step; /* the transition is not committed before it; 0: as soon as all are ready */
    fl_due_kind due;  /* what asked for it */
    uint32_t last_asked, last_forgotten; /* generations: asked for, dropped from the store */
    fl_plan before, next;
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
} fl_elastic;

/* Begin, drive and end transitions; called every turn of the loop. */
void fl_elastic_watch(fl_controller *controller, int64_t now_us);

/* Begin a transition to `next`, which gets a generation and its places (fl_decide_place) here and
 * is committed at the first control point from step due_step on (0: as soon as all are ready). How
 * it ends is then in controller->elastic.outcome, under the generation that
 * controller->elastic.next has on return. Returns FL_EBUSY while another is under way, while
 * another decision is due up to due_step, and when the run starts or ends; FL_EINVAL for what is no
 * plan of this run; FL_EBUDGET with the numbers when a worker has no room for it. The message says
 * which. Threads: the controller's. */
fl_status fl_elastic_ask(fl_controller *controller, const fl_plan *next, int64_t due_step,
                         const char *why) FL_MUST_CHECK;

/* Worker `rank` is lost and the run goes on without it: no later plan counts on it, and what is
 * being prepared is cancelled. */
void fl_elastic_without(fl_controller *controller, int rank, const char *why);

/* Whether the plan that is being voted for, or gone over to, has a stage for this worker. */
bool fl_elastic_counts_on(const fl_controller *controller, int rank);

void fl_elastic_prepared(fl_controller *controller, const fl_worker *worker,
                         const fl_prepared_report *report);
void fl_elastic_moved(fl_controller *controller, fl_worker *worker,
                      const fl_transition_parts *parts);

#endif
