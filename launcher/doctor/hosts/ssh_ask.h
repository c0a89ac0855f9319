/* Questions to other hosts: each is a command that ssh starts there, and what it prints is the
 * answer. A caller begins those of all hosts, reads until they have ended, and ends each. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_SSH_ASK_H
#define FL_LAUNCHER_DOCTOR_HOSTS_SSH_ASK_H

#include "device/text/last_line.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { FL_SSH_ASK_END_MS = 2000, FL_SSH_ASK_TEXT = 512 };

typedef struct fl_ssh_ask {
    pid_t pid;    /* 0 or less: nothing was asked, */
    int error;    /* an errno why; 0: the caller did not want it, or there is no memory */
    int fd, said; /* the output and the standard error of ssh; -1: it has ended */
    char *text;   /* [n] the output; beyond 128 KiB it is dropped */
    size_t n;
    fl_last_line last; /* of the standard error */
    double now_s;      /* when the output ended, in seconds since 1970 */
    int64_t rest_us;   /* ssh has ended: until when its output is read; 0: it has not */
    int64_t wait_ms;   /* how long the output was read at most */
    bool late;         /* it had not ended then */
    bool ended;        /* ssh has ended by itself, */
    int how;           /* as waitpid gives it */
} fl_ssh_ask;

/* Start `ssh -o BatchMode=yes ADDRESS COMMAND`. input_fd: its standard input; -1: none. If there is
 * no memory or no process, nothing is asked. */
void fl_ssh_ask_begin(const char *address, const char *command, int input_fd, fl_ssh_ask *out);

/* Nothing is asked. */
void fl_ssh_ask_none(fl_ssh_ask *out);

/* Read until all outputs [n] have ended, but for wait_ms at most. An output has also ended with a
 * whole result (launcher/doctor/hosts/answer.h), and FL_SSH_ASK_END_MS after the end of ssh: what
 * ssh has started in the background, as ControlPersist does, may keep it open. goes_on is called
 * several times a second, and ends the reading if it returns false. */
void fl_ssh_ask_read(fl_ssh_ask *asks, int n, int64_t wait_ms, bool (*goes_on)(void *context),
                     void *context);

/* Wait until the moment until_us for the end of ssh, and kill it then; at once if it is late. */
void fl_ssh_ask_end(fl_ssh_ask *q, int64_t until_us);

/* How it ended, and the last line. */
void fl_ssh_ask_describe(const fl_ssh_ask *q, char text[FL_SSH_ASK_TEXT]);

/* Free the text. */
void fl_ssh_ask_fini(fl_ssh_ask *q);

#endif
