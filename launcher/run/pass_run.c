#include "launcher/run/pass_run.h"

#include "autodp/sampler.h"
#include "control/controller/run.h"
#include "device/errors/failure.h"
#include "launcher/job/job.h"
#include "launcher/run/checks/loopback.h"
#include "launcher/run/plan/run_plan.h"

#include "nn/model.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- a folder for the time of the pass ---- */

#define PREFIX "frostline-pass-"
#define KEPT "kept" /* a file in a folder whose logs a message names */

enum { STALE_S = 60 }; /* a younger folder may not be locked yet */

static void remove_scratch(const char *path, int dir_fd)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        (void)unlinkat(dir_fd, e->d_name, 0); /* fails for "." and "..", which stay */
    }
    if (dir != NULL) {
        closedir(dir);
    }
    (void)rmdir(path);
}

/* Whether a pass of this user left the folder because it was killed: the lock on a folder ends with
 * the last process of its pass. */
static bool is_left_over(int dir_fd)
{
    struct stat info;
    return fstat(dir_fd, &info) == 0 && info.st_uid == geteuid() &&
           time(NULL) - info.st_mtime > STALE_S && faccessat(dir_fd, KEPT, F_OK, 0) != 0 &&
           flock(dir_fd, LOCK_EX | LOCK_NB) == 0;
}

static void remove_left_over(const char *where)
{
    DIR *dir = opendir(where);
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        char path[PATH_MAX];
        bool is_ours = strncmp(e->d_name, PREFIX, strlen(PREFIX)) == 0 &&
                       snprintf(path, sizeof path, "%s/%s", where, e->d_name) < PATH_MAX;
        int fd = is_ours ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (fd >= 0 && is_left_over(fd)) {
            remove_scratch(path, fd);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* Workers write their logs there, and reach the controller through a socket in it. */
static fl_status make_scratch(char path[PATH_MAX], int *dir_fd)
{
    const char *where = getenv("TMPDIR");
    where = where == NULL || where[0] == '\0' ? P_tmpdir : where;
    remove_left_over(where);
    if (snprintf(path, PATH_MAX, "%s/" PREFIX "XXXXXX", where) >= PATH_MAX ||
        mkdtemp(path) == NULL) {
        return fl_fail(FL_EIO, "cannot make a folder in %s: %s", where, strerror(errno));
    }
    *dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*dir_fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    (void)flock(*dir_fd, LOCK_EX | LOCK_NB); /* nobody else has it */
    return FL_OK;
}

static void mark_kept(int dir_fd)
{
    int fd = openat(dir_fd, KEPT, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
}

/* ---- the pass ---- */

static fl_status run_in_scratch(fl_preparation *p, const fl_pass_request *request,
                                fl_pass_gate *gate, const char *path, int dir_fd,
                                fl_pass_result *result)
{
    const fl_pass_options pass = {.gate = gate,
                                  .verb = request->verb,
                                  .terminal = stderr,
                                  .n_samples = p->n_samples,
                                  .batch = fl_sampler_batch(p->job),
                                  .out_fd =
                                      request->task == FL_WORKER_PREDICT ? request->out_fd : -1,
                                  .out = request->out};
    fl_worker_context worker = {.model = p->model,
                                .dataset = p->dataset,
                                .job = p->job,
                                .cores = &p->cores,
                                .devices = &p->devices,
                                .nccl = &p->nccl,
                                .algorithms = p->costs->algorithms,
                                .due = &p->due,
                                .batches = p->batches,
                                .dir_fd = dir_fd,
                                .init = &p->init,
                                .task = request->task,
                                .gate = gate,
                                .n_samples = p->n_samples,
                                .n_steps = p->n_steps};
    const fl_controller_options controller = {.job = p->job,
                                              .model = p->model,
                                              .dataset = p->dataset,
                                              .plan = p->plan,
                                              .plan_input = &p->input,
                                              .run_dir = path,
                                              .dir_fd = dir_fd,
                                              .lead = p->due.lead,
                                              .n_devices = p->n_workers,
                                              .devices = &p->devices,
                                              .n_samples = p->n_samples,
                                              .n_steps = p->n_steps,
                                              .n_epochs = 1,
                                              .pass = &pass,
                                              .outcome = &result->outcome,
                                              .worker = fl_worker_run,
                                              .context = &worker};
    result->K = p->plan->K;
    result->R = p->plan->R;
    result->M = p->plan->M;
    return fl_controller_run(&controller, NULL);
}

/* Logs of workers that failed stay, since the message names them. */
static fl_status run_prepared(fl_preparation *p, const fl_pass_request *request,
                              fl_pass_result *result)
{
    char path[PATH_MAX];
    int dir_fd = -1;
    fl_pass_gate *gate = NULL;
    FL_TRY(fl_pass_gate_create(&gate));
    fl_status status = make_scratch(path, &dir_fd);
    if (status == FL_OK) {
        status = run_in_scratch(p, request, gate, path, dir_fd, result);
    }
    fl_failure failure;
    fl_failure_keep(&failure, status);
    if (dir_fd >= 0 && strstr(fl_errmsg(), path) != NULL) {
        mark_kept(dir_fd);
    } else if (dir_fd >= 0) {
        remove_scratch(path, dir_fd);
    }
    if (dir_fd >= 0) {
        close(dir_fd);
    }
    fl_pass_gate_destroy(&gate);
    return fl_failure_raise(&failure);
}

fl_status fl_pass_run(fl_use *use, const fl_pass_request *request, fl_pass_result *result)
{
    /* All blocks are frozen, so that nothing is planned for a backward pass but the head's. */
    fl_preparation p = {.model = use->model,
                        .dataset = &use->samples,
                        .job = &use->job,
                        .weights = use->saved.weights,
                        .weights_file = use->weights,
                        .F = fl_model_n_blocks(use->model),
                        .guesses_costs = true};
    *result = (fl_pass_result){0};
    FL_TRY(fl_preparation_check_arguments(use->model, &use->samples, &use->job));
    use->weights = NULL; /* the preparation's */
    fl_status status = fl_preparation_check(&p);
    if (status == FL_OK) {
        status = fl_loopback_check(&p);
    }
    if (status == FL_OK) {
        status = fl_run_plan_make(&p);
    }
    if (status == FL_OK) {
        status = run_prepared(&p, request, result);
    }
    fl_preparation_fini(&p);
    return fl_job_locate(&use->job, status);
}
