/* Which engine has started this process as one of several tasks, and which of them it is. An engine
 * is Slurm's srun, or the mpirun of an MPI: each starts the same command on every host, with
 * variables in the environment. Nothing of them is linked or called. */
#ifndef FL_LAUNCHER_ENGINE_ENGINE_H
#define FL_LAUNCHER_ENGINE_ENGINE_H

#include <frostline/status.h>

#include <stdbool.h>

/* A variable of the user's: names a start whose engine does not. */
#define FL_ENGINE_START "FROSTLINE_START"

enum { FL_ENGINE_TEXT = 64, FL_ENGINE_START_TEXT = 160 };

typedef struct fl_engine_task {
    const char *engine;        /* "Slurm"; NULL: none, or this is its only task */
    int rank, n;               /* of the tasks, each on a host of its own; 0: the head */
    int cpus;                  /* that the engine gives the task's host; 0: it does not say */
    char host[FL_ENGINE_TEXT]; /* the name of this host, which no other task has */
    int n_hostname; /* `host` is this many characters of the hostname, and then "-" and the rank;
                       0: the engine has given the name */
    char start[FL_ENGINE_START_TEXT]; /* a file's name that tasks of this start have alone */
    const char *nodes; /* all hosts, as fl_node_list_get reads them; NULL: not told */
} fl_engine_task;

/* The value of a variable, or NULL. */
typedef const char *fl_engine_variable(void *context, const char *name);

/* Find the task that the variables describe. hostname: of this host.
 * Returns  FL_EINVAL with the variable, what was found and what is allowed; also for several tasks
 *          on one host
 * Threads  pure, if `variable` is */
fl_status fl_engine_find(fl_engine_variable *variable, void *context, const char *hostname,
                         fl_engine_task *out) FL_MUST_CHECK;

/* The same of this process. */
fl_status fl_engine_find_own(fl_engine_task *out) FL_MUST_CHECK;

/* Where the engine gives no name, tell the host apart by its address, and not by the rank: "vm-0"
 * becomes "vm-10.0.0.1". */
void fl_engine_name_by_address(fl_engine_task *task, const char *address);

/* The i-th host of a list as Slurm writes it, "n[1-3,7],rack2-n04": "n2" for 1. False if there are
 * fewer, or the list is malformed. Pure. */
bool fl_node_list_get(const char *list, int i, char name[FL_ENGINE_TEXT]);

/* How many hosts the list has; -1: it is malformed. Pure. */
int fl_node_list_count(const char *list);

#endif
