/* The controller's records about its workers. */
#ifndef FL_CONTROL_STATE_WORKER_H
#define FL_CONTROL_STATE_WORKER_H

#include "control/link/wire/wire.h"
#include "control/state/sums/graph_sums.h"
#include "device/machine/survey.h"

#include <sys/types.h>

enum { FL_WORKER_HOST_WHY_MAX = 511 };

/* The controller's record of one worker. Times are fl_now_us; 0 means not yet. A rank of which no
 * process was started is a worker that has departed and exited, with incarnation 0. */
typedef struct fl_worker {
    int rank;
    uint32_t incarnation; /* counts the processes of this rank; 0: none was started yet */
    pid_t pid;            /* 0: the agent has not started it yet */
    int spawn_error;      /* the errno for which there is no process */
    int gpu;              /* the number of its GPU on its host; with gpu_name */
    char gpu_name[FL_SURVEY_NAME_BYTES]; /* "": it has none, or the agent has not started it yet */
    fl_place place;
    int64_t spawned_us, heard_us;
    bool linked, ready, done;
    bool joins;     /* not a member yet: its loss does not end the run. `departed` holds, too */
    uint32_t since; /* the first generation of which this process is a member; 0: the run's first */
    bool departed;  /* not a member any more: its loss does not end the run */
    int64_t departed_us; /* when it departed */
    bool exit_reported;  /* the exit of the departed worker was reported */
    int64_t steps;       /* finished steps, as last reported */
    char operation[FL_WIRE_OPERATION_MAX + 1];
    fl_memory_report memory;
    fl_net_unanswered unanswered; /* as its last heartbeat has it, at heard_us */
    fl_graph_sums graphs;
    int64_t exited_us;
    int wait_status; /* as waitpid gives it; holds when exited_us is set */
    char host_why[FL_WORKER_HOST_WHY_MAX + 1]; /* its process is lost with its host: "with host b
                                                  (10.0.0.2): why"; "": it is not */
    char cut_why[384];                         /* FL_LOSS_STUCK: where loopback is filtered; "":
                                                  it is not known to be */
    bool killed;                               /* killed by the controller */
    int64_t restarts_us;                       /* it was lost, and is to be started again then */
    /* Since its training thread last entered or left an operation:
     * control/controller/judge/standstill.h
     */
    int64_t waits_us;  /* it has waited for other workers */
    int64_t still_us;  /* it has been in an operation of its own, */
    int64_t asleep_us; /* for this long asleep, in one that waits for no disk */
    bool hung;         /* longer than it may */
    int64_t missed_us; /* its silence or standstill, or the silence of its host, when it counted as
                          lost */
    bool lost;         /* the run goes on without it; then it has departed, too */
    bool lost_outside; /* the same of one that stood by, or had not joined yet */
    int64_t left_us;   /* it has left its generation, and nothing explains that yet, */
    int64_t left_waited_us;  /* after it had waited for other workers for so long */
    int64_t broken_us;       /* it has reported where it stands, and waits to regroup */
    fl_broken_report broken; /* valid if broken_us is set */
    int64_t unread_us;       /* it sent a message that the controller cannot read, */
    char unread_why[256];    /* and why */
    int64_t failed_us;       /* it reported a failure */
    fl_status failure;
    char failure_text[FL_WIRE_TEXT_MAX + 1];
} fl_worker;

/* How a worker was lost. */
typedef enum fl_loss_kind {
    FL_LOSS_NONE = 0,
    FL_LOSS_KILLED,      /* by a signal */
    FL_LOSS_HOST,        /* with its host: nobody knows how its process ended, or whether it did */
    FL_LOSS_EXITED,      /* without fl_link_done, and without reporting a failure */
    FL_LOSS_REPORTED,    /* it reported a failure of its own */
    FL_LOSS_UNREADABLE,  /* it sent a message that the controller cannot read */
    FL_LOSS_SILENT,      /* no heartbeat */
    FL_LOSS_HUNG,        /* it sends heartbeats, but its training thread stands still */
    FL_LOSS_NEVER_READY, /* alive, but not ready within its time to start */
    FL_LOSS_STUCK,       /* all workers waited for each other, and this one is furthest behind */
} fl_loss_kind;

/* A member of the run that lives and has more to do. */
bool fl_worker_is_awaited(const fl_worker *worker);

/* Whether a member has finished. All had met before: every worker's files are on the disk, and the
 * others have only to end. */
bool fl_worker_any_is_done(const fl_worker *workers, int n_workers);

/* The finished steps of the run, at least `counted`: a step that one worker has finished is
 * finished, also if its report to the statistics is still on its way. */
int64_t fl_workers_finished_steps(const fl_worker *workers, int n_workers, int64_t counted);

/* "active", "standby", ...: as status and metrics name it. */
const char *fl_worker_state_text(const fl_worker *worker);

/* What it does now; "" if it has no process any more. */
const char *fl_worker_operation(const fl_worker *worker);

/* A new process of the rank is started, for a worker that joins the run. */
void fl_worker_begin_again(fl_worker *worker, int64_t now_us);

/* The worker is a member of the run from now on, the begin of this generation. */
void fl_worker_enter(fl_worker *worker, uint32_t generation);

/* The worker is no longer a member of the run. */
void fl_worker_depart(fl_worker *worker, int64_t now_us);

/* The records [n_workers] of workers that have not been started: those that are no members of the
 * plan will not be, before a request wants them. step: finished steps of the run at their start. */
void fl_workers_init(fl_worker *workers, int n_workers, const fl_plan *plan, int64_t step);

/* Each worker's place in the plan. */
void fl_workers_place(fl_worker *workers, int n_workers, const fl_plan *plan);

#endif
