/* What changes how a run goes on without changing its plan.
 *
 *     a handler ──> pending, waits for its turn ──> verdict to the speaker ──> told to everybody at
 *     a control point ──> the speaker reports the step from which it holds ──> the reply
 *
 * One is under way at a time, and none while a transition commits: the speaker may be another when
 * that is over. */
#include "control/ctl.h"

#include "device/clock.h"
#include "device/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- handlers ---- */

static bool is_over(const fl_head *head, fl_ctl_call *call)
{
    bool over = head->state > FL_HEAD_RUNNING || head->n_stops > 0;
    if (over) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run is ending");
    }
    return over;
}

static void steer(fl_head *head, fl_ctl_call *call, fl_steer_kind kind, double value)
{
    call->steer = (fl_steer){.kind = kind, .serial = ++head->ctl->last_serial, .value = value};
    call->wait = FL_CTL_WAIT_TURN;
}

/* A pause that is under way counts as one, so that "pause, resume" leaves the run going. */
void fl_ctl_pause(fl_head *head, fl_ctl_call *call)
{
    if (!is_over(head, call)) {
        steer(head, call, FL_STEER_PAUSE, 0.0);
    }
}

void fl_ctl_resume(fl_head *head, fl_ctl_call *call)
{
    if (!is_over(head, call)) {
        steer(head, call, FL_STEER_RESUME, 0.0);
    }
}

/* The choices of set's first argument, in their order. */
enum { FIELD_LR, FIELD_ALPHA, FIELD_M, FIELD_LOG };

static const double LR_MOST = 100.0; /* as in a job file */

static void set_log_level(fl_head *head, fl_ctl_call *call)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int level = FL_LOG_ERROR; level <= FL_LOG_DEBUG; level++) {
        if (strcmp(call->request.value[1].text, names[level]) == 0) {
            steer(head, call, FL_STEER_LOG, level);
            return;
        }
    }
    fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                  "value: allowed for log.level: error, warn, info, "
                  "debug");
}

static void set_lr(fl_head *head, fl_ctl_call *call)
{
    double lr = call->request.value[1].number;
    if (!(lr > 0.0 && lr <= LR_MOST)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for train.lr: a number above 0 and up to %g", LR_MOST);
    } else {
        steer(head, call, FL_STEER_LR, lr);
    }
}

/* Only the head decides by it, so it holds at once. */
static void set_alpha(fl_head *head, fl_ctl_call *call)
{
    double alpha = call->request.value[1].number;
    fl_freeze_policy policy = head->job.freeze.policy;
    if (policy != FL_FREEZE_GRADNORM && policy != FL_FREEZE_SCHEDULE) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "this run's freeze.policy does not use freeze.alpha");
    } else if (!(alpha > 0.0 && alpha < 1.0)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for freeze.alpha: a number between 0 and 1");
    } else {
        head->job.freeze.alpha = alpha;
        fl_json_integer(call->result, "step", head->tally.steps);
        fl_json_real(call->result, "value", alpha);
    }
}

void fl_ctl_set(fl_head *head, fl_ctl_call *call)
{
    if (is_over(head, call)) {
        return;
    }
    switch (call->request.value[0].integer) {
    case FIELD_LR:
        set_lr(head, call);
        break;
    case FIELD_ALPHA:
        set_alpha(head, call);
        break;
    case FIELD_M:
        fl_ctl_set_m(head, call);
        break;
    default:
        set_log_level(head, call);
    }
}

void fl_ctl_stop(fl_head *head, fl_ctl_call *call)
{
    bool epoch = call->request.value[0].integer == 1;
    if (head->state > FL_HEAD_RUNNING) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run is ending");
    } else if (epoch && !is_over(head, call)) {
        steer(head, call, FL_STEER_END_EPOCH, 0.0);
    } else if (!epoch) {
        call->wait = FL_CTL_WAIT_STOP;
        fl_ending_stop(head, "ctl stop");
    }
}

void fl_ctl_not_yet(fl_head *head, fl_ctl_call *call)
{
    (void)head;
    fl_ctl_refuse(call, FL_CTL_NOT_AVAILABLE, "this version of Frostline has no %s",
                  call->request.command->name);
}

bool fl_ctl_paused(const fl_head *head)
{
    return head->ctl->paused;
}

/* ---- on their way ---- */

/* True when the transition has ended, one way or the other. */
static bool plan_has_ended(fl_head *head, fl_ctl_call *call)
{
    const fl_elastic_outcome *o = &head->elastic.outcome;
    if (call->wait != FL_CTL_WAIT_PLAN || o->generation < call->generation) {
        return false;
    }
    if (o->generation > call->generation || !o->committed) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "%s", o->why);
        fl_ctl_plan_failed(head, call);
    }
    return true;
}

static void send_next(fl_head *head)
{
    fl_ctl *ctl = head->ctl;
    fl_ctl_call *next = NULL;
    for (int i = ctl->n_pending - 1; i >= 0; i--) {
        if (ctl->pending[i].wait == FL_CTL_WAIT_STEER) {
            return;
        }
        next = ctl->pending[i].wait == FL_CTL_WAIT_TURN ? &ctl->pending[i] : next;
    }
    if (next != NULL && head->state == FL_HEAD_RUNNING && head->n_stops == 0 &&
        head->elastic.state != FL_ELASTIC_COMMITTING) {
        next->wait = FL_CTL_WAIT_STEER;
        fl_inbox_verdict(head, &(fl_verdict){.kind = FL_VERDICT_STEER, .steer = next->steer});
    }
}

void fl_ctl_drive(fl_head *head)
{
    fl_ctl *ctl = head->ctl;
    if (ctl->n_pending == 0) {
        return;
    }
    for (int i = ctl->n_pending - 1; i >= 0; i--) {
        fl_ctl_call *call = &ctl->pending[i];
        bool stopped = call->wait == FL_CTL_WAIT_STOP && head->state == FL_HEAD_FINISHING;
        if (stopped || plan_has_ended(head, call)) {
            fl_ctl_settle(head, i, NULL);
        } else if (head->state > FL_HEAD_RUNNING ||
                   (head->n_stops > 0 && call->wait == FL_CTL_WAIT_TURN)) {
            fl_ctl_refuse(call, FL_CTL_OVER, "the run ended before it took effect");
            fl_ctl_settle(head, i, NULL);
        }
    }
    for (int i = 0; i < ctl->n_pending && head->elastic.state == FL_ELASTIC_IDLE; i++) {
        if (ctl->pending[i].wait == FL_CTL_WAIT_IDLE) {
            fl_ctl_retry(head, i);
            break; /* the others have their turn when this one is over */
        }
    }
    send_next(head);
}

/* ---- taken effect ---- */

void fl_ctl_steer_result(const fl_head *head, fl_ctl_call *call, const fl_steered_report *report)
{
    fl_json *j = call->result;
    fl_json_integer(j, "step", report == NULL ? head->tally.steps : report->step);
    switch (call->steer.kind) {
    case FL_STEER_PAUSE:
    case FL_STEER_RESUME:
        fl_json_bool(j, "paused", head->ctl->paused);
        break;
    case FL_STEER_END_EPOCH:
        fl_json_integer(j, "last_step", head->tally.n_steps);
        break;
    case FL_STEER_LR:
        fl_json_real(j, "value", call->steer.value);
        break;
    case FL_STEER_LOG:
        fl_json_text(j, "value", call->request.value[1].text);
        break;
    case FL_STEER_NONE: /* stop */
        fl_json_integer(j, "last_step", head->tally.steps);
        break;
    }
}

static void note_effect(fl_head *head, const fl_steer *steer, const fl_steered_report *report)
{
    fl_ctl *ctl = head->ctl;
    switch (steer->kind) {
    case FL_STEER_PAUSE:
        ctl->paused_us = ctl->paused ? ctl->paused_us : fl_now_us();
        ctl->paused = true;
        break;
    case FL_STEER_RESUME:
        if (ctl->paused) {
            fl_tally_idle(&head->tally, (double)(fl_now_us() - ctl->paused_us) * 1e-3);
        }
        ctl->paused = false;
        break;
    case FL_STEER_END_EPOCH:
        head->tally.n_steps = report->end_step;
        break;
    case FL_STEER_LOG:
        fl_log_level_set((fl_log_level)steer->value);
        break;
    case FL_STEER_LR:
    case FL_STEER_NONE:
        break;
    }
    fl_story_steered(head, steer, report);
}

void fl_ctl_steered(fl_head *head, const fl_steered_report *report)
{
    fl_ctl *ctl = head->ctl;
    for (int i = 0; i < ctl->n_pending; i++) {
        const fl_ctl_call *call = &ctl->pending[i];
        if (call->wait == FL_CTL_WAIT_STEER && call->steer.serial == report->serial) {
            note_effect(head, &call->steer, report);
            fl_ctl_settle(head, i, report);
            return;
        }
    }
    fl_log(FL_LOG_DEBUG, "nobody waits for steer %" PRId64, report->serial);
}
