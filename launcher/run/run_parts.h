/* What the files of a run share: run.c has its steps, run_options.c what its workers and its
 * controller get, run_program.c the runs of a program that calls fl_run. */
#ifndef FL_LAUNCHER_RUN_RUN_PARTS_H
#define FL_LAUNCHER_RUN_RUN_PARTS_H

#include "control/controller/run.h"
#include "launcher/run/run_files.h"
#include "launcher/worker/worker.h"

/* ---- run_options.c ---- */

/* All that they have is borrowed from their arguments. */
fl_worker_context fl__run_worker_of(fl_preparation *p, fl_run_files *f);
void fl__run_birth_of(const fl_preparation *p, fl_worker_birth *birth);
fl_controller_options fl__run_controller_of(fl_preparation *p, fl_run_files *f,
                                            const fl_worker_birth *birth,
                                            fl_worker_context *worker);

/* Whether the run has memory for snapshots. */
bool fl__run_has_snapshots(const fl_preparation *p);

/* ---- run.c ---- */

/* The result of a run that has not begun. */
void fl__run_init_result(fl_run_result *result);

/* Train, from the checks to the end, and go back after losses as the job allows. run_dir: as
 * fl_run_in takes it. */
fl_status fl__run_prepared(fl_preparation *p, const char *run_dir,
                           fl_run_result *result) FL_MUST_CHECK;

#endif
