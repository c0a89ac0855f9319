#include "control/link/wire/wire_recovery.h"

#include "control/link/wire/ranges.h"
#include "control/link/wire/wire_elastic.h"
#include "device/errors/log.h"

enum { POSITION_BYTES = 4 * 8 + 4 * 4 + 8 * FL_DUE_KINDS, TEXT_MAX = 511 };

static void put_position(fl_writer *w, const fl_run_position *p)
{
    fl_put_i64(w, p->n_commands);
    fl_put_f64(w, p->lr_factor);
    fl_put_i64(w, p->end_step);
    fl_put(w, (uint32_t)p->n_skipped, 4);
    fl_put(w, p->paused, 4);
    fl_put(w, p->stop, 4);
    fl_put_i64(w, p->last_setting);
    fl_put(w, (uint32_t)p->log_level, 4);
    for (int kind = 0; kind < FL_DUE_KINDS; kind++) {
        fl_put_i64(w, p->answered[kind]);
    }
}

static bool get_position(fl_reader *r, fl_run_position *p)
{
    p->n_commands = fl_get_i64(r);
    p->lr_factor = fl_get_f64(r);
    p->end_step = fl_get_i64(r);
    p->n_skipped = fl_get_i32(r);
    uint64_t paused = fl_get(r, 4), stop = fl_get(r, 4);
    p->paused = paused == 1;
    p->stop = stop == 1;
    p->last_setting = fl_get_i64(r);
    p->log_level = fl_get_i32(r);
    bool good = fl_wire_is_step(p->n_commands) && fl_wire_is_step(p->end_step) &&
                p->n_skipped >= 0 && paused <= 1 && stop <= 1 && fl_wire_is_step(p->last_setting) &&
                p->log_level >= FL_LOG_ERROR && p->log_level <= FL_LOG_DEBUG;
    for (int kind = 0; kind < FL_DUE_KINDS; kind++) {
        p->answered[kind] = fl_get_i64(r);
        good = good && fl_wire_is_step(p->answered[kind]);
    }
    return good;
}

size_t fl_wire_broken_size(const fl_broken_report *report)
{
    return 3 * 4 + 2 * 8 + POSITION_BYTES + 4 + 4 + strnlen(report->text, TEXT_MAX);
}

void fl_wire_put_broken(fl_writer *w, const fl_broken_report *report)
{
    fl_put(w, report->serial, 4);
    fl_put(w, report->generation, 4);
    fl_put(w, report->exchanged, 4);
    fl_put_i64(w, report->step);
    fl_put_i64(w, report->summed_step);
    put_position(w, &report->position);
    fl_put(w, (uint32_t)report->status, 4);
    fl_put_text(w, report->text, TEXT_MAX);
}

bool fl_wire_get_broken(fl_reader *r, fl_broken_report *report)
{
    report->serial = (uint32_t)fl_get(r, 4);
    report->generation = (uint32_t)fl_get(r, 4);
    report->exchanged = (uint32_t)fl_get(r, 4);
    report->step = fl_get_i64(r);
    report->summed_step = fl_get_i64(r);
    return get_position(r, &report->position) && fl_wire_is_step(report->step) &&
           report->summed_step >= -1 && report->summed_step <= FL_WIRE_STEP_MAX &&
           fl_wire_get_status(r, &report->status) && fl_get_text(r, report->text, TEXT_MAX);
}

size_t fl_wire_regroup_size(const fl_regroup_order *order)
{
    return 2 * 4 + 4 * 4 + 2 * 8 + POSITION_BYTES +
           (order->leave ? 0 : fl_wire_plan_size(&order->plan));
}

void fl_wire_put_regroup(fl_writer *w, const fl_regroup_order *order)
{
    fl_put(w, order->serial, 4);
    fl_put(w, order->leave, 4);
    fl_put(w, order->generation, 4);
    fl_put_i64(w, order->step);
    fl_put_f64(w, order->grad_norm);
    fl_put(w, order->finite, 4);
    fl_put(w, order->evaluates, 4);
    fl_put(w, order->saved, 4);
    put_position(w, &order->position);
    if (!order->leave) {
        fl_wire_put_plan(w, &order->plan);
    }
}

bool fl_wire_get_regroup(fl_reader *r, fl_regroup_order *order)
{
    order->serial = (uint32_t)fl_get(r, 4);
    uint64_t leave = fl_get(r, 4);
    order->leave = leave == 1;
    order->generation = (uint32_t)fl_get(r, 4);
    order->step = fl_get_i64(r);
    order->grad_norm = fl_get_f64(r);
    uint64_t finite = fl_get(r, 4), evaluates = fl_get(r, 4), saved = fl_get(r, 4);
    order->finite = finite == 1;
    order->evaluates = evaluates == 1;
    order->saved = saved == 1;
    return get_position(r, &order->position) && leave <= 1 && finite <= 1 && evaluates <= 1 &&
           saved <= 1 && fl_wire_is_step(order->step) &&
           (order->leave || fl_wire_get_plan(r, &order->plan));
}

void fl_wire_put_unanswered(fl_writer *w, const fl_net_unanswered *u)
{
    fl_put(w, u->address, 4);
    fl_put(w, u->port, 2);
    fl_put(w, u->connected, 1);
    fl_put(w, (uint32_t)u->error, 4);
    fl_put_i64(w, u->for_ms);
}

bool fl_wire_get_unanswered(fl_reader *r, fl_net_unanswered *u)
{
    u->address = (uint32_t)fl_get(r, 4);
    u->port = (uint16_t)fl_get(r, 2);
    bool good = fl_get_bool(r, &u->connected);
    u->error = fl_get_i32(r);
    u->for_ms = fl_get_i64(r);
    bool any = u->address != 0;
    return good && u->error >= 0 && (u->for_ms > 0) == any && fl_wire_is_ms((double)u->for_ms) &&
           (u->port != 0) == any && (any || (u->error == 0 && !u->connected));
}
