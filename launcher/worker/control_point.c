/* Control points (⑦ of worker.c): the moments between two steps at which all workers carry out what
 * the controller has decided. The leader alone receives its commands, and broadcasts them over the
 * message group. */
#include "launcher/worker/worker_state.h"

#include "device/flight/flight.h"
#include "device/system/clock.h"

#include <string.h>

enum { SLICE_MS = 50 }; /* how often a wait looks up */

typedef fl_worker_state worker;

static fl_status receive_command(worker *w, fl_control_message *what)
{
    _Static_assert(sizeof(fl_control_message) <= FL_MESSAGE_MAX_BYTES, "a command is one message");
    unsigned char message[FL_MESSAGE_MAX_BYTES];
    size_t size_bytes = sizeof *what;
    memcpy(message, what, sizeof *what);
    FL_TRY(fl_message_broadcast(w->messages, fl_plan_leader(&w->now->plan), w->now->plan.generation,
                                message, &size_bytes,
                                fl_deadline_us(w->c->job->fault.deadline_ms)));
    if (size_bytes != sizeof *what) {
        return fl_fail(FL_EINTERNAL, "a command of %zu bytes, %zu expected", size_bytes,
                       sizeof *what);
    }
    memcpy(what, message, sizeof *what);
    return FL_OK;
}

static void note_answer(worker *w, const fl_command *command)
{
    int64_t *answered = &w->answered[command->due];
    *answered = command->due_step > *answered ? command->due_step : *answered;
}

/* A commit that was voted down answers nothing: the controller tries again, or sends CANCEL. */
static fl_status commit_plan(worker *w, const fl_control_message *what, bool *switched)
{
    bool done = false;
    FL_TRY(fl_transition_commit(w, what->step, &done));
    w->plan_due = 0;
    w->step = what->step;
    w->cursor = what->cursor;
    if (done) {
        *switched = true;
        note_answer(w, &what->command);
    }
    return fl_worker_share_state(w);
}

/* *switched becomes true if another generation trains from here on. */
static fl_status apply_command(worker *w, const fl_control_message *what, bool *switched)
{
    w->n_commands += what->command.kind != FL_COMMAND_NONE;
    switch (what->command.kind) {
    case FL_COMMAND_NONE:
        break;
    case FL_COMMAND_STOP:
        w->stop = true;
        w->step = what->step; /* a standby worker has not counted the steps */
        break;
    case FL_COMMAND_PREPARE:
        w->plan_due = what->command.due_step;
        fl_transition_prepare(w, &what->command.plan);
        break;
    case FL_COMMAND_CANCEL:
        w->plan_due = 0;
        fl_transition_cancel(w);
        note_answer(w, &what->command);
        break;
    case FL_COMMAND_PASS:
        note_answer(w, &what->command);
        break;
    case FL_COMMAND_END: /* a standby worker has not counted the steps */
        w->step = w->end_step = what->step;
        note_answer(w, &what->command);
        break;
    case FL_COMMAND_SETTING:
        fl_setting_apply(w, &what->command.setting, what->step);
        break;
    case FL_COMMAND_CHECKPOINT:
        FL_TRY(fl_worker_checkpoint(w, what->step, what->command.serial));
        break;
    case FL_COMMAND_SNAPSHOT:
        FL_TRY(fl_worker_snapshot(w, what->step, what->command.serial));
        break;
    case FL_COMMAND_COMMIT:
        FL_TRY(commit_plan(w, what, switched));
        break;
    }
    return FL_OK;
}

/* All workers, standby ones too, hold and carry out commands until the run is resumed. */
static fl_status hold_while_paused(worker *w, fl_control_message *what, bool *switched)
{
    while (w->paused && !w->stop && !fl_worker_departs(w)) {
        bool standby = !w->now->place.active;
        fl_link_doing(w->link, "paused");
        if (w->leads) {
            FL_TRY(fl_setting_wait(w, &what->command));
        }
        FL_TRY(receive_command(w, what));
        if (standby && what->command.kind != FL_COMMAND_NONE) {
            FL_TRY(fl_setting_take_wake(w));
        }
        FL_TRY(apply_command(w, what, switched));
    }
    return FL_OK;
}

static bool has_standby(const worker *w)
{
    const fl_plan *plan = &w->now->plan;
    return fl_plan_members(plan) > plan->K * plan->R;
}

/* A decision takes effect at a step that was fixed before: all workers wait at that step for the
 * controller's answer. The answer may have arrived already. */
static bool is_due(const worker *w)
{
    bool due = w->plan_due > 0 && w->plan_due <= w->step;
    for (int kind = FL_DUE_NONE + 1; kind < FL_DUE_KINDS; kind++) {
        due = due ||
              (w->answered[kind] < w->step && fl_due_at(w->c->due, (fl_due_kind)kind, w->step));
    }
    return due;
}

static fl_status wait_command(worker *w, fl_command *command)
{
    fl_link_patience patience = {0};
    fl_flight_enter(FL_FLIGHT_COMMAND, -1, -1, 0);
    while (!fl_link_wait_command(w->link, w->step, SLICE_MS, command)) {
        FL_TRY(fl_worker_check_abort(w));
        fl_flight_beat();
        if (fl_link_is_late(w->link, &patience, w->c->job->fault.deadline_ms)) {
            return fl_fail(FL_EDEADLINE, "the controller did not answer for step %lld in time",
                           (long long)w->step);
        }
    }
    fl_flight_leave();
    return FL_OK;
}

/* The end of every control point, for a worker that trained before it and for one that has just
 * joined: wait while the run is paused; at a step for which an answer is due, wait for it. After
 * the last step there is no answer to wait for: a controller that knows of the end decides nothing.
 * The leader waits for the controller, the others wait for the leader. A worker without a stage
 * does not wait here: it is woken for each command. */
static fl_status hold_until_decided(worker *w, fl_control_message *what, bool *switched)
{
    FL_TRY(hold_while_paused(w, what, switched));
    w->held_us = fl_now_us();
    while (w->step < w->end_step && !w->stop && !fl_worker_departs(w) && w->now->place.active &&
           is_due(w)) {
        fl_link_doing(w->link, "waiting for a decision");
        if (w->leads) {
            FL_TRY(wait_command(w, &what->command));
        }
        FL_TRY(receive_command(w, what));
        FL_TRY(apply_command(w, what, switched));
        FL_TRY(hold_while_paused(w, what, switched));
    }
    w->held_us = 0;
    return FL_OK;
}

fl_status fl_control_point(worker *w, bool any, fl_control_message *what, bool *switched)
{
    if (w->step == w->end_step && has_standby(w)) {
        /* Standby workers wait to hear that this is the end; no other command matters now. It is
         * no request to stop: the last evaluation follows, also after a loss during it. */
        what->command = (fl_command){.kind = FL_COMMAND_END};
        return receive_command(w, what);
    }
    if (any) {
        FL_TRY(receive_command(w, what));
        FL_TRY(apply_command(w, what, switched));
    }
    return hold_until_decided(w, what, switched);
}

fl_status fl_control_begin(worker *w, fl_control_message *what, bool *switched)
{
    return hold_until_decided(w, what, switched);
}

fl_status fl_control_stand_by(worker *w, fl_control_message *what)
{
    bool woken = false, switched = false;
    fl_link_doing(w->link, FL_LINK_STANDBY);
    fl_flight_enter(FL_FLIGHT_STANDBY, -1, -1, 0);
    while (!woken) {
        FL_TRY(fl_worker_check_abort(w));
        fl_flight_beat();
        woken = fl_link_wait_wake(w->link, SLICE_MS);
    }
    fl_flight_leave();
    fl_link_doing(w->link, "receiving a command");
    FL_TRY(receive_command(w, what));
    FL_TRY(apply_command(w, what, &switched));
    return hold_until_decided(w, what, &switched);
}
