#include "control/controller/judge/watch.h"

#include "control/link/link.h"
#include "device/errors/failure.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { START_MIN_MS = 30000 }; /* a process starts, and a driver of a GPU */

fl_watch_limits fl_watch_limits_of(int64_t detect_ms, int64_t deadline_ms)
{
    int64_t detect_us = detect_ms * 1000;
    int64_t opening_ms = deadline_ms > START_MIN_MS ? deadline_ms : START_MIN_MS;
    int64_t start_ms = 2 * deadline_ms > START_MIN_MS ? 2 * deadline_ms : START_MIN_MS;
    return (fl_watch_limits){
        .silence_us = detect_us * 65 / 100,
        .trial_us = detect_us * 20 / 100,
        .settle_us = detect_us * 4 / 100,
        .grace_us = detect_us * 20 / 100,
        .start_us = start_ms * 1000,
        .opening_us = opening_ms * 1000,
        .circle_us = deadline_ms * 1000,
    };
}

/* A worker that ended with exit code 0 has most likely finished: a busy machine may still have its
 * last reports in a buffer. */
static bool may_be_done(const fl_worker *w, const fl_watch_limits *limits, int64_t now_us)
{
    return WEXITSTATUS(w->wait_status) == 0 && now_us - w->exited_us <= limits->silence_us;
}

int64_t fl_watch_late_us(const fl_worker *w, const fl_watch_limits *limits, int64_t now_us)
{
    int64_t start_us = now_us - w->spawned_us - limits->start_us;
    int64_t opening_us = w->still_us - limits->opening_us;
    int64_t late_us = start_us > opening_us ? start_us : opening_us;
    return w->ready ? 0 : late_us;
}

/* The symptom that one worker shows by itself, and since when. */
static fl_loss_kind symptom(const fl_worker *w, const fl_watch_limits *limits, int64_t now_us,
                            int64_t *since_us)
{
    if (w->done || w->departed) {
        return FL_LOSS_NONE;
    }
    if (w->exited_us != 0 && WIFSIGNALED(w->wait_status)) {
        *since_us = w->exited_us;
        return w->host_why[0] != '\0' ? FL_LOSS_HOST : FL_LOSS_KILLED;
    }
    if (w->unread_us != 0) {
        *since_us = w->unread_us;
        return FL_LOSS_UNREADABLE;
    }
    if (w->failed_us != 0) {
        *since_us = w->failed_us;
        return FL_LOSS_REPORTED;
    }
    if (w->exited_us != 0) {
        *since_us = w->exited_us;
        return may_be_done(w, limits, now_us) ? FL_LOSS_NONE : FL_LOSS_EXITED;
    }
    if (w->linked && now_us - w->heard_us > limits->silence_us) {
        *since_us = w->heard_us;
        return FL_LOSS_SILENT;
    }
    if (w->hung && now_us - w->heard_us <= limits->silence_us / 4) { /* or its link stopped, too */
        *since_us = now_us - w->still_us;
        return FL_LOSS_HUNG;
    }
    if (fl_watch_late_us(w, limits, now_us) > 0) {
        *since_us = now_us - fl_watch_late_us(w, limits, now_us);
        return FL_LOSS_NEVER_READY;
    }
    return FL_LOSS_NONE;
}

static bool is_consequence(const fl_worker *w, fl_loss_kind kind)
{
    return kind == FL_LOSS_REPORTED && fl_status_is_regroup(w->failure);
}

/* A death by a signal, or the loss of a host, explains more than a report of a process, and all of
 * them more than silence or a standstill. */
static int class_of(fl_loss_kind kind)
{
    bool died = kind == FL_LOSS_KILLED || kind == FL_LOSS_HOST;
    return died ? 0 : kind == FL_LOSS_SILENT || kind == FL_LOSS_HUNG ? 2 : 1;
}

/* Whether `a` is the likelier cause of a stall. A standby worker takes part in no step, so it is
 * suspected only when every active worker has reported, and only outside of its wait for a command.
 */
static bool is_later(const fl_worker *a, const fl_worker *b)
{
    return a->place.active != b->place.active ? a->place.active : a->steps < b->steps;
}

/* A worker in standby only waits to be woken: no other worker waits for it. */
static bool is_idle(const fl_worker *w)
{
    return !w->place.active && strcmp(w->operation, FL_LINK_STANDBY) == 0;
}

/* Every worker runs and none failed by itself, but some waited in vain. They waited for the worker
 * that has not reported and is furthest behind. If all have reported, the first that did is named.
 */
static fl_loss_kind waited_for(const fl_worker *workers, int n_workers, int first_reporter,
                               int *who)
{
    int late = -1;
    for (int i = 0; i < n_workers; i++) {
        const fl_worker *w = &workers[i];
        if (w->failed_us == 0 && !w->done && !w->departed && w->exited_us == 0 && !is_idle(w) &&
            (late < 0 || is_later(w, &workers[late]))) {
            late = i;
        }
    }
    *who = late >= 0 ? late : first_reporter;
    return late >= 0 ? FL_LOSS_STUCK : FL_LOSS_REPORTED;
}

/* Every worker that trains waits for another one, or is done: none of the others will ever finish.
 * Once one is done, those in standby have to end, too. */
static bool all_wait(const fl_worker *workers, int n_workers, const fl_watch_limits *limits)
{
    bool ends = fl_worker_any_is_done(workers, n_workers);
    int n_waiting = 0;
    for (int i = 0; i < n_workers; i++) {
        const fl_worker *w = &workers[i];
        if (w->departed || w->done || (!w->place.active && !ends)) {
            continue;
        }
        if (w->waits_us <= limits->circle_us) {
            return false;
        }
        n_waiting++;
    }
    return n_waiting > 0;
}

fl_loss_kind fl_watch_judge(const fl_worker *workers, int n_workers, const fl_watch_limits *limits,
                            int64_t now_us, int *who)
{
    fl_loss_kind cause = FL_LOSS_NONE;
    int64_t cause_us = 0, trouble_us = INT64_MAX, consequence_us = INT64_MAX;
    int first = -1, first_reporter = -1;
    for (int i = 0; i < n_workers; i++) {
        int64_t since_us = 0;
        fl_loss_kind kind = symptom(&workers[i], limits, now_us, &since_us);
        if (kind == FL_LOSS_NONE) {
            continue;
        }
        if (is_consequence(&workers[i], kind)) {
            if (since_us < consequence_us) {
                consequence_us = since_us;
                first_reporter = i;
            }
            continue;
        }
        trouble_us = since_us < trouble_us ? since_us : trouble_us;
        if (cause == FL_LOSS_NONE || class_of(kind) < class_of(cause) ||
            (class_of(kind) == class_of(cause) && since_us < cause_us)) {
            cause = kind;
            cause_us = since_us;
            first = i;
        }
    }
    bool certain = class_of(cause) != 1 || now_us - trouble_us >= limits->settle_us;
    if (cause != FL_LOSS_NONE && certain) {
        *who = first;
        return cause;
    }
    if (cause == FL_LOSS_NONE && first_reporter >= 0 &&
        now_us - consequence_us > limits->silence_us) {
        return waited_for(workers, n_workers, first_reporter, who);
    }
    if (cause == FL_LOSS_NONE && first_reporter < 0 && all_wait(workers, n_workers, limits)) {
        return waited_for(workers, n_workers, first_reporter, who);
    }
    return FL_LOSS_NONE;
}

/* ---- texts ---- */

const char *fl_watch_kind_text(fl_loss_kind kind)
{
    switch (kind) {
    case FL_LOSS_NONE:
        break;
    case FL_LOSS_KILLED:
        return "killed";
    case FL_LOSS_HOST:
        return "host lost";
    case FL_LOSS_EXITED:
        return "exited";
    case FL_LOSS_REPORTED:
        return "reported";
    case FL_LOSS_UNREADABLE:
        return "unreadable";
    case FL_LOSS_SILENT:
        return "silent";
    case FL_LOSS_HUNG:
        return "hung";
    case FL_LOSS_NEVER_READY:
        return "never ready";
    case FL_LOSS_STUCK:
        return "stuck";
    }
    return "none";
}

/* The message of a loss is written again later, when these times have changed. */
static double missed_s(const fl_worker *w, int64_t so_far_us)
{
    return (double)(w->missed_us != 0 ? w->missed_us : so_far_us) * 1e-6;
}

/* One that left its generation because a connection broke has no failure of its own. */
static void describe_report(const fl_worker *w, char *text, size_t size)
{
    if (w->failure == FL_OK && w->failure_text[0] == '\0') {
        snprintf(text, size, "lost its connection to a living worker");
        return;
    }
    snprintf(text, size, "reported: %s", fl_failure_reason(w->failure, w->failure_text));
}

static void describe_loss(const fl_worker *w, fl_loss_kind kind, int64_t now_us, char *text,
                          size_t size)
{
    switch (kind) {
    case FL_LOSS_KILLED:
        snprintf(text, size, "was killed by signal %d (%s)", WTERMSIG(w->wait_status),
                 strsignal(WTERMSIG(w->wait_status)));
        break;
    case FL_LOSS_HOST:
        snprintf(text, size, "was lost");
        break;
    case FL_LOSS_EXITED:
        snprintf(text, size, "ended without finishing (exit code %d)", WEXITSTATUS(w->wait_status));
        break;
    case FL_LOSS_REPORTED:
        describe_report(w, text, size);
        break;
    case FL_LOSS_UNREADABLE:
        snprintf(text, size, "sent a message that the controller cannot read (%s)", w->unread_why);
        break;
    case FL_LOSS_SILENT:
        snprintf(text, size, "did not answer for %.1f s (it was in: %s)",
                 missed_s(w, now_us - w->heard_us), w->operation);
        break;
    case FL_LOSS_HUNG:
        snprintf(text, size, "has stood still for %.1f s, although its link answers (it is in: %s)",
                 missed_s(w, w->still_us), w->operation);
        break;
    case FL_LOSS_NEVER_READY:
        snprintf(text, size, "was not ready %.0f s after its start (%s%s)",
                 (double)(now_us - w->spawned_us) * 1e-6,
                 w->linked ? "it is in: " : "it never opened its link",
                 w->linked ? w->operation : "");
        break;
    case FL_LOSS_STUCK:
        snprintf(text, size, "is alive, but others waited for it in vain (it is in: %s)",
                 w->operation);
        break;
    case FL_LOSS_NONE:
        snprintf(text, size, "is well");
        break;
    }
}

const char *fl_watch_text(const fl_worker *worker, fl_loss_kind kind, int64_t now_us, char *text,
                          size_t size_bytes)
{
    char where[64] = "standby", how[FL_WIRE_TEXT_MAX + 64], when[48] = "";
    if (worker->place.active) {
        snprintf(where, sizeof where, "stage %d of replica %d", worker->place.stage,
                 worker->place.replica);
    }
    if (!worker->ready) {
        snprintf(when, sizeof when, " while it started");
    } else if (worker->place.active) { /* one that stands by counts no steps */
        snprintf(when, sizeof when, " at step %lld", (long long)worker->steps);
    }
    describe_loss(worker, kind, now_us, how, sizeof how);
    const char *with = kind == FL_LOSS_HOST    ? worker->host_why
                       : kind == FL_LOSS_STUCK ? worker->cut_why
                                               : "";
    snprintf(text, size_bytes, "worker %d (%s) %s%s%s%s", worker->rank, where, how, when,
             with[0] == '\0' ? "" : ", ", with);
    return text;
}
