/* How a run ends.
 *
 *     all done ──────────────────────────> FINISHING ──(all left)──────────────> OVER
 *     a worker lost ── ABORT to all ─────> ENDING ──(all left, or SIGKILL)─────> OVER, FL_EFAILED
 *                   └─ nobody needs it ──> as before, without it
 *     first Ctrl-C ── verdict to the speaker ──> as "all done" ────────────────> FL_ESTOPPED
 *     second ── SIGKILL to all ────────────────────────────────────────────────> OVER, FL_ESTOPPED
 */
#include "control/controller.h"

#include "device/alloc.h"
#include "device/clock.h"
#include "device/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { TAIL_BYTES = 2048 };

/* ---- a lost worker ---- */

/* Told again when all have left: survivors have then flushed their reports, and as a group goes
 * step by step, what they have finished the lost one had come to. */
void fl_ending_explain(fl_head *head)
{
    fl_worker *lost = &head->workers[head->lost];
    for (int i = 0; i < head->n_workers; i++) {
        lost->steps = head->workers[i].steps > lost->steps ? head->workers[i].steps : lost->steps;
    }
    lost->ready = lost->ready || lost->steps > 0;
    char what[FL_WIRE_TEXT_MAX + 256], tail[TAIL_BYTES], name[24];
    fl_watch_text(lost, head->loss, head->lost_us, what, sizeof what);
    fl_spawn_log_tail(head->options->dir_fd, head->lost, tail, sizeof tail);
    fl_spawn_log_name(head->lost, name);
    const char *waits = head->waits, *then = waits[0] == 0 ? "" : "; ";
    if (tail[0] == 0) {
        snprintf(head->message, sizeof head->message, "%s%s%s; %s/%s is empty", what, then, waits,
                 head->options->run_dir, name);
    } else {
        snprintf(head->message, sizeof head->message, "%s%s%s; last lines of %s/%s:\n%s", what,
                 then, waits, head->options->run_dir, name, tail);
    }
}

/* Survivors are given the time to leave their collectives; whoever cannot is not asked. */
static void end_for(fl_head *head, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *lost = &head->workers[rank];
    head->loss = kind;
    head->lost = rank;
    head->lost_us = now_us;
    head->status = FL_EFAILED;
    fl_survey_explain(head, rank, head->waits, sizeof head->waits); /* before anybody leaves */
    fl_survey_write(head);
    fl_ending_explain(head);
    fl_frame order = fl_inbox_order(head, FL_FRAME_ABORT);
    order.why = FL_EPEER;
    fl_inbox_tell_all(head, &order);
    if (lost->exited_us == 0 && kind != FL_LOSS_REPORTED) {
        fl_spawn_kill(lost, 1);
    }
    head->state = FL_HEAD_ENDING;
    head->deadline_us = now_us + head->limits.grace_us;
    fl_story_lost(head);
}

static bool others_failed(const fl_head *head, int rank)
{
    for (int i = 0; i < head->n_workers; i++) {
        if (i != rank && head->workers[i].failed_us != 0) {
            return true;
        }
    }
    return false;
}

/* Whether the generation that runs needs nothing of it. */
static bool is_spare(const fl_head *head, fl_loss_kind kind, int rank)
{
    const fl_worker *w = &head->workers[rank];
    return head->state == FL_HEAD_RUNNING && kind != FL_LOSS_STUCK && !w->place.active &&
           !fl_decide_keeps(head, rank) && !others_failed(head, rank);
}

static void go_on_without(fl_head *head, fl_loss_kind kind, int rank, int64_t now_us)
{
    fl_worker *w = &head->workers[rank];
    fl_spared *s = &head->spared;
    *s = (fl_spared){.rank = rank, .kind = kind, .lost_us = now_us};
    fl_watch_text(w, kind, now_us, s->text, sizeof s->text);
    if (w->exited_us == 0) {
        fl_spawn_kill(w, 1); /* so that nobody waits for what it might still say */
    }
    w->departed = w->told_exit = true;
    w->departed_us = now_us;
    fl_elastic_without(head, rank, s->text);
}

/* One that was to join may have died before the vote or after it: the others tell by going over,
 * by failing to, or by staying. */
static void watch_spared(fl_head *head, int64_t now_us)
{
    fl_spared *s = &head->spared;
    int64_t memory_us = head->options->job->fault.detect_ms * 1000;
    if (s->rank < 0) {
        return;
    }
    if (head->workers[s->rank].place.active ||
        (now_us - s->lost_us < memory_us && others_failed(head, s->rank))) {
        end_for(head, s->kind, s->rank, now_us);
    } else if (!s->told && !fl_elastic_counts_on(head, s->rank)) {
        s->told = true;
        fl_story_spared(head);
    }
}

/* ---- the user's wish ---- */

static void stop_softly(fl_head *head, const char *signal_name)
{
    fl_frame order = fl_inbox_order(head, FL_FRAME_STOPPING);
    fl_inbox_tell_all(head, &order);
    if (head->elastic.state != FL_ELASTIC_COMMITTING) { /* else once that is over */
        fl_inbox_verdict(head, &(fl_verdict){.kind = FL_VERDICT_STOP});
    }
    head->progress.stopping = true;
    fl_progress_note(&head->progress,
                     "%s: stopping after the step in flight; once more stops at once", signal_name);
    fl_story_stopping(head, signal_name);
}

static void stop_at_once(fl_head *head)
{
    fl_spawn_kill(head->workers, head->n_workers);
    if (head->status == FL_OK) {
        head->status = FL_ESTOPPED;
    }
    head->state = FL_HEAD_OVER;
}

void fl_ending_stop(fl_head *head, const char *who)
{
    bool begun = head->n_stops > 0;
    bool can = head->state == FL_HEAD_STARTING || head->state == FL_HEAD_RUNNING;
    if (!begun && can) {
        head->n_stops = 1;
        stop_softly(head, who);
    }
}

void fl_ending_signals(fl_head *head)
{
    int number;
    while ((number = fl_signals_next(&head->signals)) != 0) {
        if (number == SIGCHLD) {
            continue; /* who it was is asked of every worker, for signals merge */
        }
        head->n_stops++;
        if (head->state == FL_HEAD_STARTING || head->state == FL_HEAD_RUNNING) {
            if (head->n_stops == 1) {
                stop_softly(head, number == SIGINT    ? "interrupted"
                                  : number == SIGTERM ? "terminated"
                                                      : "hung up");
                continue;
            }
        }
        if (head->n_stops > 1 || head->state == FL_HEAD_ENDING) {
            stop_at_once(head);
        }
    }
}

/* ---- what time brings ---- */

static bool all(const fl_head *head, bool (*holds)(const fl_worker *))
{
    for (int i = 0; i < head->n_workers; i++) {
        if (!holds(&head->workers[i])) {
            return false;
        }
    }
    return true;
}

static bool is_ready(const fl_worker *worker)
{
    return worker->ready || worker->done;
}

static bool is_done(const fl_worker *worker)
{
    return worker->done || worker->departed;
}

/* Who departed is gone, or does not go. */
static void watch_departed(fl_head *head, int64_t now_us)
{
    int64_t patience_us = head->options->job->fault.detect_ms * 1000;
    for (int i = 0; i < head->n_workers; i++) {
        fl_worker *w = &head->workers[i];
        if (!w->departed || w->told_exit) {
            continue;
        }
        if (w->exited_us == 0 && now_us - w->departed_us > patience_us) {
            fl_log(FL_LOG_WARN,
                   "worker %d has no part in the run any more, does not leave and is killed", i);
            fl_spawn_kill(w, 1);
        }
        if (w->exited_us != 0) {
            w->told_exit = true;
            fl_story_left(head, w);
        }
    }
}

/* The machine slept, or the head was stopped together with its workers or without them: time in
 * which the head did not listen speaks against nobody. */
static void forgive_gap(fl_head *head, int64_t now_us)
{
    int64_t gap_us = now_us - head->looked_us;
    head->looked_us = now_us;
    if (gap_us < head->limits.silence_us / 4) {
        return;
    }
    fl_log(FL_LOG_DEBUG, "the head did not run for %.1f s", (double)gap_us * 1e-6);
    for (int i = 0; i < head->n_workers; i++) {
        head->workers[i].heard_us += gap_us;
        head->workers[i].spawned_us += gap_us;
    }
    head->deadline_us += gap_us;
}

static void tell_alive(fl_head *head, int64_t now_us)
{
    if (now_us - head->alive_us >= head->limits.silence_us / 4) {
        fl_frame order = fl_inbox_order(head, FL_FRAME_ALIVE);
        fl_inbox_tell_all(head, &order);
        head->alive_us = now_us;
    }
}

/* Nobody is lost, yet nothing moves: said, not ended, for a step may be long. */
static void watch_stall(fl_head *head, int64_t now_us)
{
    int64_t limit_us = head->options->job->fault.deadline_ms * 1000, sum = head->tally.any_eval;
    for (int i = 0; i < head->n_workers; i++) {
        sum += head->workers[i].steps;
    }
    if (sum != head->moved_sum) {
        head->moved_sum = sum;
        head->moved_us = head->told_stall_us = now_us;
    } else if (head->state == FL_HEAD_RUNNING && limit_us > 0 && !fl_ctl_paused(head) &&
               now_us - head->told_stall_us > limit_us) {
        head->told_stall_us = now_us;
        fl_story_stalled(head, now_us);
    }
}

static void watch_losses(fl_head *head, int64_t now_us)
{
    int who = -1;
    fl_loss_kind kind = fl_watch_judge(head->workers, head->n_workers, &head->limits, now_us, &who);
    if (kind != FL_LOSS_NONE && is_spare(head, kind, who)) {
        go_on_without(head, kind, who, now_us);
    } else if (kind != FL_LOSS_NONE) {
        end_for(head, kind, who, now_us);
    } else {
        watch_spared(head, now_us);
    }
}

static void enter_finishing(fl_head *head, int64_t now_us)
{
    head->state = FL_HEAD_FINISHING;
    head->deadline_us = now_us + head->options->job->fault.detect_ms * 1000;
}

static void say_who_stays(const fl_head *head)
{
    for (int i = 0; i < head->n_workers; i++) {
        if (head->workers[i].exited_us == 0) {
            fl_log(FL_LOG_WARN, "worker %d does not leave and is killed", i);
        }
    }
}

void fl_ending_watch(fl_head *head, int64_t now_us)
{
    int n_living = fl_spawn_reap(head->workers, head->n_workers);
    forgive_gap(head, now_us);
    watch_departed(head, now_us);
    switch (head->state) {
    case FL_HEAD_STARTING:
        if (all(head, is_ready)) {
            head->state = FL_HEAD_RUNNING;
            fl_inbox_hide(head);
            fl_story_running(head);
        }
        /* fall through */
    case FL_HEAD_RUNNING:
        watch_losses(head, now_us);
        watch_stall(head, now_us);
        if (head->state == FL_HEAD_RUNNING && all(head, is_done)) {
            enter_finishing(head, now_us);
        }
        break;
    case FL_HEAD_FINISHING:
    case FL_HEAD_ENDING:
        if (n_living > 0 && now_us >= head->deadline_us) {
            say_who_stays(head);
            fl_spawn_kill(head->workers, head->n_workers);
            n_living = 0;
        }
        if (n_living == 0) {
            head->state = FL_HEAD_OVER;
        }
        break;
    case FL_HEAD_OVER:
        break;
    }
    tell_alive(head, now_us);
}

/* ---- the proof ---- */

static fl_status count_epochs(fl_head *head, const fl_ledger_epoch *epochs, int64_t n)
{
    int64_t full = 0, used = 0;
    for (int64_t i = 0; i < n; i++) {
        const fl_ledger_epoch *e = &epochs[i];
        if (e->more > 0 || (e->never > 0 && i + 1 < n)) {
            return fl_fail(FL_EINTERNAL,
                           "the ledger shows that in epoch %" PRId64 " %" PRId64
                           " samples were used more than once and %" PRId64 " not at all",
                           e->epoch + 1, e->more, e->never);
        }
        full += e->never == 0;
        used += e->once;
    }
    if (used != head->tally.samples) {
        return fl_fail(FL_EINTERNAL,
                       "the ledger shows %" PRId64 " samples, the steps used %" PRId64, used,
                       head->tally.samples);
    }
    char part[96] = "";
    if (n > full) {
        snprintf(part, sizeof part,
                 "%s%" PRId64 " of %" PRId64 " samples of epoch %" PRId64 " once",
                 full > 0 ? ", " : "", epochs[n - 1].once, epochs[n - 1].n_samples,
                 epochs[n - 1].epoch + 1);
    }
    if (full > 0) {
        snprintf(head->ledger_text, sizeof head->ledger_text,
                 "every sample of %" PRId64 " epoch%s used once%s", full, full == 1 ? "" : "s",
                 part);
    } else {
        snprintf(head->ledger_text, sizeof head->ledger_text, "%s", part);
    }
    return FL_OK;
}

fl_status fl_ending_prove(fl_head *head)
{
    char path[4096 + 16];
    fl_ledger_epoch *epochs = NULL;
    int64_t n = 0;
    if (fl_ledger_close(&head->ledger) != FL_OK || head->ledger_broken) {
        fl_log(FL_LOG_WARN, "the ledger is incomplete: it could not be written");
        snprintf(head->ledger_text, sizeof head->ledger_text,
                 "incomplete: it could not be written");
        return FL_OK;
    }
    snprintf(path, sizeof path, "%s/ledger.bin", head->options->run_dir);
    fl_status status = fl_ledger_read(path, &epochs, &n);
    if (status == FL_OK) {
        status = count_epochs(head, epochs, n);
    }
    fl_free(epochs);
    return status;
}
