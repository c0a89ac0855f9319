/* Starts the worker processes, notes their exits, kills them. */
#ifndef FL_CONTROL_CONTROLLER_SPAWN_H
#define FL_CONTROL_CONTROLLER_SPAWN_H

#include "control/controller/signals.h"
#include "control/state/options.h"
#include "control/state/worker.h"
#include "device/flight.h"

/* Fork one worker a rank. In the child: standard output and error go to RUN/worker-N.log, standard
 * input is empty, the kernel kills it when the caller's thread dies, and it leaves through _exit
 * with what `options->worker` returns; it records into `flight`. The caller must have no threads.
 * workers [plan->n_workers] out. On failure the workers that were already started are killed. */
fl_status fl_spawn_workers(const fl_controller_options *options, const fl_signals *signals,
                           const char *endpoint, fl_flight *flight,
                           fl_worker *workers) FL_MUST_CHECK;

/* Note the exits since the last call. Never waits. Returns how many workers still run. */
int fl_spawn_reap(fl_worker *workers, int n_workers);

/* Send SIGKILL to all workers that still run, then wait until they have exited (milliseconds). */
void fl_spawn_kill(fl_worker *workers, int n_workers);

/* "worker-3.log" into name [24]. */
const char *fl_spawn_log_name(int rank, char *name);

/* The last lines (at most 10, at most size_bytes - 1) of a worker's log, without the last newline;
 * "" if the log is empty. Returns text. */
const char *fl_spawn_log_tail(int dir_fd, int rank, char *text, size_t size_bytes);

#endif
