/* Commands that change how a run continues without changing its plan.
 *
 *     a handler ──> pending, waits for its turn ──> command to the leader ──> broadcast to all
 *     workers at a control point ──> the leader reports the first step that it applies to ──> reply
 *
 * One setting is in progress at a time, and none while a transition commits: the leader may be
 * another worker afterwards. */
#include "control/socket/ctl.h"

#include "device/errors/log.h"
#include "device/system/clock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- handlers ---- */

static bool is_over(const fl_ctl *ctl, fl_ctl_call *call)
{
    bool over = ctl->run->phase->state > FL_CONTROLLER_RUNNING || ctl->run->phase->n_stops > 0;
    if (over) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run is ending");
    }
    return over;
}

/* A run that repeats another computes what that one computed: refuse settings that would change it.
 */
static bool is_repeated(const fl_ctl *ctl, fl_ctl_call *call)
{
    bool repeated = ctl->run->options->recording != NULL;
    if (repeated) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run repeats another one, which decides this");
    }
    return repeated;
}

static void ask_setting(fl_ctl *ctl, fl_ctl_call *call, fl_setting_kind kind, double value)
{
    call->setting = (fl_setting){.kind = kind, .serial = ++ctl->last_serial, .value = value};
    call->wait = FL_CTL_WAIT_TURN;
}

/* A pause in progress counts as a pause, so that "pause, resume" leaves the run training. */
void fl_ctl_pause(fl_ctl *ctl, fl_ctl_call *call)
{
    if (!is_over(ctl, call)) {
        ask_setting(ctl, call, FL_SETTING_PAUSE, 0.0);
    }
}

void fl_ctl_resume(fl_ctl *ctl, fl_ctl_call *call)
{
    if (!is_over(ctl, call)) {
        ask_setting(ctl, call, FL_SETTING_RESUME, 0.0);
    }
}

/* The choices of the first argument of `set`, in their order. */
enum { FIELD_LR, FIELD_ALPHA, FIELD_M, FIELD_LOG };

static const double LR_MOST = 100.0; /* as in a job file */

static void set_log_level(fl_ctl *ctl, fl_ctl_call *call)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};
    for (int level = FL_LOG_ERROR; level <= FL_LOG_DEBUG; level++) {
        if (strcmp(call->request.value[1].text, names[level]) == 0) {
            ask_setting(ctl, call, FL_SETTING_LOG, level);
            return;
        }
    }
    fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                  "value: allowed for log.level: error, warn, info, "
                  "debug");
}

static void set_lr(fl_ctl *ctl, fl_ctl_call *call)
{
    double lr = call->request.value[1].number;
    if (!(lr > 0.0 && lr <= LR_MOST)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for train.lr: a number above 0 and up to %g", LR_MOST);
    } else if (!is_repeated(ctl, call)) {
        ask_setting(ctl, call, FL_SETTING_LR, lr);
    }
}

/* Only the controller reads it, so it applies at once. */
static void set_alpha(fl_ctl *ctl, fl_ctl_call *call)
{
    double alpha = call->request.value[1].number;
    fl_freeze_policy policy = ctl->run->options->job->freeze.policy;
    if (policy != FL_FREEZE_GRADNORM && policy != FL_FREEZE_SCHEDULE) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "this run's freeze.policy does not use freeze.alpha");
    } else if (!(alpha > 0.0 && alpha < 1.0)) {
        fl_ctl_refuse(call, FL_CTL_BAD_ARGUMENT,
                      "value: allowed for freeze.alpha: a number between 0 and 1");
    } else {
        fl_decide_alpha(ctl->elastic, alpha);
        fl_json_integer(call->result, "step", ctl->run->stats->steps);
        fl_json_real(call->result, "value", alpha);
    }
}

void fl_ctl_set(fl_ctl *ctl, fl_ctl_call *call)
{
    if (is_over(ctl, call)) {
        return;
    }
    switch (call->request.value[0].integer) {
    case FIELD_LR:
        set_lr(ctl, call);
        break;
    case FIELD_ALPHA:
        set_alpha(ctl, call);
        break;
    case FIELD_M:
        fl_ctl_set_m(ctl, call);
        break;
    default:
        set_log_level(ctl, call);
    }
}

/* A run that has gone back keeps the wish to stop: it may end for it before the client repeats its
 * request. */
static bool ends_for_stop(const fl_ctl *ctl)
{
    return ctl->run->phase->n_stops > 0 && ctl->run->phase->lost < 0;
}

void fl_ctl_stop(fl_ctl *ctl, fl_ctl_call *call)
{
    bool epoch = call->request.value[0].integer == 1;
    bool is_ending = ctl->run->phase->state > FL_CONTROLLER_RUNNING;
    if (is_ending && !epoch && ends_for_stop(ctl)) {
        call->wait = FL_CTL_WAIT_STOP; /* which is over at once */
    } else if (is_ending) {
        fl_ctl_refuse(call, FL_CTL_REFUSED, "the run is ending");
    } else if (epoch && !is_over(ctl, call) && !is_repeated(ctl, call)) {
        ask_setting(ctl, call, FL_SETTING_END_EPOCH, 0.0);
    } else if (!epoch) {
        call->wait = FL_CTL_WAIT_STOP;
        ctl->stop(ctl->context, "ctl stop");
    }
}

bool fl_ctl_paused(const fl_ctl *ctl)
{
    return ctl->paused;
}

/* ---- in progress ---- */

void fl_ctl_send_setting(fl_ctl *ctl)
{
    fl_ctl_call *next = NULL;
    for (int i = ctl->n_pending - 1; i >= 0; i--) {
        if (ctl->pending[i].wait == FL_CTL_WAIT_SETTING) {
            return;
        }
        next = ctl->pending[i].wait == FL_CTL_WAIT_TURN ? &ctl->pending[i] : next;
    }
    if (next != NULL && ctl->run->phase->state == FL_CONTROLLER_RUNNING &&
        ctl->run->phase->n_stops == 0 && !fl_elastic_is_switching(ctl->elastic)) {
        next->wait = FL_CTL_WAIT_SETTING;
        fl_router_command(ctl->router, ctl->run->plan,
                          &(fl_command){.kind = FL_COMMAND_SETTING, .setting = next->setting});
    }
}

void fl_ctl_regrouped(fl_ctl *ctl, const fl_run_position *position, int64_t step)
{
    for (int i = 0; i < ctl->n_pending; i++) {
        fl_ctl_call *call = &ctl->pending[i];
        if (call->wait != FL_CTL_WAIT_SETTING) {
            continue;
        }
        if (call->setting.serial > position->last_setting) {
            call->wait = FL_CTL_WAIT_TURN;
        } else {
            fl_ctl_setting_done(ctl, &(fl_setting_done_report){.serial = call->setting.serial,
                                                               .step = step,
                                                               .end_step = position->end_step});
            return; /* the list has changed; one setting is in progress at a time */
        }
    }
}

/* ---- taken effect ---- */

void fl_ctl_setting_result(const fl_ctl *ctl, fl_ctl_call *call,
                           const fl_setting_done_report *report)
{
    fl_json *j = call->result;
    fl_json_integer(j, "step", report == NULL ? ctl->run->stats->steps : report->step);
    switch (call->setting.kind) {
    case FL_SETTING_PAUSE:
    case FL_SETTING_RESUME:
        fl_json_bool(j, "paused", ctl->paused);
        break;
    case FL_SETTING_END_EPOCH:
        fl_json_integer(j, "last_step", ctl->run->stats->n_steps);
        break;
    case FL_SETTING_LR:
        fl_json_real(j, "value", call->setting.value);
        break;
    case FL_SETTING_LOG:
        fl_json_text(j, "value", call->request.value[1].text);
        break;
    case FL_SETTING_NONE: /* stop */
        fl_json_integer(j, "last_step", ctl->run->stats->steps);
        break;
    }
}

static void note_effect(fl_ctl *ctl, const fl_setting *setting,
                        const fl_setting_done_report *report)
{
    switch (setting->kind) {
    case FL_SETTING_PAUSE:
        ctl->paused_us = ctl->paused ? ctl->paused_us : fl_now_us();
        ctl->paused = true;
        break;
    case FL_SETTING_RESUME:
        if (ctl->paused) {
            fl_run_stats_idle(ctl->stats, (double)(fl_now_us() - ctl->paused_us) * 1e-3);
        }
        ctl->paused = false;
        break;
    case FL_SETTING_END_EPOCH:
        fl_run_stats_end(ctl->stats, report->end_step);
        break;
    case FL_SETTING_LOG:
        fl_log_level_set((fl_log_level)setting->value);
        break;
    case FL_SETTING_LR:
        fl_elastic_lr(ctl->elastic, setting->value);
        break;
    case FL_SETTING_NONE:
        break;
    }
    fl_event_log_setting_done(ctl->log, setting, report);
}

void fl_ctl_setting_done(fl_ctl *ctl, const fl_setting_done_report *report)
{
    for (int i = 0; i < ctl->n_pending; i++) {
        const fl_ctl_call *call = &ctl->pending[i];
        if (call->wait == FL_CTL_WAIT_SETTING && call->setting.serial == report->serial) {
            note_effect(ctl, &call->setting, report);
            fl_ctl_settle(ctl, i, report);
            return;
        }
    }
    const fl_setting *replayed = fl_replay_setting_done(ctl->elastic, report->serial);
    if (replayed != NULL) {
        note_effect(ctl, replayed, report);
        return;
    }
    fl_log(FL_LOG_DEBUG, "no request waits for setting %" PRId64, report->serial);
}
