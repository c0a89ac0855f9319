/* What a run's directory holds of checkpoints, for commands that list and describe runs. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_CHECKPOINTS_H
#define FL_LAUNCHER_RUN_RUNS_RUN_CHECKPOINTS_H

#include <frostline/status.h>

#include <limits.h>
#include <stdint.h>

typedef struct fl_run_checkpoints {
    int n;               /* that can be read */
    int64_t step;        /* finished steps at the newest one; -1: there is none */
    int64_t best_step;   /* of checkpoints/best; -1: there is none */
    char path[PATH_MAX]; /* of the newest one's folder */
    char written[40];    /* UTC, "2026-01-31T09:30:00.000Z" */
    double age_s;        /* since then; NAN: unknown */
} fl_run_checkpoints;

/* Read the manifests of the run directory `run`. Those that are damaged do not count; the files
 * beside them are not read. A run without checkpoints has none. FL_EIO, FL_ENOMEM. */
fl_status fl_run_checkpoints_look(const char *run, fl_run_checkpoints *out) FL_MUST_CHECK;

#endif
