#include "control/agent/process/signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

/* Signals that others send to end a process, now or soon. */
static const int stops[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGXCPU, SIGPWR};

/* Signals that end a process by default, and that do not ask a run to stop. */
static const int others[] = {SIGUSR1, SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGIO, SIGSTKFLT};

enum { N_STOPS = sizeof stops / sizeof *stops, N_OTHERS = sizeof others / sizeof *others };

/* ---- before the run ---- */

/* Until a run directory is open there is nothing to end but this process. */
static _Noreturn void end_process(int number, const char *text, size_t n)
{
    (void)!write(STDERR_FILENO, text, n);
    _exit(number == SIGTERM ? FL_SIGNALS_EXIT_TERMINATED : FL_SIGNALS_EXIT_STOPPED);
}

static void end_early(int number)
{
    static const char text[] = "frostline: stopped before the training began\n";
    end_process(number, text, sizeof text - 1);
}

static void end_agent_early(int number)
{
    static const char text[] = "frostline: stopped before this host asked to join the run\n";
    end_process(number, text, sizeof text - 1);
}

static bool is_early(const struct sigaction *action)
{
    return action->sa_handler == end_early || action->sa_handler == end_agent_early;
}

/* A handler of the program stays in force, and so does an ignored signal (nohup: SIGHUP). */
static bool is_free(int number)
{
    struct sigaction now;
    return sigaction(number, NULL, &now) == 0 && (now.sa_handler == SIG_DFL || is_early(&now));
}

void fl_signals_stops(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < N_STOPS; i++) {
        if (is_free(stops[i])) {
            sigaddset(set, stops[i]);
        }
    }
    /* The run decides about these two, whatever the program did with them before. */
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

void fl_signals_remove_stops(sigset_t *set)
{
    for (int i = 0; i < N_STOPS; i++) {
        sigdelset(set, stops[i]);
    }
}

static void forget_early(void)
{
    struct sigaction now;
    for (int i = 0; i < N_STOPS; i++) {
        if (sigaction(stops[i], NULL, &now) == 0 && is_early(&now)) {
            signal(stops[i], SIG_DFL);
        }
    }
}

void fl_signals_end_early(bool is_agent)
{
    sigset_t later, now;
    fl_signals_others(&later);
    sigprocmask(SIG_BLOCK, &later, NULL);
    fl_signals_stops(&now);
    for (int i = 0; i < N_STOPS; i++) {
        if (sigismember(&now, stops[i]) == 1) {
            signal(stops[i], is_agent ? end_agent_early : end_early);
        }
    }
}

void fl_signals_hold_stops(void)
{
    sigset_t set;
    fl_signals_stops(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
    forget_early();
}

/* ---- in the run ---- */

bool fl_signals_is_stop(int number)
{
    for (int i = 0; i < N_STOPS; i++) {
        if (stops[i] == number) {
            return true;
        }
    }
    return false;
}

void fl_signals_others(sigset_t *set)
{
    sigemptyset(set);
    for (int i = 0; i < N_OTHERS; i++) {
        sigaddset(set, others[i]);
    }
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
        sigaddset(set, number);
    }
}

static void take_signal(fl_signals *signals, int number)
{
    if (is_free(number)) {
        sigaddset(&signals->taken, number);
    }
}

static void take_all(fl_signals *signals)
{
    fl_signals_stops(&signals->taken);
    for (int i = 0; i < N_OTHERS; i++) {
        take_signal(signals, others[i]);
    }
    for (int number = SIGRTMIN; number <= SIGRTMAX; number++) {
        take_signal(signals, number);
    }
    sigaddset(&signals->taken, SIGCHLD);
}

void fl_signals_block(fl_signals *signals)
{
    struct sigaction plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    signals->fd = -1;
    take_all(signals);
    sigaction(SIGCHLD, &plain, &signals->child_before); /* an ignored one would reap our children */
    sigaction(SIGPIPE, &ignore, &signals->pipe_before);
    sigaction(SIGXFSZ, &ignore, &signals->size_before); /* the write fails with EFBIG */
    sigprocmask(SIG_BLOCK, &signals->taken, &signals->mask_before);
    forget_early();
}

void fl_signals_in_worker(const fl_signals *signals)
{
    /* A terminal sends these to its whole process group. */
    static const int ignored[] = {SIGINT, SIGHUP, SIGQUIT};
    struct sigaction plain = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};
    sigset_t mask = signals->mask_before;
    for (int i = 0; i < 3; i++) {
        sigaction(ignored[i], &ignore, NULL);
    }
    sigaction(SIGTERM, &plain, NULL);
    for (int number = 1; number <= SIGRTMAX; number++) {
        if (sigismember(&signals->taken, number) == 1) {
            sigdelset(&mask, number);
        }
    }
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

static void restore_actions(const fl_signals *signals)
{
    sigaction(SIGCHLD, &signals->child_before, NULL);
    sigaction(SIGPIPE, &signals->pipe_before, NULL);
    sigaction(SIGXFSZ, &signals->size_before, NULL);
}

static void close_file(fl_signals *signals)
{
    if (signals->fd >= 0) {
        close(signals->fd);
        signals->fd = -1;
    }
}

void fl_signals_restore(fl_signals *signals)
{
    while (signals->fd >= 0 && fl_signals_next(signals) != 0) {
    }
    if (signals->fd < 0) { /* the run has not begun */
        fl_signals_drop_stops();
    }
    close_file(signals);
    restore_actions(signals);
    sigprocmask(SIG_SETMASK, &signals->mask_before, NULL);
}

void fl_signals_keep(fl_signals *signals)
{
    close_file(signals);
    restore_actions(signals);
}

int fl_signals_pending_stop(void)
{
    sigset_t pending;
    if (sigpending(&pending) != 0) {
        return 0;
    }
    for (int i = 0; i < N_STOPS; i++) {
        if (sigismember(&pending, stops[i]) == 1) {
            return stops[i];
        }
    }
    return 0;
}

int fl_signals_take_stop(void)
{
    static const struct timespec at_once = {0};
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < N_STOPS; i++) {
        sigaddset(&set, stops[i]);
    }
    int number = sigtimedwait(&set, NULL, &at_once);
    return number > 0 ? number : 0;
}

void fl_signals_drop_stops(void)
{
    while (fl_signals_take_stop() != 0) {
    }
}
