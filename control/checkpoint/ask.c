/* When the workers are asked for a checkpoint: ①, by the schedule, a request or an evaluation. */
#include "control/checkpoint/parts.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool fl__checkpoints_has(const fl_checkpoints *c, int64_t step)
{
    return c->newest != NULL && c->newest->step == step;
}

bool fl__run_is_ending(const fl_run_facts *run)
{
    return run->phase->n_stops > 0 || run->phase->state > FL_CONTROLLER_RUNNING ||
           run->stats->steps >= run->stats->n_steps;
}

/* step: 0 for the present one, of a run that is paused. */
static void ask_workers(fl_checkpoints *c, int64_t step, int64_t now_us)
{
    c->begun_us = c->again ? c->begun_us : now_us;
    c->asked = true;
    c->again = false;
    c->target = step;
    c->moved_us = now_us;
    c->dropped_serial = c->serial++;
    fl__checkpoints_free_one(&c->captured);
    fl_router_command(
        c->router, c->run->plan,
        &(fl_command){.kind = FL_COMMAND_CHECKPOINT, .due_step = step, .serial = c->serial});
}

/* Where evaluations are judged, no step beyond the next one is asked for: the workers wait there,
 * and may be asked for that very step. */
static int64_t limit_to_judged(const fl_checkpoints *c, int64_t step)
{
    const fl_run_stats *stats = c->run->stats;
    int64_t period = stats->evaluation_period;
    if (!stats->stop_rule.keeps_best || period <= 0) {
        return step;
    }
    bool is_due = stats->steps > 0 && stats->steps % period == 0;
    if (is_due && stats->stop.judged < stats->steps) {
        return 0; /* they wait there now: fl_checkpoints_keep */
    }
    int64_t judged = (stats->steps / period + 1) * period;
    return step < judged ? step : judged;
}

/* The step to ask for; 0: none now. */
static int64_t step_to_ask(fl_checkpoints *c, int64_t now_us)
{
    const fl_run_stats *stats = c->run->stats;
    fl_checkpoint_moment moment = {.steps = stats->steps,
                                   .end_step = stats->n_steps,
                                   .now_us = now_us,
                                   .last_step = c->last_step,
                                   .last_us = c->last_us,
                                   .lead = fl_checkpoint_lead(fl_measure_step_ms(c->elastic),
                                                              c->run->options->lead, c->n_late,
                                                              c->n_switched)};
    int64_t due = limit_to_judged(c, fl_checkpoint_due(&c->schedule, &moment));
    if (due > 0 && !c->again) {
        c->last_step = due;
        c->last_us = now_us;
        return due;
    }
    if (c->again || c->ticket_wanted >= c->ticket) {
        int64_t step = limit_to_judged(c, stats->steps + moment.lead);
        return step < stats->n_steps ? step : 0;
    }
    return 0;
}

/* A step has one checkpoint. It is the answer to a request if it has the present state, too. */
static void repeat_outcome(fl_checkpoints *c)
{
    bool same = false;
    fl_checkpoint *now = NULL;
    fl_status status = fl_alloc(sizeof *now, (void **)&now);
    if (status == FL_OK) {
        status = fl_checkpoints_capture(c, now);
    }
    same = status == FL_OK && fl_checkpoint_has_state(c->newest, now) &&
           fl_checkpoint_newest(c->store->dir_fd) == now->step;
    fl__checkpoints_free_one(&now);
    fl_checkpoint_outcome last = c->last_good;
    fl_checkpoint_outcome *o = fl__checkpoints_end_ticket(c, same, c->newest->step);
    if (same && last.step == o->step) {
        last.ticket = o->ticket;
        *o = last;
    }
    snprintf(o->why, sizeof o->why, "%s",
             same
                 ? ""
                 : "the checkpoint after this step is there, and settings or the plan have changed "
                   "since: resume the run, and ask after the next step");
}

void fl__checkpoints_look_at_schedule(fl_checkpoints *c, bool paused, int64_t now_us)
{
    bool wanted = c->again || c->ticket_wanted >= c->ticket;
    c->last_us = c->last_us == 0 ? now_us : c->last_us; /* the run has just begun to train */
    if (fl__run_is_ending(c->run) || c->keep_step > 0 || fl_elastic_is_switching(c->elastic) ||
        (c->n_switched > 0 && c->elastic->transition.state != FL_ELASTIC_IDLE)) {
        return;
    }
    if (paused) {
        if (wanted && fl__checkpoints_has(c, c->run->stats->steps)) { /* paused since */
            repeat_outcome(c);
        } else if (wanted) {
            ask_workers(c, 0, now_us);
        }
        return;
    }
    int64_t step = step_to_ask(c, now_us);
    if (step > 0) {
        ask_workers(c, step, now_us);
    }
}

bool fl_checkpoints_keep(fl_checkpoints *c, int64_t step, int64_t now_us)
{
    bool is_written = fl__checkpoints_has(c, step);
    bool is_under_way = (c->n_open > 0 && c->open[0]->step == step) ||
                        (c->settled != NULL && c->settled->step == step);
    bool is_asked = c->asked && c->target == step;
    c->keep_step = 0;
    c->best_asked = step;
    if (c->store == NULL || fl__run_is_ending(c->run) || is_written || is_under_way || is_asked) {
        return true;
    }
    if (c->committing || c->n_open > 0 || c->asked) {
        c->keep_step = step;
        return false;
    }
    ask_workers(c, step, now_us);
    if (c->run->stats->steps == step) { /* before a change of the plan at this very step */
        fl__checkpoints_capture_now(c);
    }
    return true;
}

/* ---- requests ---- */

/* Without its files, a run is not resumed. Checkpoints by the schedule are still written: their
 * weights are a model. */
static fl_status check_records(const fl_checkpoints *c)
{
    static const char *const names[] = {"steps.jsonl", "events.jsonl", "ledger.bin"};
    for (int i = 0; i < 3 - (c->ledger == NULL); i++) {
        if (faccessat(c->run->options->dir_fd, names[i], F_OK, 0) != 0) {
            return fl_fail(FL_EFAILED, "%s: %s; without it the run cannot be resumed", names[i],
                           strerror(errno));
        }
    }
    return FL_OK;
}

fl_status fl_checkpoints_request(fl_checkpoints *c, int64_t *ticket)
{
    if (c->store == NULL) {
        return fl_fail(FL_ENOTSUP, "this run has no folder for checkpoints");
    }
    if (fl__run_is_ending(c->run)) {
        return fl_fail(FL_EBUSY, "the run is ending");
    }
    FL_TRY(check_records(c));
    bool begun = c->captured != NULL || c->n_open > 0 || c->settled != NULL;
    c->ticket_wanted = c->ticket + begun;
    *ticket = c->ticket_wanted;
    return FL_OK;
}
