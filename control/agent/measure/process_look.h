/* What the kernel tells about another process of this user: whether it computes or sleeps. */
#ifndef FL_CONTROL_AGENT_MEASURE_PROCESS_LOOK_H
#define FL_CONTROL_AGENT_MEASURE_PROCESS_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Threads that compute, or that want to. */
typedef struct fl_thread_look {
    int64_t n_major_faults; /* page faults so far that had to wait for a disk */
    bool is_runnable;       /* one of them computes, or waits for a processor */
} fl_thread_look;

/* The threads of the control link are awake in a worker that hangs, too: they count apart. */
typedef struct fl_process_look {
    int64_t cpu_us; /* processor time of all threads so far */
    fl_thread_look work, link;
} fl_process_look;

/* False if the process has ended or /proc cannot be read. *is_ending: a signal ends it, but some of
 * its threads have not got a processor for that yet; none of them counts as runnable. */
bool fl_process_look_at(pid_t pid, fl_process_look *out, bool *is_ending);

/* ---- its part, for tests ---- */

typedef struct fl_thread_line {
    char name[64];
    char state;
    bool is_ending; /* by a signal, which it may not have taken yet */
    int64_t n_major_faults;
} fl_thread_line;

/* A line of /proc/PID/task/TID/stat: "TID (name) state", then numbers. False: it is not one. Pure.
 */
bool fl_process_look_parse(const char *line, fl_thread_line *out);

#endif
