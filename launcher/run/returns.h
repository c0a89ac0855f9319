/* A run that goes back after a loss: a lost worker had state that no other one has.
 *
 *     the controller asks where the run goes back to         fl_returns_find
 *     it ends; its lock is kept for the next one             fl_returns_keep_hold
 *     hosts that it has lost are left out, the others
 *     join again
 *     once more, from the newest snapshot or checkpoint,
 *     or with the first step                                 fl_returns_run */
#ifndef FL_LAUNCHER_RUN_RETURNS_H
#define FL_LAUNCHER_RUN_RETURNS_H

#include "control/checkpoint/snapshots.h"
#include "control/link/held_port.h"
#include "control/state/lasting.h"
#include "launcher/run/plan/preparation.h"

#include <limits.h>

struct fl_resume;

/* The losses of one run, over all the times that it goes back. */
typedef struct fl_run_losses {
    fl_kept_snapshot kept;
    fl_recovery_sums sums;
    fl_lasting lasting;
    int64_t lost_at;         /* steps finished at the last loss */
    int64_t repeated_before; /* steps that were repeated for the losses before it */
    int64_t newest;          /* the step of the state to go back to; -1: the run begins again */
    bool resumed;            /* the run began with a checkpoint */
    bool trained;            /* all workers were ready once: its directory is this process's */
    int n;                   /* returns in a row to a state before the loss that came before */
    int most;                /* fault.restarts */
    char why[1024];          /* of the last loss */
    char dir[PATH_MAX];      /* of the run */
    fl_return_choice back;   /* what the controller was told last */
    fl_hosts *hosts;         /* of several: those that it has lost are absent; NULL: it has one */
    struct fl_host_starter *starters; /* [hosts->n] ssh of their agents; NULL: it starts none */
    int held_fd;    /* job.yaml, locked, between two controllers; -1: one of them has it */
    bool keeps_key; /* hosts.key stays between two controllers: agents may be started meanwhile */
    fl_held_ports held_ports; /* while neither a survey nor a controller has them */
} fl_run_losses;

/* Choose where the run goes back to: at most fault.restarts times without having come so far that
 * the next state is a newer one; to its start only where that may help. context: fl_run_losses. */
void fl_returns_find(void *context, bool fails_again, int64_t recorded, fl_return_choice *out);

/* Whether the run may begin once more when this controller has ended: it has announced that, or it
 * could not start because a host was lost. context: fl_run_losses. */
bool fl_returns_may_follow(const void *context);

/* The step of the newest checkpoint of the run after at most `most` steps; -1: there is none. */
int64_t fl_returns_checkpoint(const char *run_dir, int64_t most);

/* Whether the files of the run have the state of this process; false: they are as the run left them
 * before it was resumed. losses: NULL for a run that never goes back. */
bool fl_returns_is_begun(const fl_run_losses *losses);

/* The state to go back to was chosen: count the steps that are repeated. If it is another one than
 * was announced, announce it. Call it also for a run that does not go back. */
void fl_returns_settle(fl_run_losses *losses, const struct fl_resume *resume);

/* Take the lock on job.yaml from *held_fd, which becomes -1. Nobody else may take the run, and its
 * clients see that it lives, until it goes on. */
void fl_returns_keep_hold(fl_run_losses *losses, int *held_fd);

/* Train the prepared run once, from its checks to its end; releases p. */
typedef fl_status (*fl_returns_train)(fl_preparation *p, const char *run_dir,
                                      fl_run_result *result);

/* Train, and end with a loss: fault.on_loss is stop, or the run repeats another one. The ssh of
 * agents ends with it. As `train`. */
fl_status fl_returns_run_once(fl_preparation *p, const char *run_dir, fl_run_result *result,
                              fl_run_losses *losses, fl_returns_train train) FL_MUST_CHECK;

/* Train, and go back as often as losses demand and `losses` allows. p, run_dir and result as
 * `train` takes them; p->resume is closed if the run goes back. Returns as `train`; the loss, and
 * why, if the run cannot go back although that was announced. */
fl_status fl_returns_run(fl_preparation *p, const char *run_dir, fl_run_result *result,
                         fl_run_losses *losses, fl_returns_train train) FL_MUST_CHECK;

#endif
