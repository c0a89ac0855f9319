#include "device/machine/sockets.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>

_Static_assert(FL_SURVEY_PROCESSORS_MAX == CPU_SETSIZE, "a processor of each number has a place");

int fl_processors_list(int *cpu)
{
    cpu_set_t set;
    int n = 0;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &set)) {
            cpu[n++] = (int)i;
        }
    }
    return n;
}

int fl_socket_of(const char *root, int cpu)
{
    char path[PATH_MAX];
    int socket = -1;
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
             root, cpu);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    bool found = fscanf(file, "%9d", &socket) == 1 && socket >= 0;
    fclose(file);
    return found ? socket : -1;
}

/* The socket of all these processors; -1: there is no such one. */
static int common_socket(const char *root, const int *cpu, int n)
{
    int socket = fl_socket_of(root, cpu[0]);
    for (int i = 1; i < n && socket >= 0; i++) {
        socket = fl_socket_of(root, cpu[i]) == socket ? socket : -1;
    }
    return socket;
}

void fl_sockets_seat(const char *root, const int *cpu, int n_cpus, int cores, int n_workers,
                     fl_device_survey *survey)
{
    survey->n_seats = 0;
    if (cores < 1 || n_workers < 1 || n_workers > n_cpus / cores) {
        return;
    }
    for (int w = 0; w < n_workers; w++) {
        survey->seat_socket[w] = common_socket(root, cpu + w * cores, cores);
        if (survey->seat_socket[w] < 0) {
            return;
        }
    }
    for (int i = 0; i < n_workers * cores; i++) {
        survey->seat_cpu[i] = cpu[i];
    }
    survey->n_seats = n_workers;
    survey->seat_cores = cores;
}
