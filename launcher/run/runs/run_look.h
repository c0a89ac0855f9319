/* What a run directory says of its run: whether it is live, and how it ended. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_LOOK_H
#define FL_LAUNCHER_RUN_RUNS_RUN_LOOK_H

#include "control/events/begun.h"

#include <frostline/run.h>
#include <frostline/status.h>

#include <limits.h>

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

typedef enum fl_run_state {
    FL_RUN_LIVE,     /* its controller listens */
    FL_RUN_FINISHED, /* to its last step */
    FL_RUN_STOPPED,  /* by the user */
    FL_RUN_FAILED,
    FL_RUN_LOST,       /* its controller died before it could report an end */
    FL_RUN_STARTING,   /* its controller lives, but does not answer yet */
    FL_RUN_RECOVERING, /* the same, because the run goes back after a loss */
    FL_RUN_ELSEWHERE, /* another machine has begun it, and whether it lives is not seen from here */
} fl_run_state;

typedef struct fl_run_entry {
    char name[256]; /* of the directory */
    char path[PATH_MAX];
    fl_run_state state;
    char job[256];
    char hostname[65]; /* of the machine whose controller began or resumed it last; "": not known */
    char started[FL_BEGUN_TEXT]; /* UTC, "2026-01-31T09:30:00.000Z"; sorts as time does */
    int64_t n_steps;             /* of the whole run */
    int64_t steps;               /* finished steps; -1: unknown */
    int64_t skipped_steps;       /* not finite, so not applied; 0 until the run has ended */
    bool untrained;              /* lost before it wrote an event: nothing of it was kept */
    bool record_incomplete;      /* its files lack something that the run could not write */
    bool unreachable;            /* live, but its control socket was removed or replaced */
    pid_t holder;                /* with `unreachable`: its process; 0: not seen from here */
    double loss, test_accuracy;  /* NAN: none */
    int n_metrics;               /* of the model's loss */
    fl_metric_result metrics[FL_METRICS_MAX]; /* only names, and `test` once the run has ended */
} fl_run_entry;

const char *fl_run_state_text(fl_run_state state);

enum { FL_UNREACHABLE_TEXT = 192 };

/* "goes on, but takes no requests: its control.sock was removed or replaced; ...", with the process
 * that a signal ends; "" of another run. Returns text. */
const char *fl_run_unreachable_text(const fl_run_entry *entry, char text[FL_UNREACHABLE_TEXT]);

/* Whether a process trains it, or is about to. */
bool fl_run_state_lives(fl_run_state state);

/* Read the run directory at `path`. FL_EINVAL if it holds no run. */
fl_status fl_run_look(const char *path, fl_run_entry *entry) FL_MUST_CHECK;

#endif
