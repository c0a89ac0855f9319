/* The limit on open files. */
#ifndef FL_LAUNCHER_RUN_MACHINE_OPEN_FILES_H
#define FL_LAUNCHER_RUN_MACHINE_OPEN_FILES_H

#include <frostline/status.h>

#include <stdint.h>

enum { FL_OPEN_FILES_WANTED = 1024 };

/* What each process of a run of this many workers may have to open. With less, it fails at an
 * arbitrary moment, and ZeroMQ ends the process. Pure. */
uint64_t fl_open_files_least(int n_workers);

/* Raise the limit of this process, which its workers inherit, to FL_OPEN_FILES_WANTED or what the
 * run needs, or as near as the hard limit allows. FL_EINVAL if that is too low for the run. */
fl_status fl_open_files_allow(int n_workers) FL_MUST_CHECK;

#endif
