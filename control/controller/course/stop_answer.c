#include "control/controller/course/stop_answer.h"

#include "control/controller/course/inbox.h"
#include "control/controller/parts/parts.h"
#include "device/system/clock.h"

void fl_stop_answer_end(fl_controller *controller, int64_t step)
{
    fl_run_stats_end_early(&controller->stats, step);
    controller->stats.stop.end_step = step;
    fl_event_log_ending(&controller->log, controller->options->job, &controller->stats);
    if (fl_run_stats_epoch_over(&controller->stats, false)) { /* this was its last step */
        fl_inbox_end_epoch(controller);
    }
}

void fl_stop_answer_judged(fl_controller *controller, const fl_eval_report *eval)
{
    int64_t done = eval->step + 1;
    if (!fl_due_at(&controller->elastic.due, FL_DUE_STOP, done) ||
        controller->stats.stop.judged != done || controller->stats.n_steps <= done ||
        controller->shutdown.phase.n_stops > 0) {
        if (!controller->stats.ended_early) {
            controller->stats.stop.end_step = 0; /* nor is it told */
        }
        return; /* the workers do not wait for it, or the run is ending anyway */
    }
    controller->stop_answer = (fl_stop_answer){
        .step = done,
        .keeps = fl_stop_rule_best(&controller->stats.stop_rule, &controller->stats.stop) == done,
        .since_us = fl_now_us()};
    if (controller->stats.stop.end_step == done) {
        fl_stop_answer_end(controller, done);
    }
    fl_stop_answer_watch(controller);
}

/* Whether the checkpoint of the best evaluation is asked for, or is given up. */
static bool is_kept(fl_controller *controller, const fl_stop_answer *answer)
{
    fl_checkpoints *c = &controller->checkpoints;
    int64_t now_us = fl_now_us();
    if (fl_checkpoints_keep(c, answer->step, now_us)) {
        return true;
    }
    if (now_us - answer->since_us < controller->options->job->fault.deadline_ms * 500) {
        return false;
    }
    c->keep_step = 0;
    fl_event_log_no_checkpoint(&controller->log, answer->step,
                               "the one before it was still being written");
    return true;
}

void fl_stop_answer_watch(fl_controller *controller)
{
    fl_stop_answer *answer = &controller->stop_answer;
    if (answer->step > 0 && answer->keeps && !fl_elastic_is_switching(&controller->elastic)) {
        answer->keeps = !is_kept(controller, answer);
    }
    if (answer->step > 0 && !answer->keeps && !fl_elastic_is_switching(&controller->elastic)) {
        fl_command_kind kind = controller->stats.ended_early ? FL_COMMAND_END : FL_COMMAND_PASS;
        fl_router_command(
            &controller->router, &controller->elastic.plan,
            &(fl_command){.kind = kind, .due_step = answer->step, .due = FL_DUE_STOP});
        answer->step = 0;
    }
}
