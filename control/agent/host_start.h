/* Starts agents on other hosts by ssh, with the options and keys that the user's ssh has. */
#ifndef FL_CONTROL_AGENT_HOST_START_H
#define FL_CONTROL_AGENT_HOST_START_H

#include "control/state/hosts.h"

#include <stddef.h>
#include <sys/types.h>

enum { FL_HOST_COMMAND_MAX = 16 * 1024 };

/* The shell command that starts the agent of host i: `program`, with the keys in `run_dir`; where
 * the hosts share no files, with those on its standard input, and in the folder `cwd`, if the host
 * has it (NULL: where ssh begins). Each word is quoted. False if it does not fit. Pure. */
bool fl_host_start_command(const fl_hosts *hosts, int i, const char *program, const char *run_dir,
                           const char *cwd, char text[FL_HOST_COMMAND_MAX]);

/* Start `ssh ADDRESS COMMAND` for host i, with this very program; the process ends with the agent
 * that it has started, or before if it could not. It gets SIGTERM when this process dies. Its
 * output goes to standard error. The caller has no threads. Returns -1, with errno, on failure. */
pid_t fl_host_start(const fl_hosts *hosts, int i, const char *run_dir);

#endif
