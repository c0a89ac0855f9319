#include "launcher/doctor/hosts/ssh_ask.h"

#include "control/agent/process/signals.h"
#include "device/system/alloc.h"
#include "device/system/child.h"
#include "device/system/clock.h"
#include "launcher/doctor/hosts/answer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    ANSWER_MAX = 128 * 1024,
    CANNOT_EXECUTE = 127,
    REST_READS = 64,
    TURN_MS = 200,
};

/* ---- begin ---- */

static _Noreturn void become_ssh(const char *address, const char *command, int input, int out,
                                 int said, pid_t parent)
{
    sigset_t mask;
    sigprocmask(SIG_BLOCK, NULL, &mask);
    fl_signals_remove_stops(&mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    int from = input >= 0 ? input : open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (getppid() == parent && from >= 0 && dup2(from, STDIN_FILENO) >= 0 &&
        dup2(out, STDOUT_FILENO) >= 0 && dup2(said, STDERR_FILENO) >= 0) {
        execlp("ssh", "ssh", "-o", "BatchMode=yes", address, command, (char *)NULL);
    }
    dprintf(said, "ssh cannot be started: %s\n", strerror(errno));
    _exit(CANNOT_EXECUTE);
}

static void fork_ssh(const char *address, const char *command, int input, fl_ssh_ask *q)
{
    int out[2], said[2];
    pid_t self = getpid();
    if (pipe2(out, O_CLOEXEC) != 0) {
        q->error = errno;
        return;
    }
    if (pipe2(said, O_CLOEXEC) != 0) {
        q->error = errno;
        close(out[0]);
        close(out[1]);
        return;
    }
    fflush(NULL);
    q->pid = fork();
    q->error = q->pid < 0 ? errno : 0;
    if (q->pid == 0) {
        become_ssh(address, command, input, out[1], said[1], self);
    }
    close(out[1]);
    close(said[1]);
    q->fd = out[0];
    q->said = said[0];
}

void fl_ssh_ask_none(fl_ssh_ask *out)
{
    *out = (fl_ssh_ask){.fd = -1, .said = -1, .ended = true};
}

void fl_ssh_ask_begin(const char *address, const char *command, int input_fd, fl_ssh_ask *out)
{
    static const size_t BYTES = ANSWER_MAX;
    void *text = NULL;
    fl_ssh_ask_none(out);
    if (fl_alloc(BYTES, &text) == FL_OK) {
        out->text = text;
        fork_ssh(address, command, input_fd, out);
    }
}

/* ---- read ---- */

static void end_output(fl_ssh_ask *q)
{
    close(q->fd);
    q->fd = -1;
    q->now_s = (double)fl_now_wall_ns() * 1e-9;
}

/* Read what there is; at its end, fd becomes -1. Bytes beyond ANSWER_MAX are dropped. */
static void read_output(fl_ssh_ask *q)
{
    char more[4096];
    ssize_t n = read(q->fd, more, sizeof more);
    if (n < 0 && errno == EINTR) {
        return;
    }
    if (n <= 0) {
        end_output(q);
        return;
    }
    size_t room = ANSWER_MAX - q->n, fits = (size_t)n < room ? (size_t)n : room;
    memcpy(q->text + q->n, more, fits);
    q->n += fits;
    if (fits > 0 && fl_doctor_is_whole_answer(q->text, q->n)) {
        end_output(q);
    }
}

/* The same of its standard error, of which the last line is kept. */
static void read_said(fl_ssh_ask *q)
{
    char more[4096];
    ssize_t n = read(q->said, more, sizeof more);
    if (n > 0) {
        fl_last_line_add(&q->last, more, (size_t)n);
    } else if (n == 0 || errno != EINTR) {
        close(q->said);
        q->said = -1;
    }
}

static void read_ready(fl_ssh_ask *q, int wait_ms)
{
    struct pollfd items[] = {{.fd = q->fd, .events = POLLIN}, {.fd = q->said, .events = POLLIN}};
    if (poll(items, 2, wait_ms) <= 0) {
        return;
    }
    if (items[1].revents != 0) {
        read_said(q);
    }
    if (items[0].revents != 0) {
        read_output(q);
    }
}

/* What ssh has printed before its end is there at once, or comes soon. */
static void end_if_over(fl_ssh_ask *q)
{
    if (q->rest_us == 0 && fl_child_has_ended(q->pid, &q->how)) {
        q->rest_us = fl_deadline_us(FL_SSH_ASK_END_MS);
    }
    if (q->rest_us != 0 && fl_left_ms(q->rest_us) <= 0) {
        end_output(q);
    }
}

void fl_ssh_ask_read(fl_ssh_ask *asks, int n, int64_t wait_ms, bool (*goes_on)(void *context),
                     void *context)
{
    int64_t until_us = fl_deadline_us(wait_ms);
    bool any = true;
    while (any && fl_left_ms(until_us) > 0 && goes_on(context)) {
        any = false;
        for (int i = 0; i < n; i++) {
            any = any || asks[i].fd >= 0;
            if (asks[i].fd >= 0 || asks[i].said >= 0) {
                read_ready(&asks[i], TURN_MS / n);
            }
            if (asks[i].fd >= 0) {
                end_if_over(&asks[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        asks[i].wait_ms = wait_ms;
    }
}

/* ---- end ---- */

/* What it said last may come after its output has ended. */
static void read_rest(fl_ssh_ask *q)
{
    int flags = fcntl(q->said, F_GETFL);
    (void)fcntl(q->said, F_SETFL, flags | O_NONBLOCK);
    for (int i = 0; q->said >= 0 && i < REST_READS; i++) {
        read_said(q);
    }
    if (q->said >= 0) {
        close(q->said);
        q->said = -1;
    }
}

void fl_ssh_ask_end(fl_ssh_ask *q, int64_t until_us)
{
    q->late = q->fd >= 0;
    if (q->late) {
        close(q->fd);
        q->fd = -1;
    }
    q->ended = q->pid <= 0 || fl_child_await(q->pid, q->late ? 0 : fl_left_ms(until_us), &q->how);
    read_rest(q);
}

void fl_ssh_ask_describe(const fl_ssh_ask *q, char text[FL_SSH_ASK_TEXT])
{
    fl_last_line last = q->last;
    if (last.n == 0 && q->n > 0) { /* a login that is refused may say so there */
        fl_last_line_add(&last, q->text, q->n);
    }
    bool says = last.n > 0;
    if (q->pid <= 0) {
        snprintf(text, FL_SSH_ASK_TEXT, "it was not asked%s%s", q->error == 0 ? "" : ": ",
                 q->error == 0 ? "" : strerror(q->error));
    } else if (q->late) {
        snprintf(text, FL_SSH_ASK_TEXT, "no answer in %d s; ssh was killed",
                 (int)(q->wait_ms / 1000));
    } else if (!q->ended) {
        snprintf(text, FL_SSH_ASK_TEXT,
                 "ssh closed its output without an answer, had not ended %d s later and was killed",
                 FL_SSH_ASK_END_MS / 1000);
    } else {
        snprintf(text, FL_SSH_ASK_TEXT, "ssh ended with %s %d",
                 WIFEXITED(q->how) ? "exit code" : "signal",
                 WIFEXITED(q->how) ? WEXITSTATUS(q->how) : WTERMSIG(q->how));
    }
    size_t n = strlen(text);
    snprintf(text + n, FL_SSH_ASK_TEXT - n, "%s%s%s", says ? ": \"" : "", last.text,
             says ? "\"" : "");
}

void fl_ssh_ask_fini(fl_ssh_ask *q)
{
    fl_free(q->text);
    q->text = NULL;
}
