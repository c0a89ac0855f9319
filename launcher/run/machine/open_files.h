/* The limit on open files. */
#ifndef FL_LAUNCHER_RUN_MACHINE_OPEN_FILES_H
#define FL_LAUNCHER_RUN_MACHINE_OPEN_FILES_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { FL_OPEN_FILES_WANTED = 1024 };

/* What a run has open. */
typedef struct fl_open_files_use {
    int n_workers;
    bool ports;    /* it listens for other hosts, or for control.listen */
    int n_servers; /* of control.listen and control.metrics */
} fl_open_files_use;

/* What each process of such a run may have to open. With less, it fails at an arbitrary moment, and
 * ZeroMQ ends the process. With ports, it has what these keep from strangers (fl_door_most). Pure.
 */
uint64_t fl_open_files_least(const fl_open_files_use *use);

/* Raise the limit of this process, which its workers inherit, to FL_OPEN_FILES_WANTED or what the
 * run needs beside the files that the program has opened, or as near as the hard limit allows.
 * FL_EINVAL if that is too low for the run. */
fl_status fl_open_files_allow(const fl_open_files_use *use) FL_MUST_CHECK;

#endif
