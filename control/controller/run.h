/* The controller of one run: starting -> running -> finishing, from the fork of the workers to the
 * exit of the last one. It never touches tensors.
 *
 *      workers ①  exit, heartbeat, report ──> controller ②  ──> steps.jsonl, events.jsonl, ledger ③
 *      signals ④  ──> controller ──> command ⑤ to the leader, who broadcasts it to the workers
 *      lost worker ⑥ ──> abort to all ──> deadline ──> SIGKILL ──> message, exit code 3 */
#ifndef FL_CONTROL_CONTROLLER_RUN_H
#define FL_CONTROL_CONTROLLER_RUN_H

#include "control/state/options.h"

#include <frostline/run.h>

/* Fork the workers, watch them until they exit, write the run directory's files, show progress.
 * Returns as fl_run does. */
fl_status fl_controller_run(const fl_controller_options *options,
                            fl_run_result *result) FL_MUST_CHECK;

#endif
