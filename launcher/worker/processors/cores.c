#include "launcher/worker/processors/cores.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The socket, or -1; *taken: another run has bound the name. */
static int make_mark(const char *name, int cpu, bool *taken)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *text = address.sun_path + 1; /* a name that starts with a zero byte is abstract */
    int length = snprintf(text, sizeof address.sun_path - 1, "%s %d", name, cpu);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    *taken = false;
    int mark = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (mark >= 0 && bind(mark, (struct sockaddr *)&address, size) != 0) {
        *taken = errno == EADDRINUSE;
        close(mark);
        mark = -1;
    }
    return mark;
}

/* In the order of their numbers: workers take them in turn. */
static void insert(fl_cores *cores, int cpu, int mark)
{
    int at = cores->n++;
    for (; at > 0 && cores->cpu[at - 1] > cpu; at--) {
        cores->cpu[at] = cores->cpu[at - 1];
        cores->mark[at] = cores->mark[at - 1];
    }
    cores->cpu[at] = cpu;
    cores->mark[at] = mark;
}

void fl_cores_take(const char *name, int wanted, fl_cores *out)
{
    cpu_set_t allowed;
    int taken[CPU_SETSIZE], n_taken = 0;
    out->n = 0;
    out->n_shared = 0;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || wanted > CPU_COUNT(&allowed)) {
        return;
    }
    for (int cpu = 0; cpu < CPU_SETSIZE && out->n < wanted; cpu++) {
        bool is_taken = false;
        if (CPU_ISSET((size_t)cpu, &allowed)) {
            int mark = make_mark(name, cpu, &is_taken);
            if (is_taken) {
                taken[n_taken++] = cpu;
            } else {
                insert(out, cpu, mark);
            }
        }
    }
    for (int i = 0; out->n < wanted; i++) {
        insert(out, taken[i], -1);
        out->n_shared++;
    }
}

void fl_cores_release(fl_cores *cores)
{
    for (int i = 0; i < cores->n; i++) {
        if (cores->mark[i] >= 0) {
            close(cores->mark[i]);
        }
    }
    cores->n = 0;
    cores->n_shared = 0;
}

void fl_cores_confine(const fl_cores *cores, cpu_set_t *before)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < cores->n; i++) {
        CPU_SET((size_t)cores->cpu[i], &set);
    }
    if (sched_getaffinity(0, sizeof *before, before) == 0 && cores->n > 0) {
        (void)sched_setaffinity(0, sizeof set, &set); /* children inherit it */
    }
}
