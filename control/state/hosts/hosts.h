/* The hosts of a run: where the workers are, and how their agents and links reach the head, which
 * is the host of the controller. A value that the controller, the agents and the workers share. */
#ifndef FL_CONTROL_STATE_HOSTS_HOSTS_H
#define FL_CONTROL_STATE_HOSTS_HOSTS_H

#include "autodp/net/store/curve.h"
#include "control/state/hosts/host_sight.h"

#include <frostline/plan.h>

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

/* In the run directory, mode 0600: what an agent needs to join. */
#define FL_HOSTS_KEY_FILE "hosts.key"

/* How the reason begins why a host is lost whose agent a signal has ended; its number follows. */
#define FL_HOST_STOPPED "stopped by signal "

enum { FL_HOST_TEXT = 64, FL_HOSTS_ENDPOINT_MAX = 128 };

typedef struct fl_host {
    char name[FL_HOST_TEXT];
    char address[FL_HOST_TEXT]; /* of the data plane, an IP address */
    int first, n;               /* the ranks of its workers */
    bool absent;                /* the run goes on without it, and does not wait for it */
    int apart_from;             /* absent: 1 + the host that it does not reach; 0: none */
    fl_host_trial trial;        /* with apart_from */
    int n_apart;                /* how often the run has left it out for that */
} fl_host;

typedef struct fl_hosts {
    int n;
    fl_host host[FL_MAX_WORKERS];       /* [n], the head first; ranks ascend */
    char agents[FL_HOSTS_ENDPOINT_MAX]; /* "tcp://ADDRESS:PORT", where the head waits for agents */
    char links[FL_HOSTS_ENDPOINT_MAX];  /* the same, for the workers' control links */
    fl_curve_keys keys;                 /* of the agents and of all workers */
    char secret[FL_CURVE_KEY];          /* of the head */
    char key_path[PATH_MAX];            /* of the file that has these keys; "": they are new */
    char listen[FL_HOSTS_ENDPOINT_MAX]; /* `agents`, as a user has given it; "": it was chosen */
    bool apart;                         /* they share no files */
    bool by_ssh;                        /* the head starts the agents */
    char ssh[FL_MAX_WORKERS][FL_HOST_TEXT]; /* [n] where ssh finds each host; with by_ssh */
    char meeting[PATH_MAX]; /* where the tasks of an engine wait for the run's keys; "": none do */
    bool (*has_lost)(const char *meeting, int i, bool *unfit); /* with `meeting`: the task of host i
                                                     has ended; unfit: it cannot take part */
    bool again;        /* the run goes back, and agents that were in it join again by themselves */
    int64_t detect_ms; /* fault.detect: within it, a run goes on without a host that has vanished */
    uint16_t ports[2]; /* the first and the last one at which hosts listen for each other; 0: any */
} fl_hosts;

/* "the ports 20000 to 20499", or "any port". Returns text. */
enum { FL_HOSTS_PORTS_TEXT = 40 };
const char *fl_hosts_ports_text(const uint16_t ports[2], char text[FL_HOSTS_PORTS_TEXT]);

/* The folder of hosts.key, as another host has it: the run directory; or, of hosts that share no
 * files and whose head has got its keys from a file, that of this file. */
const char *fl_hosts_key_folder(const fl_hosts *hosts, const char *run_dir, char text[PATH_MAX]);

/* The index of the host that this rank is on; -1: none is, so far. Pure. */
int fl_hosts_of(const fl_hosts *hosts, int rank);

/* The index of the host of this name; -1: there is none. Pure. */
int fl_hosts_find(const fl_hosts *hosts, const char *name);

/* How many ranks the hosts have: those below have a host. Pure. */
int fl_hosts_n_ranks(const fl_hosts *hosts);

/* Add a host with the next n ranks, of which there are enough; returns its index. Pure. */
int fl_hosts_add(fl_hosts *hosts, const char *name, const char *address, int n);

#endif
