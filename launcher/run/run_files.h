/* What a run leaves behind: its directory, its folder of checkpoints, its model's file. */
#ifndef FL_LAUNCHER_RUN_RUN_FILES_H
#define FL_LAUNCHER_RUN_RUN_FILES_H

#include "launcher/run/plan/preparation.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/runs/checkpoint_folder.h"
#include "pipe/state/weights/model_file.h"

#include <limits.h>

/* Open while the run trains. */
typedef struct fl_run_files {
    char path[PATH_MAX]; /* of the run directory */
    int dir_fd, held_fd; /* the directory; job.yaml, locked */
    int owner_fd;        /* of the folder of checkpoints: its owner, locked */
    fl_checkpoint_store store;
    char *job_text, *config; /* job.yaml as a checkpoint keeps it; text of config.json */
    fl_model_file model;
    fl_snapshot_view from; /* of a run that goes back to its snapshot */
    bool has_key;          /* the directory has the keys of a run on several hosts */
    bool is_new;           /* the directory has job.yaml of a run that begins */
    bool made_dir;         /* this start has made the directory */
    bool alone;            /* no other process begins a run there (fl_run_place) */
} fl_run_files;

/* run_dir: as fl_run_dir_open takes it. Close them after a failure, too: a directory that this
 * start has made, and in which nothing is, goes with that. */
fl_status fl_run_files_open(const fl_preparation *p, const char *run_dir,
                            fl_run_files *f) FL_MUST_CHECK;
void fl_run_files_close(fl_run_files *f);

/* The training has not begun, and a signal has ended the start: remove what the start has written,
 * when the files are closed, so that the same command may begin the run. A run that continues stays
 * as it is. */
void fl_run_files_forget(fl_run_files *f, int n_ranks);

#endif
