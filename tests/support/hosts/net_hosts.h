/* Hosts as network name spaces of one machine: each has an address of its own, and a virtual cable
 * to a bridge. They share processors and files, but no memory goes between them that is not sent.
 *
 *     DIR/hosts.yaml, DIR/head.log, DIR/<name>.log     the file of hosts; what their programs say
 *     DIR/run                                          the run directory of net_hosts_start_head */
#ifndef FL_TESTS_SUPPORT_HOSTS_NET_HOSTS_H
#define FL_TESTS_SUPPORT_HOSTS_NET_HOSTS_H

#include "support/folder.h"
#include "support/nap.h"

#include "device/system/clock.h"

#include <stdbool.h>
#include <sys/types.h>

enum {
    NET_HOSTS_MAX = 4,
    NET_HOSTS_STOPPED_MAX = 8,
    NET_HOSTS_TEXT = 4096,
    NET_HOSTS_WAIT_MS = 120000
};

typedef struct net_host {
    char name[8], space[32], address[32];
    int n_devices;
    pid_t agent; /* 0: it runs none. Not of the first host */
} net_host;

typedef struct net_hosts {
    char dir[FOLDER_SIZE];
    int n;
    bool exist;    /* false: no right to make name spaces */
    bool loopback; /* there are none: the hosts are addresses of this machine */
    int lock_fd;   /* with loopback: no other test has the port of the head */
    net_host host[NET_HOSTS_MAX];
    pid_t head;
    int n_stopped;
    pid_t stopped[NET_HOSTS_STOPPED_MAX]; /* [n_stopped] by net_hosts_stop */
} net_hosts;

/* Wait for the condition, or fail. */
#define NET_AWAIT(condition)                                                                       \
    for (int64_t until_us = fl_deadline_us(NET_HOSTS_WAIT_MS); !(condition); nap(2000)) {          \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

#define NET_NEED(h)                                                                                \
    if (!(h)->exist) {                                                                             \
        print_message("skipped: no right to make network name spaces\n");                          \
        skip();                                                                                    \
    }

/* A small model on images that are drawn: short steps. */
#define NET_JOB                                                                                    \
    "'" FL_SOURCE_DIR "/configs/quickstart.yaml' --set data.path='" FL_TEST_FASHION "' "           \
    "--set model.blocks=2 --set model.dim=16 "                                                     \
    "--set train.batch=16 --set train.evaluate=false --set freeze.policy=none "                    \
    "--set pipe.tune=false --set train.warmup=0 --set train.decay=constant "                       \
    "--set devices.count=auto --set fault.detect=20s "

/* n hosts a, b, ... of n_devices[i] each. */
void net_hosts_make(net_hosts *h, int n, const int *n_devices);

/* The same by loopback addresses, which needs no right. */
void net_hosts_make_loopback(net_hosts *h, int n);

/* The same, with processes ended and the folder removed; its result is that of a teardown. */
int net_hosts_remove(net_hosts *h);

/* Stop a process (SIGSTOP) that the head or an agent has started. What is still stopped when the
 * hosts are removed is killed then: a young process does not end with its parent yet. */
void net_hosts_stop(net_hosts *h, pid_t pid);

/* net_hosts_make for a test's state, and the teardown of such a test. */
int net_hosts_set_up(void **state, int n, const int *n_devices);
int net_hosts_tear_down(void **state);

/* Write DIR/hosts.yaml with the hosts of these letters: "ac". */
void net_hosts_write_file(const net_hosts *h, const char *letters);

/* Run a command by sh; whether its exit code is 0. What it says: net_hosts_said. */
bool net_hosts_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
const char *net_hosts_said(void);

/* `frostline ARGUMENTS` on host i; its output is appended to DIR/log. */
pid_t net_hosts_start(const net_hosts *h, int i, const char *log, const char *arguments);

/* `frostline run JOB` on the hosts of DIR/hosts.yaml; job NET_JOB with more, or "--resume ...". */
void net_hosts_start_head(net_hosts *h, const char *job);

/* The same, with this limit of open files (ulimit -n) for each of its processes. */
void net_hosts_start_head_limited(net_hosts *h, const char *job, int n_files);

/* The agent of host i, once the run's keys are there. */
void net_hosts_start_agent(net_hosts *h, int i);

/* The same with options of its own; "": none. */
void net_hosts_start_agent_for(net_hosts *h, int i, const char *options);

/* The same, once a command has ended in DIR, whose mounts are seen by that host alone. */
void net_hosts_start_agent_after(net_hosts *h, int i, const char *command);

/* The same, with DIR/SHOWN in place of the folder or file `path` on that host alone. */
void net_hosts_start_agent_with(net_hosts *h, int i, const char *shown, const char *path);

/* The same with variables of its environment: "NAME=VALUE NAME=VALUE". */
void net_hosts_start_agent_env(net_hosts *h, int i, const char *variables);

/* The same on a host whose monotonic clock is `ahead_s` seconds ahead of this machine's. */
void net_hosts_start_agent_ahead(net_hosts *h, int i, int ahead_s);

/* The same on a host that does not see DIR/run, and works in DIR/<name>. */
void net_hosts_start_agent_apart(net_hosts *h, int i);

/* Wait until the run's keys are there. */
void net_hosts_await_key(net_hosts *h);

/* Wait until the process ends; its exit code, or 128 + signal. */
int net_hosts_await_exit(pid_t *pid);

/* The head ends with this code, and all agents with 0, or with agent_code; else show what they
 * said. */
void net_hosts_expect(net_hosts *h, int head_code);
void net_hosts_expect_codes(net_hosts *h, int head_code, int agent_code);
void net_hosts_show_logs(const net_hosts *h);

/* NET_JOB with one worker on this machine, into DIR/alone. */
void net_hosts_run_alone(const net_hosts *h, const char *more);

/* Cut one way between two hosts, or restore it: what `from` sends to `to` is lost without a word,
 * while what `to` sends arrives. */
void net_hosts_cut(const net_hosts *h, int from, int to, bool cut);

/* The first process that `parent` has started; 0: none so far. */
pid_t net_hosts_child_of(pid_t parent);

/* Whether this processor has the instruction set of these kernels; if not, it is printed that the
 * test is skipped. */
bool net_hosts_have_kernels(const char *name);

/* How many descriptors a process has, and two more. */
int net_hosts_n_files(pid_t pid);

#endif
