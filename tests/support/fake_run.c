#include "support/fake_run.h"

#include "autodp/sampler.h"
#include "control/link.h"
#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"
#include "support/folder.h"
#include "support/nap.h"

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
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the fake worker ---- */

typedef struct fake_worker {
    const fake_run *run;
    int rank;
    fl_link *link;
    atomic_bool aborted;
    int64_t *ids;
    fl_cursor cursor;
} fake_worker;

static void on_abort(void *context, uint32_t generation, fl_status why)
{
    (void)generation;
    (void)why;
    atomic_store(&((fake_worker *)context)->aborted, true);
}

static _Noreturn void die_by(int number)
{
    signal(number, SIG_DFL); /* a sanitizer would turn it into an exit code */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(number);
    abort();
}

static void linger(void)
{
    for (;;) {
        nap(10000);
    }
}

/* Returns the exit code of a worker that leaves, -1 of one that goes on. */
static int misbehave(fake_worker *w)
{
    const fake_run *run = w->run;
    while (run->waits_for_test && !atomic_load(&run->shared->go_on)) {
        nap(1000);
    }
    switch (run->deed) {
    case FAKE_EXIT:
        fl_log(FL_LOG_ERROR, "the last words of worker %d", w->rank);
        _exit(3);
    case FAKE_SEGFAULT:
        die_by(SIGSEGV);
    case FAKE_STOP:
        raise(SIGSTOP);
        return -1;
    case FAKE_CLOSE:
        fl_link_close(&w->link);
        linger();
        return -1;
    case FAKE_LEAVE:
        fl_link_close(&w->link);
        return 0;
    case FAKE_REPORT:
        fl_link_failed(w->link, FL_EIO, "the disk \"sda\"\n is on fire");
        return 3;
    case FAKE_DIE_LATE:
        while (atomic_load(&run->shared->n_reports) < run->n_workers - 1) {
            nap(1000);
        }
        nap(20000); /* the reports are on their way to the head */
        die_by(SIGKILL);
    case FAKE_HANG:
        fl_link_doing(w->link, "counting sheep");
        while (!atomic_load(&w->aborted)) {
            nap(1000);
        }
        return 3;
    case FAKE_DONE_STAYS:
        fl_link_done(w->link);
        linger();
        return -1;
    case FAKE_NO_LINK:
        linger();
        return -1;
    case FAKE_NOTHING:
    case FAKE_ONE_STEP_ON:
        break;
    }
    return -1;
}

static bool strikes(const fake_worker *w, int64_t step)
{
    return w->rank == w->run->who && step == w->run->at_step && w->run->deed != FAKE_DONE_STAYS;
}

static void report_step(fake_worker *w, int64_t step)
{
    const fake_run *run = w->run;
    int64_t n, epoch = w->cursor.epoch;
    fl_sampler_next(7, run->n_samples, run->batch, &w->cursor, w->ids, &n);
    fl_link_ledger(w->link, epoch, step, 1, 0, w->ids, n);
    fl_step_report report = {.step = step,
                             .epoch = epoch,
                             .loss = 1.0 / (double)(step + 1),
                             .grad_norm = 0.1,
                             .lr = 1e-3,
                             .ms = (double)run->step_us * 1e-3,
                             .samples = n,
                             .tokens = 17 * n,
                             .generation = 1,
                             .k = run->k,
                             .r = 1,
                             .m = 1};
    fl_link_step(w->link, &report);
    if (run->evaluate && w->cursor.epoch != epoch) {
        fl_eval_report eval = {.epoch = epoch,
                               .step = step,
                               .loss = 0.5,
                               .accuracy = 0.75,
                               .ms = 1,
                               .samples = run->n_samples};
        fl_link_eval(w->link, &eval);
    }
}

static bool all_have_done(const fake_run *run, int64_t step)
{
    for (int i = 0; i < run->n_workers; i++) {
        if (atomic_load(&run->shared->done[i]) <= step) {
            return false;
        }
    }
    return true;
}

/* One step, after which all wait for all. False: leave. */
static bool fake_step(fake_worker *w, int64_t step)
{
    fake_shared *shared = w->run->shared;
    fl_verdict verdict;
    fl_link_doing(w->link, "step");
    nap(w->run->step_us);
    if (w->rank == 0 && fl_link_take_verdict(w->link, &verdict) &&
        verdict.kind == FL_VERDICT_STOP && w->run->deed != FAKE_ONE_STEP_ON) {
        atomic_store(&shared->stop_at, step + 1); /* nobody is past this step's barrier */
    }
    atomic_store(&shared->done[w->rank], step + 1);
    while (!all_have_done(w->run, step)) {
        if (atomic_load(&w->aborted)) {
            return false;
        }
        nap(w->run->step_us / 10);
    }
    if (w->rank == 0) {
        report_step(w, step);
    }
    fl_time_report time = {.step = step, .compute_us = w->run->step_us};
    fl_link_time(w->link, &time);
    return true;
}

/* Somebody does a deed that the others notice as a lost peer, or as a deadline that passed. */
static bool notices(const fake_worker *w, int64_t step)
{
    return w->rank != w->run->who && step == w->run->at_step &&
           (w->run->deed == FAKE_DIE_LATE || w->run->deed == FAKE_HANG);
}

static bool is_stopped(const fake_run *run, int64_t step)
{
    int64_t stop_at = atomic_load(&run->shared->stop_at);
    return stop_at > 0 && step >= stop_at;
}

static int fake_train(fake_worker *w)
{
    const fake_run *run = w->run;
    int64_t n_steps = run->epochs * fl_sampler_steps_per_epoch(run->n_samples, run->batch);
    for (int64_t step = 0; step < n_steps && !is_stopped(run, step); step++) {
        if (strikes(w, step)) {
            int code = misbehave(w);
            if (code >= 0) {
                return code;
            }
        }
        if (notices(w, step)) {
            fl_link_failed(w->link, run->deed == FAKE_HANG ? FL_EDEADLINE : FL_EPEER,
                           "my peer is lost");
            atomic_fetch_add(&run->shared->n_reports, 1);
            return 3;
        }
        if (!fake_step(w, step)) {
            fl_link_failed(w->link, FL_EPEER, "the head ended this generation");
            return 3;
        }
    }
    if (w->rank == run->who && run->deed == FAKE_DONE_STAYS) {
        return misbehave(w);
    }
    fl_link_done(w->link);
    return 0;
}

/* Through the rendezvous store, as groups do it. */
static bool greet(fake_worker *w)
{
    const fl_kv *kv = fl_link_kv(w->link);
    void *data = NULL;
    size_t n = 0;
    if (w->rank == 0) {
        return kv->set(kv->self, "fake/greeting", "good day", 8) == FL_OK;
    }
    bool same = kv->get(kv->self, "fake/greeting", fl_deadline_us(w->run->deadline_ms), &data,
                        &n) == FL_OK &&
                n == 8 && memcmp(data, "good day", 8) == 0;
    fl_free(data);
    return same;
}

static int fake_worker_main(void *context, int rank, const char *endpoint)
{
    fake_worker w = {.run = (const fake_run *)context, .rank = rank};
    const fake_run *run = w.run;
    w.ids = calloc((size_t)run->batch, sizeof *w.ids);
    fl_log(FL_LOG_INFO, "hello from worker %d", rank);
    if (strikes(&w, -1) && run->deed == FAKE_NO_LINK) {
        misbehave(&w);
    }
    fl_link_options options = {.endpoint = endpoint,
                               .rank = rank,
                               .generation = 1,
                               .heartbeat_ms = run->detect_ms / 10,
                               .on_abort = on_abort,
                               .context = &w};
    if (fl_link_open(&options, &w.link) != FL_OK) {
        fl_log(FL_LOG_ERROR, "%s", fl_errmsg());
        return 4;
    }
    int code = strikes(&w, -1) ? misbehave(&w) : -1;
    if (code < 0 && !greet(&w)) {
        fl_link_failed(w.link, FL_EINTERNAL, fl_errmsg());
        code = 3;
    }
    if (code < 0) {
        fl_link_ready(w.link, 1000 + rank);
        code = fake_train(&w);
    }
    fl_link_close(&w.link);
    free(w.ids);
    return code;
}

/* ---- the head process ---- */

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
}

static _Noreturn void be_head(fake_run *run)
{
    fake_outcome outcome = {0};
    fl_job job;
    fl_plan *plan = malloc(sizeof *plan);
    int dir_fd = open(run->dir, O_RDONLY | O_DIRECTORY);
    int out =
        run->terminal >= 0 ? run->terminal : openat(dir_fd, "stdout.txt", O_WRONLY | O_CREAT, 0600);
    int err = openat(dir_fd, "stderr.txt", O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    make_plan(run, plan);
    make_job(run, &job);
    fl_candidate candidates[2] = {
        {.K = run->k, .R = 1, .M = 1, .step_us = 1000, .memory_bytes = 4096},
        {.K = 9, .R = 1, .M = 1, .step_us = (double)INFINITY, .why_not = FL_EBUDGET}};
    fl_head_options options = {.job = &job,
                               .plan = plan,
                               .candidates = candidates,
                               .n_candidates = 2,
                               .run_dir = run->dir,
                               .dir_fd = dir_fd,
                               .n_samples = run->n_samples,
                               .n_steps = run->epochs *
                                          fl_sampler_steps_per_epoch(run->n_samples, run->batch),
                               .n_epochs = run->epochs,
                               .worker = fake_worker_main,
                               .context = run};
    fl_alloc_fail_at(run->fail_alloc);
    outcome.status = fl_head_run(&options, &outcome.result);
    snprintf(outcome.message, sizeof outcome.message, "%s",
             outcome.status == FL_OK ? "" : fl_errmsg());
    int fd = openat(dir_fd, "outcome", O_WRONLY | O_CREAT, 0600);
    ssize_t n = write(fd, &outcome, sizeof outcome);
    free(plan);
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
                      .detect_ms = 1000,
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
    run->head = fork();
    if (run->head == 0) {
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
    while (waitpid(run->head, &wait_status, WNOHANG) == 0) {
        if (fl_left_ms(deadline_us) == 0) {
            snprintf(outcome.message, sizeof outcome.message, "the head did not end");
            kill(run->head, SIGKILL);
            waitpid(run->head, &wait_status, 0);
            return outcome;
        }
        nap(1000);
    }
    char path[4200];
    snprintf(path, sizeof path, "%s/outcome", run->dir);
    int fd = open(path, O_RDONLY);
    if (fd < 0 || read(fd, &outcome, sizeof outcome) != (ssize_t)sizeof outcome) {
        snprintf(outcome.message, sizeof outcome.message, "the head ended with wait status %x",
                 (unsigned)wait_status);
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
    /* The fake workers do not wait for the head, which may not have heard yet that all are ready.
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
