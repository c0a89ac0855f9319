/* Which processors the workers of this host compute on, and in which socket (processor package)
 * these are. */
#ifndef FL_DEVICE_MACHINE_SOCKETS_H
#define FL_DEVICE_MACHINE_SOCKETS_H

#include "device/machine/survey.h"

/* The processors that this process may run on, ascending: cpu [FL_SURVEY_PROCESSORS_MAX]. Returns
 * how many. */
int fl_processors_list(int *cpu);

/* The socket of a processor, as the kernel numbers it; -1: unknown. root: where /sys lies, "" but
 * in tests. */
int fl_socket_of(const char *root, int cpu);

/* Set the seats of the survey: worker w of n_workers has processors w * cores and up of cpu
 * [n_cpus], as workers are pinned. There are none where workers share processors, the socket of a
 * processor is unknown, or the processors of a worker are in two sockets. */
void fl_sockets_seat(const char *root, const int *cpu, int n_cpus, int cores, int n_workers,
                     fl_device_survey *survey);

#endif
