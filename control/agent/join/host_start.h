/* Starts agents on other hosts by ssh, with the options and keys that the user's ssh has. */
#ifndef FL_CONTROL_AGENT_JOIN_HOST_START_H
#define FL_CONTROL_AGENT_JOIN_HOST_START_H

#include "control/state/hosts/host_record.h"
#include "control/state/hosts/hosts.h"
#include "device/text/last_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FL_HOST_COMMAND_MAX = 16 * 1024, FL_HOST_STARTER_WHY = FL_HOST_WHY_MAX + 1 };

/* The shell command that starts the agent of host i: `program`, with the keys in `run_dir`; where
 * the hosts share no files, with those on its standard input, and in the folder `cwd`, if the host
 * has it (NULL: where ssh begins). Each word is quoted. False if it does not fit. Pure. */
bool fl_host_start_command(const fl_hosts *hosts, int i, const char *program, const char *run_dir,
                           const char *cwd, char text[FL_HOST_COMMAND_MAX]);

enum {
    FL_HOST_AWAITED_TEXT = 3584, /* with its beginning, a line of the log */
    FL_HOST_PROGRAM_TEXT = 1024, /* "..." stands for a longer one */
};

/* "waits for 2 other hosts, 600 s at most: " and their names; where nothing else starts their
 * agents, the commands follow, each alone in its line, with `program` as their first word (NULL:
 * the agents were there to be measured, and join by themselves). Returns text. Pure. */
const char *fl_host_start_awaited(const fl_hosts *hosts, const char *program, const char *run_dir,
                                  int64_t limit_ms, char text[FL_HOST_AWAITED_TEXT]);

enum { FL_HOST_STARTER_LINE = 4096 }; /* as a line of the log */

/* An ssh process that starts an agent. All zeros: there is no such process. Its standard input
 * stays open for as long as the head needs the agent: an agent that has not joined the run ends
 * with it, whatever becomes of the head and of ssh (control/agent/relay/relay_input.h). */
typedef struct fl_host_starter {
    pid_t pid;                       /* 0: none, or it has ended */
    int input_fd;                    /* the other end of its standard input */
    int said_fd;                     /* what it and the agent say; 0: that has ended */
    int ended_fd;                    /* readable once it has ended, also for another process */
    bool unfit;                      /* its agent has ended because this host cannot take part */
    fl_last_line last;               /* of what they said */
    char host[FL_HOST_TEXT];         /* whose agent it starts */
    char line[FL_HOST_STARTER_LINE]; /* [n_line] of it, which has not ended, and is not shown */
    size_t n_line;
    bool goes_on; /* `line` is the rest of one whose beginning was shown */
} fl_host_starter;

/* Start `ssh ADDRESS COMMAND` for host i, with this very program; the process ends with the agent
 * that it has started, or before if it could not. It gets SIGTERM when this process dies. The
 * caller has no threads. A process that this one forks later may use a copy of it. False, with
 * errno, on failure. */
bool fl_host_start(const fl_hosts *hosts, int i, const char *run_dir, fl_host_starter *out);

/* Pass on what it has said to standard error, line by line, each with the name of its host, or drop
 * it: what comes last is kept. Never waits. */
void fl_host_starter_read(fl_host_starter *starter, bool shows);

/* Whether it has ended; `why` [FL_HOST_STARTER_WHY] then says how, with its own last words and what
 * to do; starter->unfit is set if another start would end like this one. Never waits; true once. */
bool fl_host_starter_ended(fl_host_starter *starter, const char *address, bool shows, char *why);

/* End it, and an agent that has not joined, at once; the process is still to be closed. */
void fl_host_starter_cut(fl_host_starter *starter);

/* Wait for its end, at most so long; then end it. */
void fl_host_starter_close(fl_host_starter *starter, int64_t wait_ms, bool shows);

/* Close this process's copy of one that another process uses. */
void fl_host_starter_forget(fl_host_starter *starter);

#endif
