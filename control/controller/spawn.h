/* The worker processes: started, watched for their exit, ended. */
#ifndef FL_CONTROL_CONTROLLER_SPAWN_H
#define FL_CONTROL_CONTROLLER_SPAWN_H

#include "control/controller/signals.h"
#include "control/state/options.h"
#include "control/state/worker.h"
#include "device/flight.h"

/* Fork one worker a rank. In the child: standard output and error go to RUN/worker-N.log, standard
 * input is empty, the kernel kills it when the caller's thread dies, and it leaves through _exit
 * with what `options->worker` returns; it records into `flight`. The caller must have no threads.
 * workers [plan->n_workers] out. On failure those already started are gone again. */
fl_status fl_spawn_workers(const fl_controller_options *options, const fl_signals *signals,
                           const char *endpoint, fl_flight *flight,
                           fl_worker *workers) FL_MUST_CHECK;

/* Note the exits since the last call, without waiting. Returns how many workers still live. */
int fl_spawn_reap(fl_worker *workers, int n_workers);

/* SIGKILL to all that live; then wait for them, which the kernel lets last milliseconds. */
void fl_spawn_kill(fl_worker *workers, int n_workers);

/* "worker-3.log" into name [24]. */
const char *fl_spawn_log_name(int rank, char *name);

/* The last lines (at most 10, at most size_bytes - 1) of a worker's log, without its end of line;
 * "" if there are none. Returns text. */
const char *fl_spawn_log_tail(int dir_fd, int rank, char *text, size_t size_bytes);

#endif
