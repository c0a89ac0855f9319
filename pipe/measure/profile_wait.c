/* 3 of pipe/measure/profile.c: the wait for the children. */
#include "pipe/measure/profile_state.h"

#include "device/system/child.h"
#include "device/system/clock.h"
#include "nn/model.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    LOOK_MS = 100,
    END_MS = 5000, /* for a child to end once its pipe is closed */
};

/* A call of a layer gets fault.deadline, and at least this: all children compute at once, on a
 * machine that may have other work. */
enum { LEAST_CALL_MS = 5000 };

static const char *phase_text(const fl__profiler *p, const fl_probe *probe,
                              char text[FL_LAYER_TEXT_MAX])
{
    switch (probe->phase) {
    case FL_PROBE_LAYER:
        return fl_model_layer_text(p->model, probe->layer, text);
    case FL_PROBE_LOSS:
        return "the loss";
    case FL_PROBE_OPTIMIZER:
        return "the optimizer";
    case FL_PROBE_LINK:
        return "the link between two workers";
    case FL_PROBE_NCCL:
        return "the link between two workers over NCCL";
    case FL_PROBE_PEAK:
        return "the device's peak";
    case FL_PROBE_READ:
        return "reads from the cache";
    case FL_PROBE_START:
        break;
    }
    return "the model's memory";
}

/* The child has ended: how? */
static fl_status judge(const fl__profiler *p, int index, int how)
{
    const fl_probe *probe = &p->segment->probe[index];
    char text[FL_LAYER_TEXT_MAX];
    const char *what = phase_text(p, probe, text);
    if (WIFSIGNALED(how)) {
        return fl_fail(FL_EFAILED,
                       "profile: the process that measured %s was killed by signal %d (%s)", what,
                       WTERMSIG(how), strsignal(WTERMSIG(how)));
    }
    if (!__atomic_load_n(&probe->done, __ATOMIC_ACQUIRE)) {
        return fl_fail(FL_EFAILED, "profile: the process that measured %s ended with exit code %d",
                       what, WEXITSTATUS(how));
    }
    if (probe->why != FL_OK) {
        /* A layer's own message says which it was. */
        bool says = probe->phase == FL_PROBE_LAYER || probe->phase == FL_PROBE_LOSS;
        /* A device without the memory for its budget is a matter of the job. */
        fl_status status = probe->why == FL_ENOMEM ? FL_EBUDGET : FL_EFAILED;
        return says ? fl_fail(status, "profile: %s", probe->message)
                    : fl_fail(status, "profile: measuring %s: %s", what, probe->message);
    }
    return FL_OK;
}

/* The code of a model can close the pipe that ends with its process. */
static fl_status endless(const fl__profiler *p, int index)
{
    char text[FL_LAYER_TEXT_MAX];
    return fl_fail(FL_EFAILED,
                   "profile: the process that measured %s closed its pipe, did not end within %d s "
                   "and was killed",
                   phase_text(p, &p->segment->probe[index], text), END_MS / 1000);
}

static fl_status reap(fl__profiler *p, int index)
{
    int how = 0;
    bool ended = fl_child_await(p->pid[index], END_MS, &how);
    p->pid[index] = 0;
    close(p->end[index]);
    p->end[index] = -1;
    const fl_probe *probe = &p->segment->probe[index];
    if (fl_probe_is_in_nccl(probe)) {
        fl_probe_nccl_judge(&p->nccl, probe, how);
        return FL_OK;
    }
    return ended ? judge(p, index, how) : endless(p, index);
}

static fl_status too_slow(const fl__profiler *p, int index)
{
    char text[FL_LAYER_TEXT_MAX];
    bool is_link = p->segment->probe[index].phase == FL_PROBE_LINK;
    return fl_fail(FL_EDEADLINE, "profile: still measuring %s after %.3g s%s",
                   phase_text(p, &p->segment->probe[index], text), (double)p->timeout_ms * 1e-3,
                   is_link ? "; loopback may be filtered: a firewall must accept packets of every "
                             "size over the interface lo (`frostline doctor` tries small ones)"
                           : "");
}

/* Note whether it was stopped or goes on; its end is the business of reap. */
static void look_at_child(fl__profiler *p, int index, int64_t now_us)
{
    siginfo_t info;
    do {
        info.si_pid = 0;
        if (waitid(P_PID, (id_t)p->pid[index], &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
            info.si_pid != 0) {
            p->stopped_us[index] = info.si_code == CLD_CONTINUED ? 0 : now_us;
        }
    } while (info.si_pid != 0);
}

/* Fail if a call of a layer or of the loss does not return in time. Other phases run no code of the
 * model: only the time for the whole profile limits them, and a link that is slow on a busy machine
 * may take longer, as long as it moves something. */
static fl_status watch_call(fl__profiler *p, int index, bool paused, int64_t now_us)
{
    const fl_probe *probe = &p->segment->probe[index];
    char text[FL_LAYER_TEXT_MAX];
    int64_t deadline_ms = p->job->fault.deadline_ms;
    int64_t limit_ms = deadline_ms > LEAST_CALL_MS ? deadline_ms : LEAST_CALL_MS;
    int n_calls = __atomic_load_n(&probe->n_calls, __ATOMIC_RELAXED);
    bool calls = probe->phase == FL_PROBE_LAYER || probe->phase == FL_PROBE_LOSS;
    if (probe->phase == FL_PROBE_LINK && n_calls != p->n_calls[index]) {
        p->moved_us = now_us;
    }
    if (paused || !calls || n_calls != p->n_calls[index]) {
        p->n_calls[index] = n_calls;
        p->called_us[index] = now_us;
    }
    if (now_us - p->called_us[index] <= 1000 * limit_ms) {
        return FL_OK;
    }
    return fl_fail(FL_EDEADLINE,
                   "profile: %s: a call did not return within %.3g s (fault.deadline, at least "
                   "%d s) when its time was measured",
                   phase_text(p, probe, text), (double)limit_ms * 1e-3, LEAST_CALL_MS / 1000);
}

/* Fail if a child stays stopped for fault.detect, or in one call for too long. Ctrl-Z stops the
 * caller together with its children: the time in which the caller itself was stopped does not
 * count. */
static fl_status watch_children(fl__profiler *p)
{
    int64_t now_us = fl_now_us(), gap_us = now_us - p->looked_us;
    p->looked_us = now_us;
    for (int i = 0; i < p->n_children; i++) {
        char text[FL_LAYER_TEXT_MAX];
        if (p->pid[i] == 0) {
            continue;
        }
        if (fl_probe_is_in_nccl(&p->segment->probe[i])) {
            fl_probe_nccl_look(&p->nccl, p->pid[i], now_us);
            continue;
        }
        look_at_child(p, i, now_us);
        if (p->stopped_us[i] != 0 && gap_us > 5 * 1000 * LOOK_MS) {
            p->stopped_us[i] = now_us;
        }
        if (p->stopped_us[i] != 0 && now_us - p->stopped_us[i] > 1000 * p->job->fault.detect_ms) {
            return fl_fail(FL_EFAILED,
                           "profile: the process that measured %s was stopped (SIGSTOP or the "
                           "like) and did not go on within %.3g s (fault.detect)",
                           phase_text(p, &p->segment->probe[i], text),
                           (double)p->job->fault.detect_ms * 1e-3);
        }
        bool paused = p->stopped_us[i] != 0 || gap_us > 5 * 1000 * LOOK_MS;
        FL_TRY(watch_call(p, i, paused, now_us));
    }
    return FL_OK;
}

static fl_status wait_one(fl__profiler *p)
{
    int64_t deadline_us = p->moved_us + 1000 * p->timeout_ms;
    struct pollfd fds[FL__PROFILE_CHILDREN + 1];
    int who = -1; /* NCCL has a limit of its own */
    for (int i = 0; i < p->n_children; i++) {
        fds[i] = (struct pollfd){.fd = p->end[i], .events = POLLIN};
        who = p->end[i] >= 0 && !fl_probe_is_in_nccl(&p->segment->probe[i]) ? i : who;
    }
    fds[p->n_children] = (struct pollfd){.fd = p->signals, .events = POLLIN};
    int64_t left_ms = who >= 0 ? fl_left_ms(deadline_us) : LOOK_MS;
    int n = poll(fds, (nfds_t)p->n_children + 1, (int)(left_ms < LOOK_MS ? left_ms : LOOK_MS));
    if (n < 0 && errno != EINTR) {
        return fl_fail(FL_EIO, "profile: poll: %s", strerror(errno));
    }
    if (n > 0 && fds[p->n_children].revents != 0) {
        struct signalfd_siginfo info = {0};
        p->terminated = read(p->signals, &info, sizeof info) > 0 && info.ssi_signo == SIGTERM;
        return fl_fail(FL_ESTOPPED,
                       "stopped by %s while costs were measured; no worker was started",
                       p->terminated ? "SIGTERM" : "the user");
    }
    for (int i = 0; n > 0 && i < p->n_children; i++) {
        if (fds[i].revents != 0) {
            return reap(p, i);
        }
    }
    FL_TRY(watch_children(p));
    deadline_us = p->moved_us + 1000 * p->timeout_ms;
    return who >= 0 && fl_left_ms(deadline_us) == 0 ? too_slow(p, who) : FL_OK;
}

static bool some_run(const fl__profiler *p)
{
    for (int i = 0; i < p->n_children; i++) {
        if (p->pid[i] != 0) {
            return true;
        }
    }
    return false;
}

fl_status fl__profile_wait_all(fl__profiler *p)
{
    p->looked_us = p->moved_us = fl_now_us();
    while (some_run(p)) {
        FL_TRY(wait_one(p));
    }
    return FL_OK;
}

void fl__profile_end_all(fl__profiler *p)
{
    for (int i = 0; i < p->n_children; i++) {
        if (p->pid[i] != 0) {
            kill(p->pid[i], SIGKILL);
            (void)fl_child_reap(p->pid[i], FL_CHILD_KILLED_MS, &(int){0});
            close(p->end[i]);
        }
    }
}
