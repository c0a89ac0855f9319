/* The way of a task:
 *
 *     ① the job, for the folder in which runs are, and the meeting there     fl_run_hosts_meet
 *     ② what this host is                                                   fl_engine_host_enter
 *     ③ the head: all others, and the run     fl_run_hosts_take, then fl_run_hosts_end
 *       the others: the head's endpoint and keys, and the agent             fl_run_hosts_serve */
#include "launcher/cli/hosts/engine_host.h"

#include "control/agent/process/signals.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/machine/host_limits.h"
#include "device/machine/survey.h"
#include "device/system/alloc.h"
#include "device/system/files/file_kind.h"
#include "launcher/cli/hosts/agent_join.h"
#include "launcher/cli/job_context.h"
#include "launcher/job/job.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/hosts/key_read.h"
#include "launcher/run/hosts/own_address.h"
#include "launcher/run/runs/runs.h"

#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { AWAIT_MS = 600000 };

/* ---- ① ---- */

/* A task reads its job more than once, and a pipe has nothing for the second time. */
static fl_status check_file(const char *path)
{
    struct stat what;
    bool is_file = stat(path, &what) != 0 || (!S_ISFIFO(what.st_mode) && !S_ISCHR(what.st_mode));
    return is_file ? FL_OK
                   : fl_fail(FL_EINVAL,
                             "%s: found %s, allowed: a file: each task of Slurm or mpirun reads "
                             "the job itself, and more than once",
                             path, fl_file_kind(what.st_mode));
}

/* The job of the command line, or that of the run which continues; run: its directory, or "". */
static fl_status load_job(const fl_args *args, fl_job *job, char run[PATH_MAX])
{
    const char *overrides[FL_ARGS_MAX + 1] = {"devices.count=auto"};
    const char *resume = fl_args_value(args, "--resume"), *dir = fl_args_value(args, "--run-dir");
    char path[PATH_MAX + 16];
    int n = fl_job_context_overrides(args, overrides + 1);
    snprintf(run, PATH_MAX, "%s", dir == NULL ? "" : dir);
    if (resume != NULL) {
        FL_TRY(fl_run_find_dir(resume, run));
        snprintf(path, sizeof path, "%s/job.yaml", run);
        return fl_job_load_kept(path, overrides, n + 1, job);
    }
    if (args->operand == NULL) {
        return fl_fail(FL_EINVAL, "frostline run: JOB.yaml is missing; see frostline run --help");
    }
    FL_TRY(check_file(args->operand));
    return fl_job_load(args->operand, overrides + 1, n, job);
}

/* The folder of the run directory. */
static fl_status find_parent(const fl_args *args, fl_job *job, char parent[PATH_MAX])
{
    char run[PATH_MAX];
    FL_TRY(load_job(args, job, run));
    snprintf(parent, PATH_MAX, "%s", run[0] == '\0' ? job->run.dir : dirname(run));
    return FL_OK;
}

/* The tasks are on several hosts, so that the loopback interface leads none to another one. */
static fl_status find_address(const char *interface, const char *name,
                              char address[FL_ADDRESS_TEXT])
{
    FL_TRY(fl_host_address_own(interface, name, address));
    fl_status status =
        fl_own_address_check(interface == NULL ? address : interface, address, false);
    return status == FL_OK ? FL_OK : fl_within(status, "--interface");
}

/* The names that tasks have when they meet. An address that cannot be found is refused later. */
static void name_host(const fl_args *args, fl_engine_task *task)
{
    char address[FL_ADDRESS_TEXT];
    if (task->n_hostname > 0 &&
        find_address(fl_args_value(args, "--interface"), task->host, address) == FL_OK) {
        fl_engine_name_by_address(task, address);
    }
}

/* A task that cannot read its job tells the others, where the command line has their folder. */
static void leave_early(const fl_args *args, const fl_engine_task *task)
{
    const char *run = fl_args_value(args, "--run-dir");
    char path[PATH_MAX];
    fl_meeting m;
    snprintf(path, sizeof path, "%s", run == NULL ? "" : run);
    const char *parent = dirname(path);
    if (run == NULL || access(parent, W_OK) != 0 || fl_meeting_open(parent, task, &m) != FL_OK) {
        return;
    }
    if (task->rank == 0) {
        fl_meeting_end(&m, FL_EXIT_BAD_INPUT);
    }
    fl_meeting_leave_refused(&m);
}

fl_status fl_run_hosts_meet(const fl_args *args, fl_run_hosts *hosts)
{
    char parent[PATH_MAX];
    fl_job *job = NULL;
    fl_failure failure;
    name_host(args, &hosts->task);
    FL_TRY(fl_alloc(sizeof *job, (void **)&job));
    fl_status status = find_parent(args, job, parent);
    fl_failure_keep(&failure, status);
    fl_free(job);
    if (status == FL_OK) {
        return fl_meeting_open(parent, &hosts->task, &hosts->meeting);
    }
    leave_early(args, &hosts->task);
    return fl_failure_raise(&failure);
}

/* ---- ② ---- */

static int count_by_processors(const fl_job *job, const fl_engine_task *task)
{
    int processors = fl_host_limits_processors();
    processors = task->cpus > 0 && task->cpus < processors ? task->cpus : processors;
    int n = processors / (int)job->devices.cores;
    return n < 1 ? 1 : n;
}

/* Of this host: the GPUs that the task sees, or as many as its processors allow. */
static fl_status count_devices(const fl_job *job, const fl_engine_task *task, int *n)
{
    const fl_device_demand demand = {.kind = job->devices.kind,
                                     .budget_bytes = (size_t)job->devices.memory_bytes};
    fl_device_survey *devices = NULL;
    FL_TRY(fl_alloc(sizeof *devices, (void **)&devices));
    fl_status status = fl_device_survey_make(&demand, devices);
    *n = devices->n > 0 ? devices->n : count_by_processors(job, task);
    fl_free(devices);
    return status == FL_OK ? FL_OK : fl_within(status, "host %s", task->host);
}

fl_status fl_engine_host_enter(const fl_args *args, const fl_job *job, fl_run_hosts *h)
{
    fl_meeting_host self = {.n_devices = 0};
    FL_TRY(fl_job_locate(job, count_devices(job, &h->task, &self.n_devices)));
    snprintf(self.name, sizeof self.name, "%s", h->task.host);
    FL_TRY(find_address(fl_args_value(args, "--interface"), h->task.host, self.address));
    fl_log(FL_LOG_INFO, "%s: task %d of %d, host %s (%s), devices: %d", h->task.engine,
           h->task.rank, h->task.n, self.name, self.address, self.n_devices);
    return fl_meeting_enter(&h->meeting, &self);
}

/* ---- ③ ---- */

static fl_status await_head(fl_run_hosts *h, char endpoint[FL_MEETING_ENDPOINT], int *exit_code)
{
    int code = 0;
    fl_status status =
        fl_meeting_await(&h->meeting, AWAIT_MS, fl_signals_take_stop, endpoint, &code);
    *exit_code = status != FL_ESTOPPED ? code
                 : code == SIGTERM     ? FL_EXIT_TERMINATED
                                       : FL_EXIT_STOPPED;
    return status == FL_ESTOPPED ? FL_EFAILED : status;
}

static fl_status check_head(void *context, int *exit_code)
{
    return fl_meeting_check_head(context, exit_code);
}

static fl_status join_head(fl_run_hosts *h, int64_t grace_ms, fl_relay_end *end)
{
    char endpoint[FL_MEETING_ENDPOINT], path[PATH_MAX + 16];
    fl_curve_keys keys;
    FL_TRY(await_head(h, endpoint, &end->exit_code));
    snprintf(path, sizeof path, "%s/" FL_MEETING_KEYS, h->meeting.dir);
    FL_TRY(fl_hosts_read_key(path, &keys));
    const fl_agent_host host = {.name = h->task.host,
                                .address = "",
                                .n_devices = 1,
                                .hold_ms = FL_MEETING_HOLD_MS,
                                .check_head = check_head,
                                .head_context = &h->meeting};
    fl_status status = fl_agent_join(endpoint, &keys, &host, grace_ms, end);
    explicit_bzero(&keys, sizeof keys);
    return status;
}

static fl_status serve(const fl_args *args, fl_run_hosts *h, fl_relay_end *end)
{
    char parent[PATH_MAX];
    int64_t grace_ms = 0;
    fl_job *job = NULL;
    FL_TRY(fl_agent_read_grace(args, &grace_ms));
    FL_TRY(fl_alloc(sizeof *job, (void **)&job));
    fl_status status = find_parent(args, job, parent);
    status = status == FL_OK ? fl_engine_host_enter(args, job, h) : status;
    fl_free(job);
    end->exit_code = fl_exit_of(status); /* of a task that cannot meet the others */
    return status == FL_OK ? join_head(h, grace_ms, end) : status;
}

static int exit_of_task(const fl_run_hosts *hosts, fl_status status, const fl_relay_end *end)
{
    if (status == FL_OK) {
        return end->joined ? FL_EXIT_DONE : fl_meeting_last_word(&hosts->meeting);
    }
    if (!end->told) {
        fl_complain("%s", fl_errmsg());
    }
    if (status == FL_ESTOPPED) {
        return end->joined                     ? FL_EXIT_DONE
               : end->signal_number == SIGTERM ? FL_EXIT_TERMINATED
                                               : FL_EXIT_STOPPED;
    }
    if (status == FL_EPEER && !end->joined) { /* it has heard of the end of the head, which ends */
        return fl_meeting_last_word(&hosts->meeting);
    }
    return status == FL_EFAILED ? end->exit_code : fl_exit_of(status);
}

/* The engine ends with the highest code of all tasks, and mpirun ends all tasks after the first
 * that is not 0: a host that has left must not count as the run's failure. */
int fl_run_hosts_serve(const fl_args *args, fl_run_hosts *hosts)
{
    fl_relay_end end = {.exit_code = 0};
    fl_status status = serve(args, hosts, &end);
    int code = exit_of_task(hosts, status, &end);
    if (code == FL_EXIT_BAD_INPUT) {
        fl_meeting_leave_unfit(&hosts->meeting);
    } else {
        fl_meeting_leave(&hosts->meeting);
    }
    if (status == FL_EPEER && end.joined) {
        fl_meeting_abandon(&hosts->meeting);
    }
    return code;
}

void fl_run_hosts_end(const fl_run_hosts *hosts, int exit_code)
{
    if (hosts->task.engine != NULL) {
        fl_meeting_end(&hosts->meeting, exit_code);
        fl_meeting_leave(&hosts->meeting);
    }
}
