#include "control/controller/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

void fl_signals_block(fl_signals *signals)
{
    struct sigaction hangup, plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    signals->fd = -1;
    sigemptyset(&signals->taken);
    sigaddset(&signals->taken, SIGINT);
    sigaddset(&signals->taken, SIGTERM);
    sigaddset(&signals->taken, SIGCHLD);
    sigaction(SIGHUP, NULL, &hangup);
    if (hangup.sa_handler != SIG_IGN) {
        sigaddset(&signals->taken, SIGHUP);
    }
    sigaction(SIGCHLD, &plain, &signals->child_before); /* an ignored one would reap our children */
    sigaction(SIGPIPE, &ignore, &signals->pipe_before);
    sigprocmask(SIG_BLOCK, &signals->taken, &signals->mask_before);
}

void fl_signals_in_worker(const fl_signals *signals)
{
    struct sigaction plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    sigaction(SIGINT, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
    sigaction(SIGTERM, &plain, NULL);
    sigset_t mask = signals->mask_before;
    sigdelset(&mask, SIGINT);
    sigdelset(&mask, SIGHUP);
    sigdelset(&mask, SIGCHLD);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_SETMASK, &mask, NULL);
}

fl_status fl_signals_open(fl_signals *signals)
{
    signals->fd = signalfd(-1, &signals->taken, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals->fd < 0) {
        return fl_fail(FL_EIO, "cannot watch signals: %s", strerror(errno));
    }
    return FL_OK;
}

int fl_signals_next(fl_signals *signals)
{
    struct signalfd_siginfo info;
    ssize_t n = read(signals->fd, &info, sizeof info);
    return n == (ssize_t)sizeof info ? (int)info.ssi_signo : 0;
}

void fl_signals_restore(fl_signals *signals)
{
    if (signals->fd >= 0) {
        while (fl_signals_next(signals) != 0) {
        }
        close(signals->fd);
        signals->fd = -1;
    }
    sigaction(SIGCHLD, &signals->child_before, NULL);
    sigaction(SIGPIPE, &signals->pipe_before, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}
