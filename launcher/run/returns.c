#include "launcher/run/returns.h"

#include "control/agent/join/host_dismiss.h"
#include "control/agent/join/host_start.h"
#include "control/agent/process/signals.h"
#include "control/checkpoint/commit.h"
#include "control/events/runfiles.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "launcher/run/hosts/hosts.h"
#include "launcher/run/plan/resume.h"
#include "launcher/run/return_end.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { STARTERS_MS = 2000 /* for ssh to end after its agent */ };

int64_t fl_returns_checkpoint(const char *run_dir, int64_t most)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%.4000s/" FL_CHECKPOINT_FOLDER, run_dir);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int64_t step = fd < 0 ? -1 : fl_checkpoint_newest_until(fd, most);
    if (fd >= 0) {
        close(fd);
    }
    return step;
}

/* The step of the newest state that the run can go back to; -1 without one. */
static int64_t find_newest(const fl_kept_snapshot *kept, const char *run_dir, int64_t recorded)
{
    int64_t step = fl_returns_checkpoint(run_dir, recorded);
    return kept->checkpoint != NULL && kept->checkpoint->step > step ? kept->checkpoint->step
                                                                     : step;
}

void fl_returns_find(void *context, bool fails_again, int64_t recorded, fl_return_choice *out)
{
    fl_run_losses *l = context;
    fl_kept_snapshot_check(&l->kept, recorded);
    l->newest = find_newest(&l->kept, l->dir, recorded);
    bool nowhere = l->newest < 0 && (l->resumed || fails_again);
    int n = l->n == 0 || l->newest > l->lost_at ? 1 : l->n + 1;
    *out = (fl_return_choice){.returns = !nowhere && n <= l->most,
                              .to_snapshot = l->kept.checkpoint != NULL &&
                                             l->kept.checkpoint->step == l->newest,
                              .step = l->newest < 0 ? 0 : l->newest};
    if (nowhere) {
        snprintf(out->why_not, sizeof out->why_not,
                 "it cannot go back: it has no snapshot in memory and no checkpoint yet%s",
                 fails_again ? ", and the worker would fail again at its start" : "");
    } else if (l->most == 0) {
        snprintf(out->why_not, sizeof out->why_not, "it does not go back: fault.restarts is 0");
    } else if (!out->returns) {
        snprintf(out->why_not, sizeof out->why_not,
                 "it does not go back once more: it went back %d times without reaching a newer "
                 "snapshot or checkpoint than that of step %lld (fault.restarts)",
                 n - 1, (long long)out->step);
    }
    l->back = *out;
}

/* A host that the run has lost since, or that was drained. */
static bool is_gone(const fl_run_losses *l, int i)
{
    return fl_lasting_is_gone(&l->lasting, i) && !l->hosts->host[i].absent;
}

static bool has_lost_host(const fl_run_losses *l)
{
    bool any = false;
    for (int i = 1; l->hosts != NULL && i < l->hosts->n; i++) {
        any = any || is_gone(l, i);
    }
    return any;
}

bool fl_returns_may_follow(const void *context)
{
    const fl_run_losses *l = context;
    return l->back.returns || (l->n > 0 && has_lost_host(l));
}

bool fl_returns_is_begun(const fl_run_losses *l)
{
    return l != NULL && (l->trained || !l->resumed);
}

/* The host that this one does not reach, and was left out for, itself where its loopback is
 * filtered; -1: none, or another one that is gone for another reason, so that it keeps nobody out
 * any more. */
static int keeps_out(const fl_run_losses *l, int i)
{
    const fl_lasting_host *host = fl_lasting_host_of(&l->lasting, i);
    int other = host == NULL ? -1 : host->record.apart_from - 1;
    return other > 0 && other != i && fl_lasting_is_gone(&l->lasting, other) ? -1 : other;
}

static void leave_out_host(const fl_run_losses *l, int i, fl_lasting_host *known, fl_host *host)
{
    int other = keeps_out(l, i);
    if (known->record.apart_from != 0 && other < 0) {
        known->record.state = FL_HOST_STATE_AWAITED;
    }
    host->absent = fl_lasting_is_gone(&l->lasting, i);
    host->apart_from = other + 1;
    host->trial = known->record.trial;
    host->n_apart = known->host.n_apart;
}

/* Agents that were in the run join again by themselves. */
static void leave_out_hosts(fl_run_losses *l)
{
    for (int i = 1; l->hosts != NULL && i < l->hosts->n; i++) {
        fl_host *host = &l->hosts->host[i];
        if (i < l->lasting.n_hosts) {
            leave_out_host(l, i, &l->lasting.hosts[i], host);
        }
    }
    if (l->hosts != NULL) {
        l->hosts->again = true;
        l->hosts->by_ssh = false;
    }
}

static fl_status take_hosts(fl_run_losses *l, const fl_preparation *p)
{
    if (p->hosts == NULL) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *l->hosts, (void **)&l->hosts));
    *l->hosts = *p->hosts;
    fl_held_ports_hold(l->hosts->agents, l->hosts->links, &l->held_ports);
    return !p->hosts->by_ssh
               ? FL_OK
               : fl_alloc_array((size_t)p->hosts->n, sizeof *l->starters, (void **)&l->starters);
}

/* Most have ended with their agents. */
static void end_starters(fl_run_losses *l)
{
    int64_t until_us = fl_deadline_us(STARTERS_MS);
    for (int i = 1; l->starters != NULL && i < l->hosts->n; i++) {
        fl_host_starter_close(&l->starters[i], fl_left_ms(until_us), true);
    }
    fl_free(l->starters);
    l->starters = NULL;
}

/* The run is over, and has not begun again. */
static void end_key(fl_run_losses *l)
{
    int dir_fd = l->keeps_key ? open(l->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir_fd >= 0) {
        fl_hosts_remove_key(dir_fd);
        close(dir_fd);
    }
    l->keeps_key = false;
}

void fl_returns_keep_hold(fl_run_losses *l, int *held_fd)
{
    l->held_fd = *held_fd;
    *held_fd = -1;
}

static fl_status check_restart(fl_resume *resume, const fl_job *job)
{
    fl_job *own = NULL;
    if (job->model.kind != FL_MODEL_PROGRAM) {
        return fl_resume_check_job(resume, job);
    }
    FL_TRY(fl_alloc(sizeof *own, (void **)&own));
    *own = *job;
    fl_status status = fl_resume_check_program(resume, own);
    fl_free(own);
    return status;
}

/* Continue the run in `dir` from its newest snapshot or checkpoint; without one, begin it again.
 * *began: the training began; false if there is nothing to begin with. */
static fl_status restart_run(fl_preparation *p, const char *dir, fl_run_losses *l,
                             fl_run_result *result, fl_returns_train train, bool *began)
{
    fl_resume *resume = NULL;
    fl_failure failure; /* closing may fail at something, too */
    *began = false;
    FL_TRY(fl_alloc(sizeof *resume, (void **)&resume));
    fl_status status = fl_resume_open_held(dir, l->held_fd, resume);
    l->held_fd = -1;
    l->back.returns = false;
    resume->kept = p->kept;
    resume->why = l->why;
    resume->lost_at = l->lost_at;
    resume->tidied = l->resumed || l->sums.n_returns > 1;
    resume->begins_again = l->newest < 0;
    if (status == FL_OK) {
        status = check_restart(resume, p->job);
    }
    if (status == FL_OK) {
        p->resume = resume;
        status = train(p, NULL, result);
        *began = result->run_dir[0] != '\0';
    }
    fl_failure_keep(&failure, status);
    fl_resume_close(resume);
    fl_free(resume);
    return fl_failure_raise(&failure);
}

void fl_returns_settle(fl_run_losses *l, const fl_resume *resume)
{
    const fl_resume_origin *origin = &resume->origin;
    if (l == NULL || origin->why == NULL) {
        return;
    }
    if (origin->step != l->back.step) {
        fl_log(FL_LOG_WARN,
               "the state of step %lld cannot be used; the run goes back from step %lld to step "
               "%lld",
               (long long)l->back.step, (long long)l->lost_at, (long long)origin->step);
    }
    l->sums.n_repeated = l->repeated_before + origin->n_repeated; /* also if it tries again */
}

static void tell_return(const fl_run_losses *l)
{
    if (l->newest < 0) {
        fl_log(FL_LOG_WARN,
               "%s; no snapshot or checkpoint exists yet: the run goes back from step %lld to its "
               "start, step 0",
               l->why, (long long)l->lost_at);
        return;
    }
    if (l->newest == l->lost_at) { /* it repeats nothing */
        fl_log(FL_LOG_WARN, "%s; the run goes back to the %s of step %lld", l->why,
               l->back.to_snapshot ? "snapshot" : "checkpoint", (long long)l->newest);
        return;
    }
    fl_log(FL_LOG_WARN, "%s; the run goes back from step %lld to step %lld", l->why,
           (long long)l->lost_at, (long long)l->newest);
}

/* Whether the run goes back, as its controller has announced. */
static bool may_return(fl_run_losses *l, fl_status status, const fl_run_result *result)
{
    if (status != FL_EFAILED || !result->worker_lost || !l->back.returns) {
        return false;
    }
    l->n = l->n == 0 || l->newest > l->lost_at ? 1 : l->n + 1;
    snprintf(l->why, sizeof l->why, "%s", l->sums.why);
    l->lost_at = result->steps;
    l->sums.n_returns++;
    l->repeated_before = l->sums.n_repeated;
    tell_return(l);
    return true;
}

/* The run was to go back and could not start, because hosts did not join again. */
static bool may_try_again(const fl_run_losses *l, bool began)
{
    bool again = !began && l->held_fd >= 0 && has_lost_host(l);
    if (again) {
        fl_log(FL_LOG_WARN, "%s; the run goes back without the host that is lost", fl_errmsg());
    }
    return again;
}

/* In place of the controller, which has announced that the run goes back. */
static void tell_failed(const fl_run_losses *l, const char *run_dir, const char *message)
{
    double elapsed_s = (double)(fl_now_us() - l->lasting.start_us) * 1e-6;
    int dir_fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd >= 0) {
        fl_runfiles_append_failed(dir_fd, elapsed_s, message);
        close(dir_fd);
    }
}

static void dismiss_hosts(fl_run_losses *l, fl_agent_ending ending, const char *why,
                          int64_t waited_ms)
{
    fl_held_ports_close(&l->held_ports);
    if (l->hosts != NULL) {
        fl_hosts_dismiss(l->hosts, ending, why, waited_ms);
    }
}

/* A signal has ended the wait for hosts, which the run's controller has recorded, or that for a
 * process that does not end. */
static fl_status stop_waiting(fl_run_losses *l, const fl_preparation *p,
                              const fl_run_result *before, fl_run_result *result)
{
    const char *why = l->hosts != NULL ? "stopped while it waited for hosts to join again"
                                       : "stopped before it had gone back";
    fl_return_end_keep(l, p, before->run_dir, why);
    bool terminated = result->terminated || fl_signals_take_stop() == SIGTERM;
    *result = *before;
    result->worker_lost = false;
    result->terminated = terminated;
    dismiss_hosts(l, terminated ? FL_AGENT_ENDS_STOPPED : FL_AGENT_ENDS_QUIT, why,
                  l->lasting.awaited_ms);
    return fl_fail(FL_ESTOPPED, "%s", why);
}

/* The run was to go back after the loss, and cannot (fl_errmsg). */
static fl_status give_up(fl_run_losses *l, const fl_preparation *p, const fl_failure *loss,
                         const fl_run_result *before)
{
    char text[FL_MESSAGE_MAX];
    snprintf(text, sizeof text, "%s; the run could not go back: %s", loss->text, fl_errmsg());
    fl_log(FL_LOG_WARN, "the run cannot go back: %s", fl_errmsg());
    fl_return_end_keep(l, p, before->run_dir, "the run has not gone back");
    if (fl_returns_is_begun(l)) {
        tell_failed(l, before->run_dir, text);
    }
    dismiss_hosts(l, FL_AGENT_ENDS_FAILED, text, 0); /* all were told to join again */
    return fl_fail(loss->status, "%s", text);
}

fl_status fl_returns_run_once(fl_preparation *p, const char *run_dir, fl_run_result *result,
                              fl_run_losses *l, fl_returns_train train)
{
    p->held_ports = &l->held_ports;
    FL_TRY(take_hosts(l, p));
    p->starters = l->starters;
    fl_status status = train(p, run_dir, result);
    end_starters(l);
    fl_free(l->hosts);
    l->hosts = NULL;
    return status;
}

fl_status fl_returns_run(fl_preparation *p, const char *run_dir, fl_run_result *result,
                         fl_run_losses *l, fl_returns_train train)
{
    fl_resume *resume = p->resume;
    fl_failure failure;
    p->held_ports = &l->held_ports;
    FL_TRY(take_hosts(l, p));
    const fl_preparation again = {.model = p->model,
                                  .dataset = p->dataset,
                                  .job = p->job,
                                  .callbacks = p->callbacks,
                                  .hosts = l->hosts,
                                  .starters = l->starters,
                                  .cluster = p->cluster,
                                  .cluster_file = p->cluster_file,
                                  .found = p->found,
                                  .kept = &l->kept,
                                  .recovered = &l->sums,
                                  .held_ports = p->held_ports,
                                  .losses = l};
    p->starters = l->starters;
    p->kept = &l->kept;
    p->recovered = &l->sums;
    l->resumed = resume != NULL;
    p->losses = l;
    fl_status status = train(p, run_dir, result);
    while (may_return(l, status, result)) {
        fl_run_result before = *result;
        fl_preparation next;
        bool began;
        fl_failure_keep(&failure, status);
        if (resume != NULL) {
            fl_resume_close(resume); /* without its lock */
        }
        do {
            leave_out_hosts(l);
            l->lasting.awaited_ms = 0;
            next = again;
            status = restart_run(&next, before.run_dir, l, result, train, &began);
        } while (status != FL_ESTOPPED && may_try_again(l, began));
        if (!began && status == FL_ESTOPPED) {
            status = stop_waiting(l, &again, &before, result);
            break;
        }
        if (!began) {
            status = give_up(l, &again, &failure, &before);
            *result = before;
            break;
        }
    }
    end_starters(l);
    end_key(l);
    fl_held_ports_close(&l->held_ports);
    fl_free(l->hosts);
    l->hosts = NULL;
    fl_free(l->lasting.hosts);
    l->lasting.hosts = NULL;
    l->lasting.n_hosts = 0;
    return status;
}
