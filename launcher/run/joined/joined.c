/* With run.shared, the run directory is on a file system that this host shares with the head: the
 * logs of the workers go there, their layers of the model and their parts of checkpoints. Without,
 * logs stay here, and the workers send the rest to those of the head. The model and the data set
 * are opened here, by the job's paths. */
#include "launcher/run/joined/joined.h"

#include "control/agent/process/agent.h"
#include "control/agent/wire/agent_wire.h"
#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/errors/log.h"
#include "device/flight/flight.h"
#include "device/system/alloc.h"
#include "launcher/job/job.h"
#include "launcher/run/checks/loopback.h"
#include "launcher/run/checks/room.h"
#include "launcher/run/joined/host_facts.h"
#include "launcher/run/joined/joined_open.h"
#include "launcher/run/model/instantiate.h"
#include "launcher/run/plan/preparation.h"
#include "launcher/run/plan/run_plan.h"
#include "launcher/worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXIT_FAILED = 3,
    FLIGHT_MS = 50, /* the controller looks for workers that hang every 100 ms */
};

/* All that the workers of this host inherit; it lasts until the process ends. */
typedef struct joined_host {
    const fl_host_welcome *welcome;
    const fl_curve_keys *keys;
    int dir_fd, saved_fd; /* saved_fd: the folder of the checkpoint that the run continues from */
    fl_job job;
    fl_model *model;
    fl_dataset dataset;
    fl_preparation p;
    fl_checkpoint_store store;
    fl_model_file model_file;
    fl_worker_context worker;
    fl_flight *flight;
    fl_signals signals;
} joined_host;

/* This host has a directory of its own for the logs of its workers: RUN.DIR/RUN-HOST, below the
 * working directory of the agent, to which the job's paths are relative. */
static fl_status open_own(joined_host *h)
{
    char path[2 * PATH_MAX];
    const char *run = strrchr(h->welcome->run_dir, '/') + 1;
    snprintf(path, sizeof path, "%s/%s-%s", h->job.run.dir, run, h->welcome->host.name);
    (void)mkdir(h->job.run.dir, 0755); /* it may be there */
    (void)mkdir(path, 0700);
    h->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (h->dir_fd < 0) {
        return fl_fail(FL_EIO, "%s, for the logs of this host: %s", path, strerror(errno));
    }
    fl_log(FL_LOG_INFO, "the logs of this host's workers: %s", path);
    return FL_OK;
}

static fl_status open_shared(joined_host *h, int socket)
{
    const fl_host_welcome *w = h->welcome;
    FL_TRY(fl_joined_open_shared(w->run_dir, w->proof, w->cwd, h->keys, &h->dir_fd));
    return fl_joined_answer(w, socket);
}

static fl_status load_job(joined_host *h, int job_fd, int socket)
{
    FL_TRY(fl_joined_read_job(job_fd, h->welcome->job_bytes, &h->job));
    FL_TRY(h->job.run.shared ? open_shared(h, socket) : open_own(h));
    return fl_instantiate(&h->job, &h->model, &h->dataset);
}

static void take_cores(joined_host *h)
{
    fl_cores_take(FL_CORES_NAME, h->welcome->host.n * (int)h->job.devices.cores, &h->p.cores);
    if (h->p.cores.n_shared > 0) {
        fl_log(FL_LOG_WARN, "%d of the %d processors that this host uses are another run's, too",
               h->p.cores.n_shared, h->p.cores.n);
    }
}

/* The checkpoint that the run continues from. */
static fl_status open_saved(joined_host *h)
{
    char name[FL_CHECKPOINT_NAME_MAX], path[FL_CHECKPOINT_NAME_MAX + 16];
    if (h->welcome->state_step < 0 || !h->job.run.shared) {
        return FL_OK; /* the head sends what it has */
    }
    snprintf(path, sizeof path, "checkpoints/%s",
             fl_checkpoint_folder_name(h->welcome->state_step, name));
    h->saved_fd = openat(h->dir_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return h->saved_fd >= 0
               ? FL_OK
               : fl_fail(FL_EIO, "%s/%s: %s", h->welcome->run_dir, path, strerror(errno));
}

static bool has_model_file(const joined_host *h)
{
    return h->job.run.save_model && h->job.run.shared;
}

/* The head has written it before it waits for hosts: what is missing is hidden here, as by a mount
 * below the run directory. */
static fl_status join_model_file(joined_host *h)
{
    fl_status status = fl_model_file_join(h->model, h->dir_fd, &h->model_file);
    return status == FL_OK
               ? FL_OK
               : fl_fail(status,
                         "--join: %s: %s; the head has written it; allowed: a run.dir on a file "
                         "system that all hosts share as a whole, or run.shared false",
                         h->welcome->run_dir, fl_errmsg());
}

static fl_status open_files(joined_host *h)
{
    FL_TRY(open_saved(h));
    FL_TRY(fl_checkpoint_store_open(h->dir_fd, "checkpoints", &h->store));
    return has_model_file(h) ? join_model_file(h) : FL_OK;
}

/* Which store has which sample decides who trains on it, so all hosts have a cache or none has. */
static fl_status open_cache(joined_host *h)
{
    char why[256];
    const fl_host_welcome *w = h->welcome;
    fl_store_map map = {
        .n_workers = h->p.n_ranks, .n_hosts = w->n_hosts, .n_ranks = w->n_first_ranks};
    memcpy(map.first, w->first, sizeof map.first);
    h->job.cache.policy = w->n_stores == 0 ? FL_CACHE_OFF : FL_CACHE_ON;
    if (w->n_stores != 0 && w->n_stores != h->job.cache.stores) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("cache.stores"), "found %lld, the head has %d",
                             (long long)h->job.cache.stores, w->n_stores);
    }
    FL_TRY(fl_activations_create(h->model, &h->dataset, &h->job, h->p.n_samples, h->p.n_steps, &map,
                                 w->host.first, w->host.n, &h->p.activations, why, sizeof why));
    if (h->p.activations != NULL) {
        h->p.batches->stores = h->p.activations->map;
    }
    return FL_OK;
}

static fl_status compare_facts(const joined_host *h)
{
    fl_host_facts found;
    FL_TRY(fl_host_facts_make(&h->p, &found));
    return fl_host_facts_compare(&h->job, h->welcome->host.name, h->welcome->cwd, &found,
                                 &h->welcome->facts);
}

/* Whether the relay sends these bytes back. It has a deadline for the head, and this process ends
 * with it. */
static bool is_sent_back(int socket, const unsigned char *bytes, size_t n)
{
    unsigned char back[FL_AGENT_FRAME_MAX];
    ssize_t got;
    do {
        got = recv(socket, back, sizeof back, 0);
    } while ((got < 0 && errno == EINTR) ||
             (got > 0 && ((size_t)got != n || memcmp(back, bytes, n) != 0)));
    return got > 0;
}

/* The head learns why, too, and from the exit code whether another start may succeed. It knows
 * where its user wrote the field; here, the place is that in the job that it has sent. The relay
 * closes the socket where the head may count this host as lost: what is missing here then is that
 * of a run which has gone on without it. */
static _Noreturn void refuse(const fl_job *job, int socket, fl_status status)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame = {.type = FL_AGENT_REFUSE};
    snprintf(frame.text, sizeof frame.text, "%s", fl_errmsg());
    size_t n = fl_agent_wire_put(&frame, bytes);
    status = job == NULL ? status : fl_job_locate(job, status);
    if (send(socket, bytes, n, MSG_NOSIGNAL) == (ssize_t)n && is_sent_back(socket, bytes, n)) {
        fl_log(FL_LOG_ERROR, "%s", fl_errmsg());
    }
    _exit(fl_status_is_bad_input(status) ? FL_HOST_EXIT_UNFIT : EXIT_FAILED);
}

/* The head has looked at the run directory, if that is shared. */
static void check_room(const joined_host *h)
{
    char path[PATH_MAX] = "the folder of the logs", link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", h->dir_fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? (size_t)n : strlen(path)] = '\0';
    fl_room_check_logs(&h->p, h->job.run.shared ? NULL : path, h->dir_fd, h->welcome->host.n);
}

static fl_status prepare_host(joined_host *h)
{
    h->p = (fl_preparation){
        .model = h->model, .dataset = &h->dataset, .job = &h->job, .joined = &h->welcome->host};
    FL_TRY(fl_preparation_check(&h->p));
    FL_TRY(compare_facts(h));
    FL_TRY(fl_loopback_check(&h->p));
    const fl_costs_options costs = fl_run_plan_costs(&h->p, NULL);
    fl_costs_find(&costs, h->p.costs);
    take_cores(h);
    check_room(h);
    FL_TRY(open_files(h));
    FL_TRY(open_cache(h));
    return fl_flight_create(h->p.n_ranks, &h->flight);
}

static void set_worker(joined_host *h)
{
    const fl_preparation *p = &h->p;
    const fl_interval *every = &h->job.checkpoint.every;
    h->worker = (fl_worker_context){
        .model = p->model,
        .dataset = p->dataset,
        .job = p->job,
        .cores = &p->cores,
        .host = &h->welcome->host,
        .n_head = h->welcome->first[1],
        .apart = !h->job.run.shared,
        .keys = h->keys,
        .devices = &p->devices,
        .nccl = &p->nccl,
        .algorithms = p->costs->algorithms,
        .activations = p->activations,
        .due = &p->due,
        .batches = p->batches,
        .dir_fd = h->dir_fd,
        .init = &p->init,
        .saved_fd = h->welcome->state_step < 0 || !h->job.run.shared ? NULL : &h->saved_fd,
        .continues_saved = h->welcome->state_step >= 0,
        .from_head = h->welcome->from_snapshot,
        .store = &h->store,
        .checkpoints = every->ms > 0 || every->steps > 0 || every->epochs > 0,
        .model_file = has_model_file(h) ? &h->model_file : NULL,
        .n_samples = p->n_samples,
        .n_validation = p->n_validation,
        .n_steps = p->n_steps};
}

static fl_status open_host(joined_host *h, int job_fd, int socket)
{
    FL_TRY(load_job(h, job_fd, socket));
    return prepare_host(h);
}

void fl_joined_serve(void *context, const fl_host_welcome *welcome, int job_fd, int socket)
{
    joined_host *h = NULL; /* the workers inherit it */
    fl_agent_child *children = NULL;
    fl_status status = fl_alloc(sizeof *h, (void **)&h);
    if (status == FL_OK) {
        h->welcome = welcome;
        h->keys = context;
        status = open_host(h, job_fd, socket);
    }
    if (status == FL_OK) {
        status = fl_alloc_array((size_t)h->p.n_ranks, sizeof *children, (void **)&children);
    }
    if (status != FL_OK) {
        refuse(h == NULL ? NULL : &h->job, socket, status);
    }
    set_worker(h);
    fl_signals_block(&h->signals);
    const fl_agent_options options = {.n_workers = h->p.n_ranks,
                                      .dir_fd = h->dir_fd,
                                      .continues = welcome->continues,
                                      .flight = h->flight,
                                      .flight_ms = FLIGHT_MS,
                                      .signals = &h->signals,
                                      .endpoint = welcome->links,
                                      .devices = &h->p.devices,
                                      .worker = fl_worker_run,
                                      .context = &h->worker};
    fl__agent_run(&options, socket, children);
}
