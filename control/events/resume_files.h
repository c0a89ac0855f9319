/* Continues the files of an interrupted run at a checkpoint. What was written after it is cut off.
 * Cutting is safe at any moment: a run that dies while its files are cut can be resumed from the
 * same checkpoint, whose positions are then still within them. */
#ifndef FL_CONTROL_EVENTS_RESUME_FILES_H
#define FL_CONTROL_EVENTS_RESUME_FILES_H

#include "control/events/runfiles.h"

/* Where the files stood when the checkpoint was written. */
typedef struct fl_runfiles_place {
    int64_t step;                      /* finished steps */
    int64_t steps_bytes, events_bytes; /* lengths of steps.jsonl and events.jsonl */
    double elapsed_s;                  /* by the clock of the run */
} fl_runfiles_place;

/* Lines behind the place. A last line that is incomplete counts. */
typedef struct fl_runfiles_cut {
    int64_t n_steps, n_events;
} fl_runfiles_cut;

/* Check that both files have the place: a line ends there, and the last step before it is
 * place->step - 1. Writes nothing. cut may be NULL.
 * Returns FL_EIO; FL_EFORMAT with "steps.jsonl: byte ...: ..." */
fl_status fl_runfiles_check_place(int dir_fd, const fl_runfiles_place *place,
                                  fl_runfiles_cut *cut) FL_MUST_CHECK;

/* Check it, and open both files to continue there: the run's clock continues at place->elapsed_s.
 * Nothing is changed on the disk: events and steps stay in memory until fl_runfiles_continue, and
 * are dropped if the files are closed before. */
fl_status fl_runfiles_reopen(fl_runfiles *files, int dir_fd,
                             const fl_runfiles_place *place) FL_MUST_CHECK;

/* Cut the reopened files at their place, begin summary.txt again, and add what has waited. FL_EIO;
 * the caller closes the files. */
fl_status fl_runfiles_continue(fl_runfiles *files) FL_MUST_CHECK;

/* Both at once. */
fl_status fl_runfiles_resume(fl_runfiles *files, int dir_fd,
                             const fl_runfiles_place *place) FL_MUST_CHECK;

/* Drop the hashes of weights after later steps from weights.jsonl, and lines that are incomplete or
 * no hashes. The file is replaced atomically; without the file, nothing happens. FL_EIO. */
fl_status fl_runfiles_cut_hashes(int dir_fd, int64_t step) FL_MUST_CHECK;

/* A run of which events.jsonl says that it goes back cannot: add the event run.failed, after
 * elapsed_s seconds and the steps that steps.jsonl has, and make the message the summary. Failures
 * are logged. */
void fl_runfiles_append_failed(int dir_fd, double elapsed_s, const char *message);

#endif
