/* The files that the controller writes into the run directory: steps.jsonl, events.jsonl and
 * summary.txt. A file that cannot be written (a full disk, a removed directory) does not end the
 * run. The lines that it lacks are counted, so that an incomplete record is always reported as one.
 *
 * The end of the run must be recorded even when the disk is full, so space for it is reserved in
 * time: after the last event, and for summary.txt. Ordinary events stop when no further space can
 * be reserved; the events that report how the run ended use the reserve. On a file system without
 * fallocate there is no such reserve. */
#ifndef FL_CONTROL_EVENTS_RUNFILES_H
#define FL_CONTROL_EVENTS_RUNFILES_H

#include "control/events/json.h"
#include "control/link/link.h"

typedef enum fl_runfile {
    FL_RUNFILE_STEPS,
    FL_RUNFILE_EVENTS,
    FL_RUNFILE_SUMMARY,
    FL_RUNFILES, /* the number of files */
} fl_runfile;

/* The gap in one file. */
typedef struct fl_runfile_gap {
    int64_t n_lines;    /* lines that could not be written; 0: none */
    int64_t first_step; /* of steps.jsonl: the first missing step */
    bool removed;       /* its name no longer exists in the run directory */
    int error;          /* errno of the first failure */
} fl_runfile_gap;

typedef struct fl_runfiles {
    int fd[FL_RUNFILES]; /* -1: closed */
    int64_t start_us;    /* the run's clock counts from here (fl_now_us), */
    double start_wall_s; /* the same moment since 1970 */
    int64_t begun_ms;    /* when the command began (begun.h) */
    fl_json steps;       /* complete lines that were not written yet: */
    int64_t n_steps;     /* their number */
    int64_t first_step;  /* the first of them */
    fl_json event;       /* the one being built */
    bool event_is_vital; /* it may use the reserve */
    bool full;           /* no space could be reserved behind the last event */
    bool waits;          /* fl_runfiles_reopen: the files are as the run left them before, and */
    fl_json waiting;     /* these events wait; */
    int dir_fd;          /* of the run directory; borrowed */
    int64_t steps_bytes, events_bytes; /* where the files are to be cut */
    fl_runfile_gap gap[FL_RUNFILES];
} fl_runfiles;

/* When something happened. */
typedef struct fl_run_moment {
    double time_s; /* by the clock of the run */
    double wall_s; /* since 1970, UTC */
} fl_run_moment;

/* "steps.jsonl" */
const char *fl_runfile_name(fl_runfile file);

/* Call it before fl_runfiles_open: marks every file as closed. */
void fl_runfiles_init(fl_runfiles *files);

/* The run's clock shows elapsed_s now. */
void fl_runfiles_set_clock(fl_runfiles *files, double elapsed_s);

/* Create the files in the directory, or empty them. The run's clock starts now. */
fl_status fl_runfiles_open(fl_runfiles *files, int dir_fd) FL_MUST_CHECK;
void fl_runfiles_close(fl_runfiles *files);

/* Create summary.txt, or empty it, and reserve space for the end of the run. The other files are
 * open. */
fl_status fl_runfiles_begin_summary(fl_runfiles *files, int dir_fd) FL_MUST_CHECK;

/* Add a line; fl_runfiles_flush writes it. */
void fl_runfiles_step(fl_runfiles *files, const fl_metric_list *metrics,
                      const fl_step_report *step);
void fl_runfiles_flush(fl_runfiles *files);

/* Start an event's line: time (seconds since the start), wall (UTC), event, generation. The caller
 * adds fields and ends it; the line is then written at once, by one write. */
fl_json *fl_runfiles_event(fl_runfiles *files, const char *event, uint32_t generation);

/* The same for something that happened at another moment. */
fl_json *fl_runfiles_event_at(fl_runfiles *files, const char *event, uint32_t generation,
                              const fl_run_moment *at);
void fl_runfiles_event_end(fl_runfiles *files);

/* The length of events.jsonl, with the events that wait. */
int64_t fl_runfiles_events_bytes(const fl_runfiles *files);

/* Write the events that have waited, now that the files are cut. */
void fl__runfiles_add_waiting(fl_runfiles *files);

/* Replace the contents of summary.txt. */
void fl_runfiles_summary(fl_runfiles *files, const char *text, size_t size_bytes);

/* Note which files were removed from the run directory. */
void fl_runfiles_look(fl_runfiles *files);

/* Append lines to a file, whole or not at all: a cut write is taken back. No other process may
 * append meanwhile. Returns 0, or errno. */
int fl_runfile_append(int fd, const char *text, size_t size_bytes);

/* Describe a file's gap: "steps.jsonl lacks 12 steps, from step 103 on (No space left on device)";
 * "" if it has none. Returns text. */
const char *fl_runfile_gap_text(const fl_runfiles *files, fl_runfile file, char *text,
                                size_t size_bytes);

#endif
