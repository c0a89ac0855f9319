/* The parent's side of a profile:
 *   1  one child a processor's worth of device, at most one a worker     fork_all
 *   2  each measures the layers at once with the others: they share
 *      memory and clock as workers will; two measure the link, over
 *      NCCL last of all                                                  child_main
 *   3  wait for all of them to end, by a deadline; a child that is
 *      stopped, or a signal to the caller, ends that sooner              profile_wait.c
 *   4  the middle of what they say                                       merge
 * A child answers in shared memory and ends; its end is the closing of a pipe that it holds. */
#include "pipe/measure/profile.h"

#include "device/machine/islands.h"
#include "device/machine/sockets.h"
#include "device/system/child.h"
#include "nn/model.h"
#include "pipe/measure/probe_nccl.h"
#include "pipe/measure/profile_state.h"
#include "pipe/measure/quantile.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Typical costs of a link on one machine, for a single worker that will not use one. */
static const double USUAL_LINK_US = 40.0;
static const double USUAL_LINK_BYTES_PER_US = 4500.0, USUAL_REDUCE_BYTES_PER_US = 1700.0;
static const double USUAL_REDUCE_CPU_SHARE = 0.7;

/* One child per worker of this host, but at most as many as can run at the same time, and at least
 * two if there are links to measure, three if there are two classes of them. Of those that would
 * share a device, one measures what it does alone: how they get in each other's way is the
 * planner's to predict. */
static void choose_children(fl__profiler *p, int n_at_once)
{
    int at_once = p->devices->n > 0 ? p->devices->n : p->n_cpus / (int)p->job->devices.cores;
    at_once = at_once < 1 ? 1 : at_once;
    p->n_workers = p->job->devices.count != FL_JOB_AUTO ? (int)p->job->devices.count
                   : p->devices->n > 0                  ? p->devices->n
                                                        : at_once;
    int n_here = n_at_once > 0 && n_at_once < p->n_workers ? n_at_once : p->n_workers;
    p->n_children = n_here < at_once ? n_here : at_once;
    p->n_children = p->n_workers > 1 && p->n_children < 2 ? 2 : p->n_children;
    p->n_children = p->n_children > FL__PROFILE_CHILDREN ? FL__PROFILE_CHILDREN : p->n_children;
    bool shared = p->devices->n > 0 && p->devices->n < p->n_children;
    p->n_measuring = shared ? p->devices->n : p->n_children;
    p->n_measuring = n_here < p->n_measuring ? n_here : p->n_measuring;
}

/* The workers whose processors the children have: the first ones, and one in another socket, where
 * there is one. *islands is then of children. */
static void choose_seats(fl__profiler *p, fl_islands *islands)
{
    const fl_islands of_workers = *islands;
    bool two_classes = islands->n > 1 && p->devices->n == 0;
    p->n_children = two_classes && p->n_children < 3 ? 3 : p->n_children;
    for (int i = 0; i < p->n_children; i++) {
        p->seat[i] = i;
    }
    if (!two_classes) {
        return;
    }
    int other = 1, last = p->n_children - 1;
    while (of_workers.of[other] == of_workers.of[0]) {
        other++;
    }
    p->seat[last] = other > last ? other : last;
    for (int i = 0; i < p->n_children; i++) {
        islands->of[i] = of_workers.of[p->seat[i]];
    }
}

/* A pair of each class of links. Child i has device i, unless they share them, or the processors of
 * worker seat[i]. */
static void choose_pairs(fl__profiler *p)
{
    fl_islands islands = {.n = 1};
    if (fl_islands_n_devices(p->devices) >= p->n_children) {
        fl_islands_find(p->devices, &islands);
    }
    choose_seats(p, &islands);
    fl_islands_near_pair(&islands, p->n_children, &p->near[0], &p->near[1]);
    fl_islands_far_pair(&islands, p->n_children, &p->far[0], &p->far[1]);
    if (p->near[0] < 0) { /* too few children for a near one: there is one class */
        memcpy(p->near, p->far, sizeof p->near);
        p->far[0] = p->far[1] = -1;
    }
}

static void choose_processes(fl__profiler *p, int n_at_once)
{
    p->n_cpus = fl_processors_list(p->cpus);
    choose_children(p, n_at_once);
    choose_pairs(p);
}

bool fl_profile_has_link(const fl_job *job, const fl_device_survey *devices, int n_at_once)
{
    fl__profiler p = {.job = job, .devices = devices};
    choose_processes(&p, n_at_once);
    return p.n_children > 1;
}

/* ---- 2: in the child ---- */

/* NULL: not pinned. */
static const int *processors_of(const fl__profiler *p, int index)
{
    const fl_device_survey *d = p->devices;
    int cores = (int)p->job->devices.cores;
    if (p->seat[index] < d->n_seats && d->seat_cores == cores) {
        return d->seat_cpu + p->seat[index] * cores;
    }
    return cores * p->n_children <= p->n_cpus ? p->cpus + index * cores : NULL;
}

static fl_status measure(const fl__profiler *p, int index, fl_probe *probe)
{
    int cores = (int)p->job->devices.cores;
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
                                      .cpu_ids = processors_of(p, index),
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

static void child_main(const fl__profiler *p, int index, pid_t parent)
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

static fl_status fork_one(fl__profiler *p, int index)
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

static fl_status fork_all(fl__profiler *p)
{
    fflush(NULL); /* what is buffered must not be written by every child again */
    for (int i = 0; i < p->n_children; i++) {
        FL_TRY(fork_one(p, i));
    }
    return FL_OK;
}

/* ---- 4 ---- */

/* The middle of one number, at the same place in each child's profile. */
static void merge_at(const fl__profiler *p, size_t offset, fl_profile *out)
{
    double values[FL__PROFILE_CHILDREN];
    for (int i = 0; i < p->n_measuring; i++) {
        memcpy(&values[i], (const char *)&p->segment->probe[i].profile + offset, sizeof values[i]);
    }
    double middle = fl_quantile_median(values, p->n_measuring);
    memcpy((char *)out + offset, &middle, sizeof middle);
}

/* A link's numbers are those of its first child: it held the watch at both ends of a round. */
static const fl_probe_link_costs *link_of(const fl__profiler *p, int child, bool far)
{
    const fl_probe *probe = &p->segment->probe[child < 0 ? 0 : child];
    const fl_probe_link_costs *nccl = far ? &probe->far_nccl : &probe->nccl;
    bool over_nccl = nccl->measured && fl_nccl_is_usable(p->nccl.trial);
    return over_nccl ? nccl : far ? &probe->far : &probe->link;
}

static void merge(const fl__profiler *p, fl_profile *out)
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

static fl_status take_signals(fl__profiler *p)
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
static void return_signals(fl__profiler *p)
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
    fl__profiler p = {.model = model,
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
    choose_processes(&p, n_at_once);
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
        status = fl__profile_wait_all(&p);
    }
    fl__profile_end_all(&p);
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
