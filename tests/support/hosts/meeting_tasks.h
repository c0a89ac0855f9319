/* Tasks of a start that meet in a folder, as processes: the locks of one process are not seen by
 * itself. */
#ifndef FL_TESTS_SUPPORT_HOSTS_MEETING_TASKS_H
#define FL_TESTS_SUPPORT_HOSTS_MEETING_TASKS_H

#include "launcher/engine/meeting.h"

#include <sys/types.h>

#define MEETING_ENDPOINT "tcp://10.0.0.1:5570"

enum { MEETING_WAIT_MS = 20000, MEETING_JOINS = 97, MEETING_TASKS = 3 };

/* A task of Slurm, of n tasks on n1, n2, n3. */
fl_engine_task meeting_task(int rank, int n);

int meeting_no_stop(void);
int meeting_terminated(void);

/* What the process of a task does once it has its lock. */
typedef enum meeting_part {
    MEETING_STAYS,           /* lives until it is killed */
    MEETING_STAYS_ELSEWHERE, /* the same, as of another machine */
    MEETING_COMES,           /* says which host it has, and lives until it is killed */
    MEETING_AWAITS, /* waits for the head: ends with its code, or with MEETING_JOINS once it
                       has MEETING_ENDPOINT */
    MEETING_LEADS,  /* the head: gathers all tasks, announces MEETING_ENDPOINT, and lives until it
                       is killed */
} meeting_part;

/* Start the process of a task; returns once it has its lock, and has said which host it has. */
pid_t meeting_start(const char *parent, int rank, int n, meeting_part part);

/* Kill it, and wait for its end. */
void meeting_kill(pid_t pid);

/* The exit code with which it ends; -1: it was killed. */
int meeting_exit(pid_t pid);

/* Wait until the task has seen that the head lives. */
void meeting_await_start(const char *parent, int rank);

/* A file in the folder. */
void meeting_write(const char *dir, const char *name, const char *text);

#endif
