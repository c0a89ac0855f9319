/* What a host that has joined a run, or is to measure for it, opens first: the job that the head
 * has sent, and the run directory that both see. */
#ifndef FL_LAUNCHER_RUN_JOINED_JOINED_OPEN_H
#define FL_LAUNCHER_RUN_JOINED_JOINED_OPEN_H

#include "autodp/net/store/curve.h"
#include "control/agent/wire/host_wire.h"

#include <frostline/job.h>

/* The job in this file. */
fl_status fl_joined_read_job(int job_fd, int64_t job_bytes, fl_job *job) FL_MUST_CHECK;

/* Change to the head's working directory, to which the job's paths are relative. who: the begin of
 * the message. FL_EINVAL */
fl_status fl_joined_enter(const char *who, const char *cwd) FL_MUST_CHECK;

/* The head's run directory, on a file system that this host shares; then fl_joined_enter(cwd).
 * proof: a file that the head has made there
 * (control/state/hosts/run_proof.h); NULL: its keys suffice, as nothing is written there. *dir_fd
 * stays open on failure, too, and is -1 where the directory cannot be opened. FL_EINVAL */
fl_status fl_joined_open_shared(const char *run_dir, const char *proof, const char *cwd,
                                const fl_curve_keys *keys, int *dir_fd) FL_MUST_CHECK;

/* Show the head that what this host writes there comes to it, by a file and a frame into the socket
 * of the agent: the head starts no worker here before it has seen it. FL_EINVAL: the directory
 * cannot be written here; FL_EIO */
fl_status fl_joined_answer(const fl_host_welcome *welcome, int socket) FL_MUST_CHECK;

#endif
