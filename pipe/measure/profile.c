/* The parent's side of a profile:
 *   1  one child a processor's worth of device, at most one a worker     fork_all
 *   2  each measures the layers at once with the others: they share
 *      memory and clock as workers will; two measure the link, over
 *      NCCL last of all                                                  child_main
 *   3  wait for all of them to end, by a deadline; a child that is
 *      stopped, or a signal to the caller, ends that sooner              wait_all
 *   4  the middle of what they say                                       merge
 * A child answers in shared memory and ends; its end is the closing of a pipe that it holds. */
#include "pipe/measure/profile.h"

#include "device/child.h"
#include "device/clock.h"
#include "device/islands.h"
#include "nn/model.h"
#include "pipe/measure/probe.h"
#include "pipe/measure/probe_nccl.h"
#include "pipe/measure/quantile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_CHILDREN = 16, LOOK_MS = 100 };

/* A call of a layer gets fault.deadline, and at least this: all children compute at once, on a
 * machine that may have other work. */
enum { LEAST_CALL_MS = 5000 };

/* Typical costs of a link on one machine, for a single worker that will not use one. */
static const double USUAL_LINK_US = 40.0;
static const double USUAL_LINK_BYTES_PER_US = 4500.0, USUAL_REDUCE_BYTES_PER_US = 1700.0;
static const double USUAL_REDUCE_CPU_SHARE = 0.7;

/* The memory that all children share. */
typedef struct segment {
    fl_probe_store store;
    fl_probe probe[MAX_CHILDREN];
} segment;

typedef struct profiler {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_device_survey *devices;
    fl_probe_nccl_watch nccl;
    int64_t timeout_ms;
    int n_workers, n_children;
    int n_measuring;     /* children that measure more than the link */
    int near[2], far[2]; /* as in fl_probe_options */
    int cpus[CPU_SETSIZE], n_cpus;
    segment *segment;
    pid_t pid[MAX_CHILDREN];          /* 0: none, or gone */
    int end[MAX_CHILDREN];            /* closes when the child ends; -1: none */
    int64_t stopped_us[MAX_CHILDREN]; /* since when the child is stopped; 0: it runs */
    int n_calls[MAX_CHILDREN];        /* as last seen, */
    int64_t called_us[MAX_CHILDREN];  /* and since when */
    int64_t looked_us;                /* when the children were last looked at */
    int signals;     /* SIGINT, SIGTERM and SIGHUP to the caller can be read here */
    bool terminated; /* SIGTERM was one of them */
    sigset_t mask_before;
} profiler;

static void find_processors(profiler *p)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &set)) {
            p->cpus[p->n_cpus++] = (int)cpu;
        }
    }
}

/* One child per worker of this host, but at most as many as can run at the same time, and at least
 * two if there are links to measure. Of those that would share a device, one measures what it does
 * alone: how they get in each other's way is the planner's to predict. */
static void choose_children(profiler *p, int n_at_once)
{
    int at_once = p->devices->n > 0 ? p->devices->n : p->n_cpus / (int)p->job->devices.cores;
    at_once = at_once < 1 ? 1 : at_once;
    p->n_workers = p->job->devices.count != FL_JOB_AUTO ? (int)p->job->devices.count
                   : p->devices->n > 0                  ? p->devices->n
                                                        : at_once;
    int n_here = n_at_once > 0 && n_at_once < p->n_workers ? n_at_once : p->n_workers;
    p->n_children = n_here < at_once ? n_here : at_once;
    p->n_children = p->n_workers > 1 && p->n_children < 2 ? 2 : p->n_children;
    p->n_children = p->n_children > MAX_CHILDREN ? MAX_CHILDREN : p->n_children;
    bool shared = p->devices->n > 0 && p->devices->n < p->n_children;
    p->n_measuring = shared ? p->devices->n : p->n_children;
    p->n_measuring = n_here < p->n_measuring ? n_here : p->n_measuring;
}

/* A pair of each class of links. Child i has device i, unless they share them. */
static void choose_pairs(profiler *p)
{
    fl_islands islands = {.n = 1};
    if (p->devices->n >= p->n_children) {
        fl_islands_find(p->devices, &islands);
    }
    fl_islands_near_pair(&islands, p->n_children, &p->near[0], &p->near[1]);
    fl_islands_far_pair(&islands, p->n_children, &p->far[0], &p->far[1]);
    if (p->near[0] < 0) { /* too few children for a near one: there is one class */
        memcpy(p->near, p->far, sizeof p->near);
        p->far[0] = p->far[1] = -1;
    }
}

/* ---- 2: in the child ---- */

static fl_status measure(const profiler *p, int index, fl_probe *probe)
{
    int cores = (int)p->job->devices.cores;
    bool enough = cores * p->n_children <= p->n_cpus;
    fl_kv kv = fl_probe_store_kv(&p->segment->store);
    fl_probe_options options = {.model = p->model,
                                .dataset = p->dataset,
                                .job = p->job,
                                .index = index,
                                .n_children = p->n_children,
                                .near = {p->near[0], p->near[1]},
                                .far = {p->far[0], p->far[1]},
                                .n_workers = p->n_workers,
                                .kv = &kv,
                                .nccl = p->nccl.trial,
                                .timeout_ms = p->timeout_ms,
                                .nccl_timeout_ms = fl_probe_nccl_call_ms(p->timeout_ms)};
    probe->link = (fl_probe_link_costs){.us = USUAL_LINK_US,
                                        .bytes_per_us = USUAL_LINK_BYTES_PER_US,
                                        .reduce_bytes_per_us = USUAL_REDUCE_BYTES_PER_US,
                                        .reduce_cpu_share = USUAL_REDUCE_CPU_SHARE};
    const fl_device_options device = {.kind = p->job->devices.kind,
                                      .n_threads = cores,
                                      .cpu_ids = enough ? p->cpus + index * cores : NULL,
                                      .number = fl_device_survey_number(p->devices, index),
                                      .tf32 = p->job->train.precision == FL_PRECISION_TF32,
                                      .budget_bytes = SIZE_MAX}; /* none */
    FL_TRY(fl_device_open(&device, &options.device));
    FL_TRY(options.device->ops->stream_create(options.device, &options.stream));
    if (index < p->n_measuring) {
        FL_TRY(fl_probe_layers(&options, probe));
        FL_TRY(fl_probe_peak(&options, probe));
        FL_TRY(fl_probe_read(&options, probe));
    }
    FL_TRY(fl_probe_link(&options, probe));
    return fl_nccl_is_usable(options.nccl) ? fl_probe_nccl(&options, probe) : FL_OK;
}

static void child_main(const profiler *p, int index, pid_t parent)
{
    fl_probe *probe = &p->segment->probe[index];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(1);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, SIG_IGN); /* a terminal sends both to every process: the caller decides */
    signal(SIGHUP, SIG_IGN);
    signal(SIGTERM, SIG_DFL);
    fl_child_forget_handlers();
    fl_child_leave_output();
    sigprocmask(SIG_SETMASK, &p->mask_before, NULL);
    probe->why = measure(p, index, probe);
    snprintf(probe->message, sizeof probe->message, "%s", probe->why == FL_OK ? "" : fl_errmsg());
    __atomic_store_n(&probe->done, true, __ATOMIC_RELEASE);
    _exit(0);
}

/* ---- 1 ---- */

static fl_status fork_one(profiler *p, int index)
{
    int ends[2];
    pid_t parent = getpid();
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fl_fail(FL_EIO, "profile: no pipe: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        child_main(p, index, parent);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return fl_fail(FL_EIO, "profile: no process: %s", strerror(errno));
    }
    p->pid[index] = pid;
    p->end[index] = ends[0];
    return FL_OK;
}

static fl_status fork_all(profiler *p)
{
    fflush(NULL); /* what is buffered must not be written by every child again */
    for (int i = 0; i < p->n_children; i++) {
        FL_TRY(fork_one(p, i));
    }
    return FL_OK;
}

/* ---- 3 ---- */

static const char *phase_text(const profiler *p, const fl_probe *probe,
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
static fl_status judge(const profiler *p, int index, int how)
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

static fl_status reap(profiler *p, int index)
{
    int how = 0;
    while (waitpid(p->pid[index], &how, 0) < 0 && errno == EINTR) {
    }
    p->pid[index] = 0;
    close(p->end[index]);
    p->end[index] = -1;
    const fl_probe *probe = &p->segment->probe[index];
    if (fl_probe_is_in_nccl(probe)) {
        fl_probe_nccl_judge(&p->nccl, probe, how);
        return FL_OK;
    }
    return judge(p, index, how);
}

static fl_status too_slow(const profiler *p, int index)
{
    char text[FL_LAYER_TEXT_MAX];
    return fl_fail(FL_EDEADLINE, "profile: still measuring %s after %.3g s",
                   phase_text(p, &p->segment->probe[index], text), (double)p->timeout_ms * 1e-3);
}

/* Note whether it was stopped or goes on; its end is the business of reap. */
static void look_at_child(profiler *p, int index, int64_t now_us)
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
 * model: only the time for the whole profile limits them. */
static fl_status watch_call(profiler *p, int index, bool paused, int64_t now_us)
{
    const fl_probe *probe = &p->segment->probe[index];
    char text[FL_LAYER_TEXT_MAX];
    int64_t deadline_ms = p->job->fault.deadline_ms;
    int64_t limit_ms = deadline_ms > LEAST_CALL_MS ? deadline_ms : LEAST_CALL_MS;
    int n_calls = __atomic_load_n(&probe->n_calls, __ATOMIC_RELAXED);
    bool calls = probe->phase == FL_PROBE_LAYER || probe->phase == FL_PROBE_LOSS;
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
static fl_status watch_children(profiler *p)
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

static fl_status wait_one(profiler *p, int64_t deadline_us)
{
    struct pollfd fds[MAX_CHILDREN + 1];
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
    return who >= 0 && fl_left_ms(deadline_us) == 0 ? too_slow(p, who) : FL_OK;
}

static bool some_run(const profiler *p)
{
    for (int i = 0; i < p->n_children; i++) {
        if (p->pid[i] != 0) {
            return true;
        }
    }
    return false;
}

static fl_status wait_all(profiler *p)
{
    int64_t deadline_us = fl_deadline_us(p->timeout_ms);
    p->looked_us = fl_now_us();
    while (some_run(p)) {
        FL_TRY(wait_one(p, deadline_us));
    }
    return FL_OK;
}

/* End every child, also if the failure of one child ended the wait. */
static void end_all(profiler *p)
{
    for (int i = 0; i < p->n_children; i++) {
        if (p->pid[i] != 0) {
            kill(p->pid[i], SIGKILL);
            while (waitpid(p->pid[i], NULL, 0) < 0 && errno == EINTR) {
            }
            close(p->end[i]);
        }
    }
}

/* ---- 4 ---- */

/* The middle of one number, at the same place in each child's profile. */
static void merge_at(const profiler *p, size_t offset, fl_profile *out)
{
    double values[MAX_CHILDREN];
    for (int i = 0; i < p->n_measuring; i++) {
        memcpy(&values[i], (const char *)&p->segment->probe[i].profile + offset, sizeof values[i]);
    }
    double middle = fl_quantile_median(values, p->n_measuring);
    memcpy((char *)out + offset, &middle, sizeof middle);
}

/* A link's numbers are those of its first child: it held the watch at both ends of a round. */
static const fl_probe_link_costs *link_of(const profiler *p, int child, bool far)
{
    const fl_probe *probe = &p->segment->probe[child < 0 ? 0 : child];
    const fl_probe_link_costs *nccl = far ? &probe->far_nccl : &probe->nccl;
    bool over_nccl = nccl->measured && fl_nccl_is_usable(p->nccl.trial);
    return over_nccl ? nccl : far ? &probe->far : &probe->link;
}

static void merge(const profiler *p, fl_profile *out)
{
    const fl_probe_link_costs *link = link_of(p, p->near[0], false);
    *out = p->segment->probe[0].profile;
    out->link_us = link->us;
    out->link_bytes_per_us = link->bytes_per_us;
    out->reduce_bytes_per_us = link->reduce_bytes_per_us;
    out->reduce_cpu_share = link->reduce_cpu_share;
    if (p->far[0] >= 0) {
        link = link_of(p, p->far[0], true);
        out->far_us = link->us;
        out->far_bytes_per_us = link->bytes_per_us;
        out->far_reduce_bytes_per_us = link->reduce_bytes_per_us;
    }
    merge_at(p, offsetof(fl_profile, loss_call_us), out);
    merge_at(p, offsetof(fl_profile, loss_us), out);
    merge_at(p, offsetof(fl_profile, optimizer_us_per_param), out);
    merge_at(p, offsetof(fl_profile, peak_flops_per_us), out);
    merge_at(p, offsetof(fl_profile, read.call_us), out);
    merge_at(p, offsetof(fl_profile, read.us_per_byte), out);
    for (int i = 0; i < out->n_layers; i++) {
        size_t layer = offsetof(fl_profile, layer) + (size_t)i * sizeof(fl_layer_cost);
        merge_at(p, layer + offsetof(fl_layer_cost, fwd_call_us), out);
        merge_at(p, layer + offsetof(fl_layer_cost, fwd_us), out);
        merge_at(p, layer + offsetof(fl_layer_cost, bwd_call_us), out);
        merge_at(p, layer + offsetof(fl_layer_cost, bwd_us), out);
        merge_at(p, layer + offsetof(fl_layer_cost, frozen_call_us), out);
        merge_at(p, layer + offsetof(fl_layer_cost, frozen_us), out);
    }
}

/* ---- signals to the caller ---- */

static fl_status take_signals(profiler *p)
{
    sigset_t taken;
    struct sigaction hangup;
    sigemptyset(&taken);
    sigaddset(&taken, SIGINT);
    sigaddset(&taken, SIGTERM);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) {
        sigaddset(&taken, SIGHUP); /* unless the program runs under nohup */
    }
    sigprocmask(SIG_BLOCK, &taken, &p->mask_before);
    p->signals = signalfd(-1, &taken, SFD_NONBLOCK | SFD_CLOEXEC);
    return p->signals >= 0 ? FL_OK : fl_fail(FL_EIO, "profile: signalfd: %s", strerror(errno));
}

/* What has been acted upon must not end the caller now. */
static void return_signals(profiler *p)
{
    struct signalfd_siginfo info;
    while (p->signals >= 0 && read(p->signals, &info, sizeof info) > 0) {
    }
    if (p->signals >= 0) {
        close(p->signals);
    }
    sigprocmask(SIG_SETMASK, &p->mask_before, NULL);
}

fl_status fl_profile_measure(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                             const fl_device_survey *devices, int n_at_once, fl_nccl_trial *nccl,
                             int64_t timeout_ms, fl_profile *out)
{
    profiler p = {.model = model,
                  .dataset = dataset,
                  .job = job,
                  .devices = devices,
                  .nccl = {.trial = nccl, .limit_ms = 2 * fl_probe_nccl_call_ms(timeout_ms)},
                  .timeout_ms = timeout_ms};
    if (fl_model_n_layers(model) > FL_MAX_LAYERS) {
        return fl_fail(FL_EINVAL, "profile: %d layers; allowed: 1 .. %d", fl_model_n_layers(model),
                       FL_MAX_LAYERS);
    }
    memset(p.end, -1, sizeof p.end);
    find_processors(&p);
    choose_children(&p, n_at_once);
    choose_pairs(&p);
    p.segment =
        mmap(NULL, sizeof *p.segment, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p.segment == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "profile: no %zu bytes to share: %s", sizeof *p.segment,
                       strerror(errno));
    }
    fl_status status = take_signals(&p);
    if (status == FL_OK) {
        status = fork_all(&p);
    }
    if (status == FL_OK) {
        status = wait_all(&p);
    }
    end_all(&p);
    return_signals(&p);
    if (status == FL_OK) {
        status = fl_probe_nccl_settle(&p.nccl, job);
    }
    if (status == FL_OK) {
        merge(&p, out);
    }
    munmap(p.segment, sizeof *p.segment);
    if (p.terminated) {
        raise(SIGTERM); /* the caller says how it ends */
    }
    return status;
}
