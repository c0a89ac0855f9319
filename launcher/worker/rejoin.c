/* After a loss, on each worker that is left:
 *   ① leave every wait, and let the device come to rest             leave_waits
 *   ② report: finished steps, a step that is summed but not         report_broken
 *     applied, a transition whose state is complete here
 *   ③ wait for the controller, which has heard all of them          wait_for_order
 *   ④ what another worker has done already is done here, too:       catch_up
 *     the transition, the step. What nobody has done never happened
 *   ⑤ go over to the plan of those that are left                    fl_transition_force
 * A loss on the way begins again at ①: until ⑤ is over, a worker has the state that it had. */
#include "launcher/worker/worker_state.h"

#include "device/errors/log.h"
#include "device/flight/flight.h"

#include <stdio.h>
#include <string.h>

enum { SLICE_MS = 50 }; /* how often it shows that it waits, and does not hang */

typedef fl_worker_state worker;

/* ---- ① ---- */

static fl_status leave_waits(worker *w, fl_status why)
{
    fl_flight_unwind();
    fl_abort_set_abort(&w->abort_set, w->now->plan.generation, why);
    fl_message_abort(w->messages, why);
    if (w->next != NULL && !w->exchanged) {
        fl_transition_cancel(w);
    }
    return w->now->pipeline == NULL ? FL_OK : fl_pipeline_wait(w->now->pipeline);
}

/* ---- ② ---- */

fl_run_position fl_worker_position(const worker *w)
{
    fl_run_position p = {.n_commands = w->n_commands,
                         .lr_factor = w->lr_factor,
                         .end_step = w->end_step,
                         .n_skipped = w->n_skipped,
                         .paused = w->paused,
                         .stop = w->stop,
                         .last_setting = w->last_setting,
                         .log_level = (int32_t)fl_log_level_get()};
    memcpy(p.answered, w->answered, sizeof p.answered);
    return p;
}

/* Reports of steps that the controller may lack go first. */
static void report_broken(worker *w, fl_status why, const char *text, uint32_t serial)
{
    fl_broken_report report = {.serial = serial == w->regrouped ? 0 : serial,
                               .generation = w->now->plan.generation,
                               .exchanged = w->exchanged ? w->next->plan.generation : 0,
                               .step = w->step,
                               .summed_step = -1,
                               .position = fl_worker_position(w),
                               .status = why};
    if (w->now->pipeline != NULL) {
        (void)fl_pipeline_is_summed(w->now->pipeline, &report.summed_step);
    }
    snprintf(report.text, sizeof report.text, "%s", text);
    fl_worker_report_graphs(w, w->step - 1, true); /* its stage ends with the generation */
    fl_kept_reports_drop(&w->kept, fl_link_counted(w->link));
    fl_kept_reports_send(&w->kept, w->link);
    fl_link_broken(w->link, &report);
}

/* ---- ③ ---- */

/* *came: false when there is another order to break, which asks for another report. The wait has no
 * limit: the controller waits for workers that are slow, and this process dies with its agent. */
static fl_status wait_for_answer(worker *w, uint32_t serial, bool *came, fl_regroup_order *order)
{
    *came = false;
    while (!*came && fl_link_break_serial(w->link) == serial) {
        if (fl_abort_set_check(&w->abort_set, UINT32_MAX) != FL_OK) {
            return fl_fail(FL_EPEER, "the run ends");
        }
        fl_flight_beat();
        *came = fl_link_wait_regroup(w->link, serial, w->regrouped, SLICE_MS, order);
    }
    return FL_OK;
}

static fl_status wait_for_order(worker *w, fl_status why, fl_regroup_order *order)
{
    char text[512];
    bool came = false;
    snprintf(text, sizeof text, "%s", fl_errmsg());
    fl_log(FL_LOG_WARN, "generation %u is broken after %lld steps: %s", w->now->plan.generation,
           (long long)w->step, text);
    fl_link_doing(w->link, "recovery: waiting");
    fl_flight_enter(FL_FLIGHT_COMMAND, -1, -1, 0);
    while (!came) {
        uint32_t serial = fl_link_break_serial(w->link);
        report_broken(w, why, text, serial);
        FL_TRY(wait_for_answer(w, serial, &came, order));
    }
    fl_flight_leave();
    w->regrouped = order->serial;
    return FL_OK;
}

/* ---- ④ ---- */

void fl_worker_adopt(worker *w, const fl_run_position *p)
{
    w->n_commands = p->n_commands;
    w->lr_factor = p->lr_factor;
    w->end_step = p->end_step;
    w->n_skipped = p->n_skipped;
    w->paused = p->paused;
    w->stop = p->stop;
    w->last_setting = p->last_setting;
    w->plan_due = 0;
    fl_log_level_set((fl_log_level)p->log_level);
    memcpy(w->answered, p->answered, sizeof w->answered);
}

static fl_status apply_summed(worker *w, const fl_regroup_order *order)
{
    int64_t summed = -1;
    if (!w->now->place.active || w->step == order->step) {
        return FL_OK;
    }
    if (w->step + 1 != order->step || !fl_pipeline_is_summed(w->now->pipeline, &summed) ||
        summed != w->step) {
        return fl_fail(FL_EINTERNAL,
                       "this worker has finished %lld steps and summed step %lld, the run %lld",
                       (long long)w->step, (long long)summed, (long long)order->step);
    }
    return fl_pipeline_apply(w->now->pipeline, order->grad_norm, order->finite);
}

static fl_status catch_up(worker *w, const fl_regroup_order *order)
{
    bool behind = w->step < order->step;
    fl_transition_parts done = {0};
    if (w->exchanged && w->next->plan.generation == order->generation) {
        FL_TRY(fl_transition_finish(w, order->step, &done));
    }
    fl_transition_cancel(w);
    if (w->now->plan.generation != order->generation) {
        return fl_fail(FL_EINTERNAL, "this worker trains generation %u, the run generation %u",
                       w->now->plan.generation, order->generation);
    }
    FL_TRY(apply_summed(w, order));
    w->step = order->step;
    fl_worker_checkpoint_regroup(w, order->step, order->saved);
    w->cursor = fl_sampler_after(w->c->n_samples, fl_sampler_batch(w->c->job), order->step);
    fl_worker_adopt(w, &order->position);
    return behind && w->now->place.active ? fl_worker_hash_weights(w) : FL_OK;
}

/* ---- ⑤ ---- */

static fl_status obey(worker *w, const fl_regroup_order *order)
{
    bool lost[FL_MAX_WORKERS];
    FL_TRY(catch_up(w, order));
    for (int rank = 0; rank < order->plan.n_workers; rank++) {
        lost[rank] = order->plan.departed[rank] && !w->now->plan.departed[rank];
    }
    FL_TRY(fl_transition_force(w, &order->plan, lost, order->step));
    fl_batch_stream_reset(&w->batches, w->step, w->cursor);
    return FL_OK;
}

fl_status fl_worker_rejoin(worker *w, fl_status why, fl_rejoin_outcome *outcome)
{
    fl_regroup_order order;
    fl_status status = why;
    do {
        FL_TRY(leave_waits(w, status));
        FL_TRY(wait_for_order(w, status, &order));
        *outcome = (fl_rejoin_outcome){.leaves = order.leave, .evaluates = order.evaluates};
        if (order.leave) {
            return FL_OK;
        }
        status = obey(w, &order);
    } while (fl_status_is_regroup(status));
    return status;
}
