#include "control/controller/members/joining.h"

#include "control/controller/judge/attempts.h"
#include "control/controller/judge/watch.h"
#include "control/controller/members/host_report.h"
#include "control/controller/members/host_watch.h"
#include "control/controller/members/replan.h"
#include "control/controller/parts/parts.h"
#include "control/elastic/elastic_transition.h"
#include "device/errors/log.h"
#include "device/system/clock.h"
#include "device/system/program.h"
#include "device/text/plural.h"
#include "device/text/shell_text.h"

#include <stdio.h>
#include <sys/wait.h>

enum {
    SECOND_US = 1000 * 1000,
    LONGEST_DELAY_S = 60,
    AGAIN_US = SECOND_US,
    END_BYTES = FL_WORKER_HOST_WHY_MAX + 16,
};

int64_t fl_joining_delay_s(int n)
{
    int64_t delay_s = n < 7 ? INT64_C(1) << (n - 1) : LONGEST_DELAY_S;
    return delay_s < LONGEST_DELAY_S ? delay_s : LONGEST_DELAY_S;
}

/* A run that repeats another one has its plans, and a pass over samples has no transitions. */
static bool can_join(const fl_controller *controller)
{
    const fl_controller_options *o = controller->options;
    return o->recording == NULL && controller->pass.o == NULL && o->plan_input != NULL;
}

static void schedule_start(fl_controller *controller, int rank, int64_t now_us)
{
    fl_joining_worker *j = &controller->joining[rank];
    bool again = !j->wanted && can_join(controller) && !fl_host_watch_forbids(controller, rank);
    int most = (int)controller->job.fault.restarts;
    char times[FL_COUNT_BYTES];
    j->state = FL_JOINING_NONE;
    j->failed = j->wanted;
    j->by_host = false;
    if (again && j->n_restarts < most) {
        j->state = FL_JOINING_DELAYED;
        j->due_us = now_us + fl_joining_delay_s(j->n_restarts + 1) * SECOND_US;
        controller->workers[rank].restarts_us = j->due_us;
    } else if (again && most > 0) {
        fl_log(FL_LOG_WARN,
               "worker %d is not started again: it was lost %s after that (fault.restarts); "
               "`frostline ctl scale` brings it back",
               rank, fl_count(most, "time", times));
    }
}

void fl_joining_lost(fl_controller *controller, int rank, int64_t now_us)
{
    const fl_elastic *e = &controller->elastic;
    uint32_t asked = e->transition.last_asked, now = e->plan.generation;
    controller->joining[rank].last_member = asked > now ? asked : now;
    controller->joining[rank].wanted = false;
    schedule_start(controller, rank, now_us);
}

/* The record of a lost worker is needed until the others have recovered. The loss of one without a
 * stage may still turn out to be one of a worker with a stage (losses.c). */
static bool is_settled(const fl_controller *controller, int rank, int64_t now_us)
{
    const fl_survived_loss *s = &controller->spared[rank];
    int64_t memory_us = controller->job.fault.detect_ms * 1000;
    if (controller->recovery.state != FL_RECOVERY_NONE ||
        controller->elastic.transition.state == FL_ELASTIC_RECOVERING ||
        !controller->elastic.plan.departed[rank]) {
        return false;
    }
    return s->kind == FL_LOSS_NONE || (s->reported && now_us - s->lost_us >= memory_us &&
                                       fl_step_order_gap(&controller->reports) == 0);
}

static void start_process(fl_controller *controller, int rank, int64_t now_us)
{
    fl_joining_worker *j = &controller->joining[rank];
    fl_worker_birth birth;
    fl_worker_birth_first(&controller->elastic.plan, controller->stats.n_steps, &birth);
    birth.rank = rank;
    birth.joins = true;
    if (!fl_agent_start(controller->agent, &birth)) {
        j->due_us = now_us + AGAIN_US; /* the agent is stopped, perhaps */
        return;
    }
    j->state = FL_JOINING_STARTING;
    j->late = FL_LOSS_NONE;
    j->attempts = (fl_attempts){.n = 0};
    j->n_restarts += !j->wanted && !j->by_host;
    controller->spared[rank].kind = FL_LOSS_NONE;
    if (rank >= controller->facts.n_started) {
        controller->facts.n_started = rank + 1;
        fl_event_log_grown(&controller->log, rank, j->by_host);
    } else {
        fl_event_log_restarted(&controller->log, rank, controller->stats.steps, j->n_restarts,
                               (int)controller->job.fault.restarts,
                               j->by_host  ? FL_RESTART_HOST
                               : j->wanted ? FL_RESTART_REQUESTED
                                           : FL_RESTART_LOST);
    }
}

/* A worker that joins is started, hangs or is stopped: its start has a limit as any other, and so
 * have its silence and its standstill. Its messages must be readable, too. */
static fl_loss_kind judge_joining(const fl_controller *controller, const fl_worker *w,
                                  int64_t now_us)
{
    const fl_watch_limits *limits = &controller->shutdown.limits;
    if (w->unread_us != 0) {
        return FL_LOSS_UNREADABLE;
    }
    if (fl_watch_late_us(w, limits, now_us) > 0) {
        return FL_LOSS_NEVER_READY;
    }
    if (w->linked && now_us - w->heard_us > limits->silence_us) {
        return FL_LOSS_SILENT;
    }
    return w->hung ? FL_LOSS_HUNG : FL_LOSS_NONE;
}

/* Its end is noticed in a later turn, and says then why. */
static void end_late(fl_controller *controller, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    fl_joining_worker *j = &controller->joining[rank];
    fl_loss_kind kind = judge_joining(controller, w, now_us);
    if (kind != FL_LOSS_NONE && j->late == FL_LOSS_NONE) {
        j->late = kind;
        w->missed_us = kind == FL_LOSS_SILENT ? now_us - w->heard_us : w->still_us;
        fl_agent_kill(controller->agent, w, 1);
    }
}

static bool is_known_to_have_left(const fl_controller *controller, int rank)
{
    return controller->elastic.plan.generation > controller->joining[rank].last_member;
}

static void ask_for_it(fl_controller *controller, int rank, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    fl_joining_worker *j = &controller->joining[rank];
    fl_elastic_terms terms = fl_elastic_terms_now(e);
    fl_plan same = e->plan;
    char why[64];
    if (e->transition.state != FL_ELASTIC_IDLE || now_us < j->due_us) {
        return;
    }
    bool joins = is_known_to_have_left(controller, rank);
    terms.usable.drained[rank] = !joins;
    snprintf(why, sizeof why, "worker %d %s", rank, joins ? "joins" : "was lost");
    if (fl_elastic_ask_with(e, &same, 0, &terms, why) == FL_OK) {
        j->state = FL_JOINING_ASKED;
        j->generation = e->transition.told = e->transition.requested;
        fl_attempts_begin(&j->attempts, now_us);
    } else {
        fl_log(FL_LOG_DEBUG, "worker %d cannot join yet: %s", rank, fl_errmsg());
        j->due_us = now_us + AGAIN_US;
    }
}

/* The record of its host, if that is lost now; else NULL. */
static const fl_host_record *lost_host_of(const fl_controller *controller, int rank)
{
    const fl_host_watch *h = &controller->hosts;
    int i = h->records == NULL ? -1 : fl_hosts_of(h->table, rank);
    return i > 0 && h->records[i].state == FL_HOST_STATE_LOST ? &h->records[i] : NULL;
}

/* Whether its host has said, while it joined, that it cannot take part: that is no loss of a
 * worker, and the event of the host says why. */
static bool is_refused_with_host(const fl_controller *controller, int rank)
{
    const fl_host_record *host = lost_host_of(controller, rank);
    return host != NULL && host->unfit;
}

/* A worker of a host that vanished is silent before the host counts as lost. */
static fl_loss_kind early_end_of(const fl_worker *w, fl_loss_kind late)
{
    bool is_with_host = w->host_why[0] != '\0';
    if (is_with_host && (late == FL_LOSS_NONE || late == FL_LOSS_SILENT)) {
        return FL_LOSS_HOST;
    }
    return late != FL_LOSS_NONE          ? late
           : WIFSIGNALED(w->wait_status) ? FL_LOSS_KILLED
           : w->failed_us != 0           ? FL_LOSS_REPORTED
                                         : FL_LOSS_EXITED;
}

/* It ended before it had joined the run. */
static void log_early_end(fl_controller *controller, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    char text[FL_WIRE_TEXT_MAX + 256];
    fl_joining_worker *j = &controller->joining[rank];
    fl_loss_kind kind = early_end_of(w, j->late);
    j->late = FL_LOSS_NONE;
    w->lost_outside = true;
    if (is_refused_with_host(controller, rank)) {
        return;
    }
    fl_watch_text(w, kind, now_us, text, sizeof text);
    controller->recovery.sums.n_losses++;
    const fl_worker_loss loss = {.kind = kind,
                                 .how = fl_watch_kind_text(kind),
                                 .step = fl_host_report_loss_step(controller, rank),
                                 .text = text};
    fl_event_log_survived(&controller->log, w, &loss);
}

static void watch_starting(fl_controller *controller, int rank, int64_t now_us)
{
    fl_worker *w = &controller->workers[rank];
    if (w->exited_us != 0) {
        log_early_end(controller, rank, now_us);
        schedule_start(controller, rank, now_us);
        return;
    }
    end_late(controller, rank, now_us);
    if (w->ready && controller->joining[rank].late == FL_LOSS_NONE) {
        ask_for_it(controller, rank, now_us);
    }
}

/* By a signal that the run has not sent: its end is reported, and no connection is to blame. */
static bool was_killed_outside(const fl_worker *w)
{
    return w->exited_us != 0 && WIFSIGNALED(w->wait_status) && !w->killed;
}

/* Its process is gone with its host, whose agent may have joined again since. */
static bool has_lost_host(const fl_worker *w)
{
    return w->exited_us != 0 && w->host_why[0] != '\0';
}

static bool is_left_out(const fl_host_record *host)
{
    return host != NULL && host->apart_from != 0;
}

/* "was lost with host b (10.0.0.2): why" */
static void explain_end(const fl_controller *controller, int rank, char *text, size_t size_bytes)
{
    const fl_worker *w = &controller->workers[rank];
    if (has_lost_host(w)) {
        snprintf(text, size_bytes, "was %s %s",
                 is_left_out(lost_host_of(controller, rank)) ? "left out" : "lost", w->host_why);
    } else {
        snprintf(text, size_bytes, "has ended");
    }
}

/* No attempt follows before an agent of the host joins the run. */
static void tell_host_loss(fl_controller *controller, int rank)
{
    const fl_host_record *host = lost_host_of(controller, rank);
    bool waits = is_left_out(host);
    const char *next = host == NULL ? ""
                       : waits      ? "; its agent joins again when they do"
                                    : "; a new agent there joins again (frostline agent --join)";
    char end[END_BYTES];
    explain_end(controller, rank, end, sizeof end);
    fl_progress_note(&controller->log.progress, "worker %d cannot join the run%s: it %s%s", rank,
                     waits ? " yet" : "", end, next);
}

/* The members and a host that joins connect to each other in the preparation. */
static void tell_failure(fl_controller *controller, int rank, const char *why, int64_t now_us)
{
    const fl_joining_worker *j = &controller->joining[rank];
    const fl_hosts *hosts = controller->options->hosts;
    int i = hosts == NULL ? -1 : fl_hosts_of(hosts, rank);
    char when[64], where[2 * FL_HOST_TEXT + 16] = "", ports[FL_HOSTS_PORTS_TEXT], ask[128] = "";
    if (has_lost_host(&controller->workers[rank])) {
        tell_host_loss(controller, rank);
        return;
    }
    if (!fl_attempts_tell(&j->attempts, j->due_us, now_us, when, sizeof when)) {
        return;
    }
    if (i > 0) {
        snprintf(where, sizeof where, " of host %s (%s)", hosts->host[i].name,
                 hosts->host[i].address);
    }
    if (i > 0 && !was_killed_outside(&controller->workers[rank])) {
        snprintf(ask, sizeof ask, "; can all hosts reach each other at %s (frostline doctor)?",
                 fl_hosts_ports_text(hosts->ports, ports));
    }
    fl_progress_note(&controller->log.progress, "worker %d%s cannot join the run yet: %s%s%s", rank,
                     where, why, ask, when);
}

/* Its end cancels the preparation; one that never answers is ended for that. Once the members vote,
 * they no longer need it. If a member is lost meanwhile, the transition is given up and this worker
 * joins with a later one; or it is over where a member had switched, and fl_recovery leaves this
 * worker out. */
static void watch_asked(fl_controller *controller, int rank, int64_t now_us)
{
    fl_elastic *e = &controller->elastic;
    fl_joining_worker *j = &controller->joining[rank];
    fl_worker *w = &controller->workers[rank];
    const fl_elastic_outcome *outcome = fl_elastic_outcome_of(e, j->generation);
    if (outcome != NULL) {
        bool joined = outcome->committed && !e->plan.departed[rank];
        if (joined && !j->wanted && !j->by_host) {
            fl_replan_joined(controller, rank, now_us);
        }
        j->wanted = j->wanted && !joined;
        j->by_host = j->by_host && !joined;
        j->state = joined ? FL_JOINING_NONE : FL_JOINING_STARTING;
        j->due_us = outcome->committed ? now_us : fl_attempts_failed(&j->attempts, now_us);
        if (joined) {
            fl_event_log_joined(&controller->log, w, outcome->step);
        } else if (!outcome->committed) {
            tell_failure(controller, rank, outcome->why, now_us);
        }
    } else if (w->exited_us != 0 && e->transition.state == FL_ELASTIC_PREPARING) {
        char why[END_BYTES + 64], end[END_BYTES];
        explain_end(controller, rank, end, sizeof end);
        snprintf(why, sizeof why, "worker %d, which was to join, %s", rank, end);
        fl_elastic_cancel(e, why);
    } else if (w->exited_us == 0 && e->transition.state == FL_ELASTIC_PREPARING) {
        end_late(controller, rank, now_us);
    }
}

bool fl_joining_is_half_in(const fl_controller *controller, int rank)
{
    const fl_joining_worker *j = &controller->joining[rank];
    return j->state == FL_JOINING_ASKED && j->generation == controller->elastic.plan.generation;
}

static fl_status fail_without_devices(const fl_controller *controller, int n)
{
    const fl_hosts *hosts = controller->facts.hosts;
    char devices[FL_COUNT_BYTES], program[FL_SHELL_PATH_BYTES], agents[4 * FL_HOSTS_ENDPOINT_MAX];
    char folder[PATH_MAX], shown[FL_SHELL_PATH_BYTES];
    return fl_fail(
        FL_EINVAL,
        "the hosts of this run lack %s; on a host with as many, this command adds it:\n%s agent "
        "--join %s --key %s/" FL_HOSTS_KEY_FILE " --devices %d",
        fl_count(n, "device", devices), fl_program_shown(program, sizeof program),
        fl_shell_shown(hosts->agents, agents, sizeof agents),
        fl_shell_shown(fl_hosts_key_folder(hosts, controller->options->run_dir, folder), shown,
                       sizeof shown),
        n);
}

bool fl_joining_want(fl_controller *controller, int n, int64_t now_us)
{
    int n_coming = 0;
    for (int rank = 0; rank < controller->n_workers; rank++) {
        fl_joining_worker *j = &controller->joining[rank];
        if (j->failed) {
            j->failed = j->wanted = false;
            return fl_fail(FL_EFAILED,
                           "worker %d was started and ended before it had joined: see its log",
                           rank) == FL_OK;
        }
        bool is_out = j->state == FL_JOINING_NONE && controller->workers[rank].departed;
        bool is_delayed = j->state == FL_JOINING_DELAYED && !j->wanted;
        bool may = !fl_host_watch_forbids(controller, rank);
        if (may && (is_out || is_delayed) && n_coming < n && can_join(controller)) {
            j->state = FL_JOINING_DELAYED;
            j->wanted = true;
            j->due_us = now_us;
        }
        n_coming += j->state != FL_JOINING_NONE;
    }
    if (n_coming < n && controller->facts.hosts != NULL && can_join(controller)) {
        return fail_without_devices(controller, n - n_coming) == FL_OK;
    }
    return n_coming >= n || fl_fail(FL_EINVAL, "this run starts no worker again") == FL_OK;
}

void fl_joining_host_is_back(fl_controller *controller, int rank, int64_t now_us)
{
    fl_joining_worker *j = &controller->joining[rank];
    if (can_join(controller) && j->state <= FL_JOINING_DELAYED) {
        j->state = FL_JOINING_DELAYED;
        j->by_host = !j->wanted;
        j->due_us = now_us;
        controller->workers[rank].restarts_us = now_us;
    }
}

void fl_joining_forbid(fl_controller *controller, int rank)
{
    fl_joining_worker *j = &controller->joining[rank];
    fl_worker *w = &controller->workers[rank];
    if (j->state == FL_JOINING_DELAYED) {
        j->state = FL_JOINING_NONE;
        j->wanted = false;
        w->restarts_us = 0;
    } else if (j->state != FL_JOINING_NONE && w->joins && w->exited_us == 0) {
        fl_agent_kill(controller->agent, w, 1); /* its end shows as that of any that was to join */
    }
}

void fl_joining_watch(fl_controller *controller, int64_t now_us)
{
    const fl_phase *phase = &controller->shutdown.phase;
    if (phase->state != FL_CONTROLLER_RUNNING || phase->n_stops > 0) {
        return;
    }
    for (int rank = 0; rank < controller->n_workers; rank++) {
        const fl_joining_worker *j = &controller->joining[rank];
        const fl_worker *w = &controller->workers[rank];
        if (j->state == FL_JOINING_DELAYED && now_us >= j->due_us && w->exited_us != 0 &&
            is_settled(controller, rank, now_us)) {
            start_process(controller, rank, now_us);
        } else if (j->state == FL_JOINING_STARTING) {
            watch_starting(controller, rank, now_us);
        } else if (j->state == FL_JOINING_ASKED) {
            watch_asked(controller, rank, now_us);
        }
    }
}

void fl_joining_end(fl_controller *controller)
{
    for (int rank = 0; rank < controller->n_workers; rank++) {
        fl_worker *w = &controller->workers[rank];
        if (w->joins && w->exited_us == 0) {
            fl_agent_kill(controller->agent, w, 1);
        }
        controller->joining[rank].state = FL_JOINING_NONE;
        w->restarts_us = 0;
    }
}
