/* Warns before a run of file systems on which what it writes may not fit. A run is not refused: the
 * files of earlier runs may be removed while it trains, and a full disk ends no run
 * (docs/runs.md). */
#ifndef FL_LAUNCHER_RUN_CHECKS_ROOM_H
#define FL_LAUNCHER_RUN_CHECKS_ROOM_H

#include "launcher/run/plan/preparation.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the run writes to a folder, in bytes. */
typedef struct fl_room_need {
    int64_t records; /* events.jsonl, steps.jsonl, ledger.bin and the logs of workers */
    int64_t model, checkpoints;
} fl_room_need;

/* The need of a run whose workers log into this folder. Pure. */
fl_room_need fl_room_of_run(const fl_job *job, int64_t n_params, int n_workers);
fl_room_need fl_room_of_logs(int n_workers);

/* Whether all of it fits into free_bytes (-1: not known). If not, text [size_bytes] gets where,
 * what was found and what is needed. Pure. */
bool fl_room_fits(const char *where, int64_t free_bytes, const fl_room_need *need, char *text,
                  size_t size_bytes);

/* What NCCL takes of /dev/shm, at least, for each GPU of a host. */
#define FL_ROOM_SHM_BYTES (INT64_C(32) << 20)

/* Free bytes for this user on the file system of the open folder; -1: not known. */
int64_t fl_room_left(int folder_fd);

/* Log a warning if the run does not fit into its run directory, with checkpoints in the folder of
 * checkpoints_fd; and if the GPUs of this host need more of /dev/shm than there is. */
void fl_room_check_run(const fl_preparation *p, const char *path, int dir_fd, int checkpoints_fd);

/* The same of another host than the head, with n_workers. path: its folder for their logs; NULL: it
 * shares the run directory, so that dir_fd is not looked at. */
void fl_room_check_logs(const fl_preparation *p, const char *path, int dir_fd, int n_workers);

#endif
