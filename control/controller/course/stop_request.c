/* Requests to end the run.
 *
 *     first Ctrl-C ── command to the leader ──> as after the last step (shutdown.c), FL_ESTOPPED
 *     SIGTERM ── the same, but SIGKILL after fault.deadline
 *     while workers open connections ── ABORT to all, after OPENING_US ──> ENDING, FL_ESTOPPED
 *     second ── SIGKILL to all ───────────────> OVER, FL_ESTOPPED
 */
#include "control/controller/course/stop_request.h"

#include "control/controller/parts/parts.h"
#include "control/controller/parts/pass.h"
#include "device/errors/log.h"
#include "device/system/clock.h"

#include <string.h>

enum { SAME_REQUEST_US = 1000000, OPENING_US = 500000 };

/* who: a signal, a callback or a client. at_once: the signal that would end the run at once. */
static void stop_softly(fl_controller *controller, const char *who, const char *at_once)
{
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_STOPPING);
    fl_router_send_to_all(&controller->router, &frame);
    if (!fl_elastic_is_switching(
            &controller->elastic)) { /* otherwise when the transition is over */
        fl_router_command(&controller->router, &controller->elastic.plan,
                          &(fl_command){.kind = FL_COMMAND_STOP});
    }
    fl_pass_stop(&controller->pass);
    fl_progress_stopping(&controller->log.progress);
    fl_progress_note(&controller->log.progress,
                     "%s: stopping after the %s in flight; %s stops at once", who,
                     controller->pass.o == NULL ? "step" : "batches", at_once);
    fl_event_log_stopping(&controller->log, who, controller->stats.steps);
    controller->shutdown.asked_us = fl_now_us();
}

static void stop_at_once(fl_controller *controller)
{
    fl_agent_kill(controller->agent, controller->workers, controller->n_workers);
    controller->shutdown.cut_off = controller->shutdown.phase.state != FL_CONTROLLER_FINISHING;
    if (controller->shutdown.status == FL_OK) {
        controller->shutdown.status = FL_ESTOPPED;
    }
    controller->shutdown.phase.state = FL_CONTROLLER_OVER;
}

void fl_stop_request(fl_controller *controller, const char *who)
{
    bool stopping = controller->shutdown.phase.n_stops > 0;
    bool can = controller->shutdown.phase.state == FL_CONTROLLER_STARTING ||
               controller->shutdown.phase.state == FL_CONTROLLER_RUNNING;
    if (!stopping && can) {
        controller->shutdown.phase.n_stops = 1;
        controller->shutdown.wish.who = controller->shutdown.status == FL_OK ? who : NULL;
        stop_softly(controller, who, "a signal");
    }
}

void fl_stop_request_again(fl_controller *controller, const fl_stop_wish *wish)
{
    if (wish->who != NULL) {
        controller->shutdown.phase.n_stops = 1;
        controller->shutdown.wish = *wish;
        stop_softly(controller, wish->who, wish->signal == 0 ? "a signal" : "a second signal");
    }
}

/* ---- while workers open connections ---- */

/* No order reaches a worker then: those that it connects to may never answer. */
static bool is_opening(const fl_controller *controller)
{
    fl_phase_state state = controller->shutdown.phase.state;
    return state == FL_CONTROLLER_STARTING ||
           (state == FL_CONTROLLER_RUNNING && fl_elastic_is_switching(&controller->elastic));
}

/* Since when they do, if they have a state that no checkpoint has: once connected, they write it.
 * 0: nothing is lost without them. */
static int64_t worth_waiting_since_us(const fl_controller *controller)
{
    const fl_recovery *r = &controller->recovery;
    int64_t since_us = 0;
    if (controller->shutdown.phase.state == FL_CONTROLLER_RUNNING) {
        const fl_job *job = controller->options->job;
        return r->state != FL_RECOVERY_NONE
                   ? r->begun_us
                   : controller->elastic.transition.deadline_us - job->fault.deadline_ms * 1000;
    }
    for (int i = 0; i < controller->n_workers && controller->options->returns; i++) {
        int64_t spawned_us = controller->workers[i].spawned_us;
        since_us = spawned_us > since_us ? spawned_us : since_us;
    }
    return since_us;
}

/* What has been recorded stays; the state since the newest checkpoint is lost. */
static void end_opening(fl_controller *controller, int64_t now_us)
{
    fl_shutdown *shutdown = &controller->shutdown;
    fl_wire_message frame = fl_router_frame(&controller->elastic.plan, FL_WIRE_ABORT);
    frame.why = FL_ESTOPPED;
    fl_flight_dump_openings(&controller->flight_dump, shutdown->waits, sizeof shutdown->waits);
    fl_event_log_opening_ended(&controller->log, (double)(now_us - shutdown->asked_us) * 1e-6,
                               shutdown->waits);
    fl_router_send_to_all(&controller->router, &frame);
    shutdown->cut_off = shutdown->phase.state != FL_CONTROLLER_STARTING;
    shutdown->phase.state = FL_CONTROLLER_ENDING;
    shutdown->deadline_us = now_us + OPENING_US;
}

static void watch_opening(fl_controller *controller, int64_t now_us)
{
    const fl_shutdown *shutdown = &controller->shutdown;
    if (shutdown->asked_us == 0 || !is_opening(controller)) {
        return;
    }
    int64_t since_us = worth_waiting_since_us(controller);
    bool patient =
        since_us > 0 && now_us < since_us + controller->options->job->fault.detect_ms * 1000;
    if (!patient && now_us >= shutdown->asked_us + OPENING_US) {
        end_opening(controller, now_us);
    }
}

/* ---- signals ---- */

static const char *stop_name(int number)
{
    return number == SIGINT    ? "interrupted"
           : number == SIGTERM ? "terminated"
           : number == SIGHUP  ? "hung up"
           : number == SIGQUIT ? "quit"
           : number == SIGXCPU ? "out of processor time"
                               : "the power fails";
}

/* Batch systems kill a while after SIGTERM: by then the last checkpoint must be durable, or given
 * up. */
static void note_signal(fl_controller *controller, int number)
{
    fl_shutdown *shutdown = &controller->shutdown;
    shutdown->wish.who = stop_name(number);
    shutdown->wish.signal = number;
    if (number == SIGTERM) {
        shutdown->wish.by = "SIGTERM";
        shutdown->wish.terminated_us = fl_now_us();
        shutdown->wish.patience_us =
            shutdown->wish.terminated_us + controller->options->job->fault.deadline_ms * 1000;
    }
}

/* timeout(1) sends SIGTERM to its child, and at once to the whole process group: that is one. */
static bool is_same_request(const fl_shutdown *shutdown, int number)
{
    return number == SIGTERM && shutdown->wish.terminated_us > 0 &&
           fl_now_us() - shutdown->wish.terminated_us < SAME_REQUEST_US;
}

void fl_stop_request_watch(fl_controller *controller, int64_t now_us)
{
    const fl_shutdown *shutdown = &controller->shutdown;
    bool trains = shutdown->phase.state == FL_CONTROLLER_STARTING ||
                  shutdown->phase.state == FL_CONTROLLER_RUNNING;
    if (trains && shutdown->wish.patience_us > 0 && now_us >= shutdown->wish.patience_us) {
        fl_log(FL_LOG_WARN, "killed the workers: they did not stop within fault.deadline of "
                            "SIGTERM");
        stop_at_once(controller);
        return;
    }
    watch_opening(controller, now_us);
}

void fl_stop_request_signals(fl_controller *controller)
{
    int number;
    while ((number = fl_signals_next(&controller->signals)) != 0) {
        if (number == SIGCHLD) {
            continue; /* the agent has ended, which its socket shows as well */
        }
        if (!fl_signals_is_stop(number)) {
            fl_log(FL_LOG_WARN, "ignored signal %d (%s); SIGTERM stops the run", number,
                   strsignal(number));
            continue;
        }
        if (is_same_request(&controller->shutdown, number)) {
            continue;
        }
        controller->shutdown.phase.n_stops++;
        if (controller->shutdown.phase.n_stops == 1) {
            note_signal(controller, number);
            if (controller->shutdown.phase.state == FL_CONTROLLER_STARTING ||
                controller->shutdown.phase.state == FL_CONTROLLER_RUNNING) {
                stop_softly(controller, stop_name(number), "a second signal");
                continue;
            }
        }
        if (controller->shutdown.phase.n_stops > 1 ||
            controller->shutdown.phase.state == FL_CONTROLLER_ENDING) {
            stop_at_once(controller);
        }
    }
}
