/* The name of a start by MPICH's mpiexec. Its environment has none; its process manager, Hydra, has
 * one and answers questions on a socket that each task inherits: lines of text, as in version 1 of
 * the process management interface. A task that only asks need not register; but Hydra takes the
 * end of a connection on which something was asked for a failure of the whole start, unless the
 * task has said that it is done with it. Source: MPICH 4.0, src/pm/hydra, pmip_cb.c and
 * pmip_pmi_v1.c. */
#ifndef FL_LAUNCHER_ENGINE_PMI_H
#define FL_LAUNCHER_ENGINE_PMI_H

#include <stdbool.h>
#include <stddef.h>

/* Ask at this socket for the name that all tasks of this start have alone, and close it: no process
 * that the task forks may hold it. False without an answer in two seconds. */
bool fl_pmi_ask_start(int fd, char *name, size_t size_bytes);

#endif
