/* Hosts as network name spaces with the services of an engine on them: daemons of Slurm, of mpirun
 * or sshd, which the test starts and ends. Each host has one processor of this machine, and another
 * one than the host before it, as far as there are enough: workers of hosts that share a processor
 * hold each other up, which hosts do not. */
#ifndef FL_TESTS_SUPPORT_HOSTS_SITE_H
#define FL_TESTS_SUPPORT_HOSTS_SITE_H

#include "support/hosts/net_hosts.h"

#include <stdbool.h>
#include <stdio.h>

enum { SITE_SERVICES_MAX = 8 };

typedef struct site {
    net_hosts h;
    int n_services;
    pid_t service[SITE_SERVICES_MAX];
    bool has_slurm; /* its programs answer */
} site;

/* Three hosts, for a test's state; whatever is left on a host ends with it. */
int site_make(void **state);
int site_remove(void **state);

/* Of this machine. */
int site_processor(int host);

/* Start a command of sh on host i, or with -1 on none; it lasts as long as the test. What it says:
 * DIR/services.log. */
void site_start(site *s, int i, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Run a command on host i; whether it ends with 0. */
bool site_on_host(const site *s, int i, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Write DIR/name. */
void site_write(const site *s, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Print what all programs said, the last events, and the processes that are left on each host: of
 * each, where the kernel holds it. It takes seconds, also where something stands still. */
void site_show(const site *s);

/* Wait for the condition, or show all of that, and fail. The wait is named first: what follows may
 * be cut. */
#define AWAIT(s, condition)                                                                        \
    for (int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS); !(condition); nap(20000)) {         \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fprintf(stderr, "%s:%d: error: never: %s\n", __FILE__, __LINE__, #condition);          \
            site_show(s);                                                                          \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

#endif
