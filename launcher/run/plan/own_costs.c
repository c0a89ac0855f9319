#include "launcher/run/plan/own_costs.h"

#include "control/link/held_port.h"
#include "device/errors/failure.h"
#include "device/system/child.h"
#include "launcher/run/plan/run_plan.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { REAP_MS = 2000 }; /* for a killed process to be gone */

/* Both processes have it: the child is a copy of this one, so what it points to is there, too. */
struct fl_own_costs_shared {
    bool done;
    fl_failure failure;
    fl_costs costs;
    fl_profile profile;
};

/* In a process group of its own: Ctrl-C is for the caller, which ends this process. */
static _Noreturn void measure_own(const fl_preparation *p, struct fl_own_costs_shared *shared,
                                  pid_t parent)
{
    cpu_set_t before;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    if (getppid() != parent) {
        _exit(0);
    }
    fl_cores_confine(&p->cores, &before);
    const fl_costs_options costs = fl_run_plan_costs(p, NULL);
    fl_failure_keep(&shared->failure, fl_costs_measure(&costs, &shared->costs, &shared->profile));
    shared->done = true;
    _exit(0);
}

static void *make_shared(void)
{
    void *shared = mmap(NULL, sizeof(struct fl_own_costs_shared), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return shared == MAP_FAILED ? NULL : shared;
}

static fl_status fail_killed(void)
{
    return fl_fail(FL_EFAILED, "the process that measured what layers cost was killed");
}

fl_status fl_own_costs_start(const fl_preparation *p, fl_own_costs *out)
{
    int ends[2];
    pid_t self = getpid();
    *out = (fl_own_costs){.fd = -1, .shared = make_shared()};
    if (out->shared == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        return fl_fail(FL_ENOMEM, "what layers cost cannot be measured: %s", strerror(errno));
    }
    out->fd = ends[0];
    out->shared->costs = *p->costs;
    out->pid = fork();
    if (out->pid == 0) {
        close(ends[0]);
        fl_held_ports_drop_copies(p->held_ports);
        measure_own(p, out->shared, self);
    }
    int error = errno;
    close(ends[1]);
    return out->pid > 0
               ? FL_OK
               : fl_fail(FL_EIO, "what layers cost cannot be measured: %s", strerror(error));
}

fl_status fl_own_costs_check(const fl_own_costs *own)
{
    struct pollfd item = {.fd = own->fd, .events = POLLIN};
    if (own->pid <= 0 || poll(&item, 1, 0) != 1) {
        return FL_OK;
    }
    return own->shared->done ? fl_failure_raise(&own->shared->failure) : fail_killed();
}

fl_status fl_own_costs_take(fl_own_costs *own, fl_preparation *p)
{
    const struct fl_own_costs_shared *s = own->shared;
    if (own->pid <= 0) {
        return FL_OK;
    }
    if (!fl_child_reap(own->pid, REAP_MS, NULL)) {
        return fl_fail(FL_EFAILED, "the process that measured what layers cost does not end");
    }
    own->pid = 0;
    if (!s->done) {
        return fail_killed();
    }
    FL_TRY(fl_failure_raise(&s->failure));
    *p->costs = s->costs;
    *p->profile = s->profile;
    p->nccl = p->costs->nccl;
    const fl_costs_options costs = fl_run_plan_costs(p, NULL);
    fl_costs_take(&costs, p->costs, p->profile);
    return FL_OK;
}

void fl_own_costs_end(fl_own_costs *own)
{
    if (own->pid > 0) {
        kill(own->pid, SIGKILL); /* and, by the kernel, what it has forked */
        (void)fl_child_reap(own->pid, REAP_MS, NULL);
    }
    if (own->fd >= 0) {
        close(own->fd);
    }
    if (own->shared != NULL) {
        munmap(own->shared, sizeof *own->shared);
    }
    *own = (fl_own_costs){.fd = -1};
}
