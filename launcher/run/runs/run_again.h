/* The commands that begin a run again of which nothing was kept, or continue one that was lost. Its
 * hosts are in comments of its job.yaml, because the record does not begin before they have joined:
 *
 *     # --hosts hosts.yaml
 *     # --listen tcp://10.0.0.1:5570        or # --ssh, or # --key head.key before it
 *
 *     # as tasks on the same hosts            of Slurm or mpirun, without options
 *
 * They stand before the first field, and a job is read without them. FILE stands for a file that
 * was a pipe. */
#ifndef FL_LAUNCHER_RUN_RUNS_RUN_AGAIN_H
#define FL_LAUNCHER_RUN_RUNS_RUN_AGAIN_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { FL_RUN_AGAIN_TEXT = 8192 };

/* The options that give a run its hosts; "": it does not have this one. */
typedef struct fl_run_again_hosts {
    const char *file, *key;
    const char *listen; /* given by the user, or where agents join that ssh has not started */
    bool ssh;
} fl_run_again_hosts;

/* Write the comments. A name with a line break is left out. */
void fl_run_again_note(FILE *job, const fl_run_again_hosts *hosts);

/* The same as a user types them, " --hosts FILE --listen ADDRESS". Returns text. */
const char *fl_run_again_options(const fl_run_again_hosts *hosts, char *text, size_t size_bytes);

/* The comment of a run whose hosts are those of tasks that an engine has started. */
void fl_run_again_note_tasks(FILE *job);

/* A directory beside that of the run which is not there yet: DIR-2, ... Returns path. */
const char *fl_run_again_dir(const char *dir, char path[PATH_MAX]);

/* "nothing of the run was kept; `frostline run DIR/job.yaml --hosts FILE --listen ADDRESS --run-dir
 * DIR --continue` begins it again", of the run in the directory `dir`.
 * Tasks read the job while the directory would get another name, so theirs is DIR-2.
 * job      the text of its job.yaml
 * Returns  text */
const char *fl_run_again_text(const char *dir, const char *job, bool is_program,
                              char text[FL_RUN_AGAIN_TEXT]);

/* "`frostline run --resume DIR --hosts FILE --listen ADDRESS` continues it". As above. */
const char *fl_run_resume_text(const char *dir, const char *job, bool is_program,
                               char text[FL_RUN_AGAIN_TEXT]);

/* The same two, of a run directory that another process may hold: its job.yaml is read. */
const char *fl_run_again_look(const char *dir, char text[FL_RUN_AGAIN_TEXT]);
const char *fl_run_resume_look(const char *dir, char text[FL_RUN_AGAIN_TEXT]);

/* Whether the run in the open directory `dir`, which no process holds, was lost before it trained:
 * there is a job and the key that a head leaves which was killed, and no record. */
bool fl_run_again_is_due(int dir);

#endif
