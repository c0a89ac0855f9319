#include "support/runs/fake/fake_run.h"

#include "autodp/sampler.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/nap.h"
#include "support/runs/fake/fake_worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the controller process ---- */

static void make_plan(const fake_run *run, fl_plan *plan)
{
    *plan = (fl_plan){.generation = 1,
                      .K = run->k,
                      .R = 1,
                      .M = 1,
                      .schedule = FL_1F1B,
                      .n_layers = run->k,
                      .n_workers = run->n_workers};
    for (int i = 0; i < FAKE_WORKERS_MAX; i++) {
        plan->first[i] = i;
        plan->rank_of[i] = i;
    }
}

static void make_job(const fake_run *run, fl_job *job)
{
    fl_job_defaults(job);
    snprintf(job->name, sizeof job->name, "fake");
    job->train.batch = run->batch;
    job->train.epochs = run->epochs;
    job->train.seed = 7;
    job->train.evaluate = run->evaluate;
    job->fault.detect_ms = run->detect_ms;
    job->fault.deadline_ms = run->deadline_ms;
    job->fault.on_loss = FL_ON_LOSS_STOP; /* these workers cannot regroup */
}

/* Without layers: the controller asks it only for the metrics of its loss. */
static fl_model *make_model(void)
{
    fl_model *model = NULL;
    fl_loss loss;
    if (fl_model_create("fake", &model) != FL_OK || fl_loss_cross_entropy(2, &loss) != FL_OK ||
        fl_model_set_loss(model, loss) != FL_OK) {
        _exit(9);
    }
    return model;
}

/* A controller leaves ignored signals alone, and nohup or a shell's `&` may have left some so. */
static void take_signals_as_at_a_terminal(void)
{
    static const int ignored[] = {SIGHUP, SIGINT, SIGQUIT};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        signal(ignored[i], SIG_DFL);
    }
}

static _Noreturn void be_head(fake_run *run)
{
    fake_outcome outcome = {0};
    fl_job job;
    fl_plan *plan = malloc(sizeof *plan);
    fl_model *model = make_model();
    int dir_fd = open(run->dir, O_RDONLY | O_DIRECTORY);
    int out =
        run->terminal >= 0 ? run->terminal : openat(dir_fd, "stdout.txt", O_WRONLY | O_CREAT, 0600);
    int err = openat(dir_fd, "stderr.txt", O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    take_signals_as_at_a_terminal();
    make_plan(run, plan);
    make_job(run, &job);
    fl_candidate candidates[2] = {
        {.grid = {.K = run->k, .R = 1, .M = 1}, .step_us = 1000, .memory_bytes = 4096},
        {.grid = {.K = 9, .R = 1, .M = 1}, .step_us = (double)INFINITY, .why_not = FL_EBUDGET}};
    fl_controller_options options = {
        .job = &job,
        .model = model,
        .plan = plan,
        .candidates = candidates,
        .n_candidates = 2,
        .run_dir = run->dir,
        .dir_fd = dir_fd,
        .n_samples = run->n_samples,
        .n_steps = run->epochs * fl_sampler_steps_per_epoch(run->n_samples, run->batch),
        .n_epochs = run->epochs,
        .worker = fake_worker_main,
        .context = run};
    if (run->file_limit > 0) {
        setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)run->file_limit, RLIM_INFINITY});
    }
    fl_alloc_fail_at(run->fail_alloc);
    outcome.status = fl_controller_run(&options, &outcome.result);
    snprintf(outcome.message, sizeof outcome.message, "%s",
             outcome.status == FL_OK ? "" : fl_errmsg());
    int fd = openat(dir_fd, "outcome", O_WRONLY | O_CREAT, 0600);
    ssize_t n = write(fd, &outcome, sizeof outcome);
    free(plan);
    fl_model_destroy(&model);
    fflush(NULL);
    _exit(n == (ssize_t)sizeof outcome ? 0 : 9);
}

fake_run fake_run_of(fake_deed deed, int who, int64_t at_step)
{
    return (fake_run){.n_workers = 2,
                      .k = 2,
                      .n_samples = 50,
                      .batch = 10,
                      .epochs = 2,
                      .detect_ms =
                          3000, /* on a busy machine, a process may stand still for a second */
                      .deadline_ms = 10000,
                      .evaluate = true,
                      .step_us = 1000,
                      .deed = deed,
                      .who = who,
                      .at_step = at_step,
                      .terminal = -1};
}

void fake_start(fake_run *run)
{
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (run->dir[0] == 0) {
        make_folder(run->dir);
    }
    run->shared =
        mmap(NULL, sizeof *run->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    fflush(NULL);
    run->controller = fork();
    if (run->controller == 0) {
        be_head(run);
    }
}

/* ---- waiting ---- */

static bool poll_until(bool (*holds)(const void *), const void *context)
{
    int64_t deadline_us = fl_deadline_us(FAKE_WAIT_MS);
    while (!holds(context)) {
        if (fl_left_ms(deadline_us) == 0) {
            return false;
        }
        nap(1000);
    }
    return true;
}

fake_outcome fake_finish(fake_run *run)
{
    fake_outcome outcome = {.status = FL_EINTERNAL};
    int wait_status = 0;
    int64_t deadline_us = fl_deadline_us(FAKE_WAIT_MS);
    while (waitpid(run->controller, &wait_status, WNOHANG) == 0) {
        if (fl_left_ms(deadline_us) == 0) {
            snprintf(outcome.message, sizeof outcome.message, "the controller did not end");
            kill(run->controller, SIGKILL);
            waitpid(run->controller, &wait_status, 0);
            return outcome;
        }
        nap(1000);
    }
    char path[4200];
    snprintf(path, sizeof path, "%s/outcome", run->dir);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, &outcome, sizeof outcome) != (ssize_t)sizeof outcome) {
        snprintf(outcome.message, sizeof outcome.message,
                 "the controller ended with wait status %x", (unsigned)wait_status);
    }
    close(fd);
    return outcome;
}

char *fake_read(const fake_run *run, const char *file)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", run->dir, file);
    char *text = calloc(1, 8 * 1024 * 1024);
    int fd = open(path, O_RDONLY);
    size_t n = 0;
    ssize_t more;
    while (fd >= 0 && (more = read(fd, text + n, 65536)) > 0 && n < 7 * 1024 * 1024) {
        n += (size_t)more;
    }
    if (fd >= 0) {
        close(fd);
    }
    return text;
}

bool fake_has(const fake_run *run, const char *file)
{
    char path[4200];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", run->dir, file);
    return lstat(path, &info) == 0;
}

typedef struct wanted {
    const fake_run *run;
    const char *file, *text;
    int64_t steps;
    const pid_t *pids;
    int n;
    int *wait_statuses;
} wanted;

static bool has_line(const void *context)
{
    const wanted *w = (const wanted *)context;
    char *text = fake_read(w->run, w->file);
    bool found = strstr(text, w->text) != NULL;
    free(text);
    return found;
}

bool fake_await_line(const fake_run *run, const char *file, const char *text)
{
    return poll_until(has_line, &(wanted){.run = run, .file = file, .text = text});
}

static bool has_steps(const void *context)
{
    const wanted *w = (const wanted *)context;
    return atomic_load(&w->run->shared->done[0]) >= w->steps && has_line(context);
}

bool fake_await_steps(const fake_run *run, int64_t steps)
{
    /* The fake workers do not wait for the controller, which may not have heard yet that all are
     * ready.
     */
    return poll_until(
        has_steps,
        &(wanted){.run = run, .file = "events.jsonl", .text = "run.running", .steps = steps});
}

bool fake_worker_pids(const fake_run *run, pid_t *pids)
{
    if (!fake_await_line(run, "events.jsonl", "plan.chosen")) {
        return false;
    }
    char *text = fake_read(run, "events.jsonl");
    const char *at = strstr(text, "\"workers\"");
    for (int i = 0; i < run->n_workers && at != NULL; i++) {
        at = strstr(at, "\"pid\": ");
        pids[i] = at == NULL ? 0 : (pid_t)strtol(at + 7, NULL, 10);
        at = at == NULL ? NULL : at + 7;
    }
    free(text);
    return at != NULL;
}

pid_t fake_agent_pid(pid_t worker)
{
    char path[64], text[512] = "";
    int parent = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)worker);
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
    const char *after_name = n > 0 ? strrchr(text, ')') : NULL;
    if (after_name != NULL) {
        sscanf(after_name + 1, " %*c %d", &parent);
    }
    close(fd);
    return parent;
}

static bool are_gone(const void *context)
{
    const wanted *w = (const wanted *)context;
    for (int i = 0; i < w->n; i++) {
        int wait_status = 0;
        if (waitpid(w->pids[i], &wait_status, WNOHANG) == w->pids[i] && w->wait_statuses != NULL) {
            w->wait_statuses[i] = wait_status;
        }
        if (kill(w->pids[i], 0) == 0 || errno != ESRCH) {
            return false;
        }
    }
    return true;
}

bool fake_await_gone(const pid_t *pids, int n, int *wait_statuses)
{
    return poll_until(are_gone, &(wanted){.pids = pids, .n = n, .wait_statuses = wait_statuses});
}

static bool have_ended(const void *context)
{
    const wanted *w = (const wanted *)context;
    for (int i = 0; i < w->n; i++) {
        char path[64], text[256] = "";
        snprintf(path, sizeof path, "/proc/%d/stat", (int)w->pids[i]);
        int fd = open(path, O_RDONLY);
        if (fd >= 0) {
            ssize_t n = read(fd, text, sizeof text - 1);
            close(fd);
            if (n > 0 && strstr(text, ") Z ") == NULL) {
                return false;
            }
        }
    }
    return true;
}

bool fake_await_ended(const pid_t *pids, int n)
{
    return poll_until(have_ended, &(wanted){.pids = pids, .n = n});
}

void fake_clean(fake_run *run)
{
    DIR *dir = opendir(run->dir);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    rmdir(run->dir);
    munmap(run->shared, sizeof *run->shared);
}
