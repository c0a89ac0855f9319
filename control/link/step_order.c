#include "control/link/step_order.h"

#include "device/alloc.h"

void fl_step_order_fini(fl_step_order *order)
{
    while (order->first != NULL) {
        fl_step_record *record = order->first;
        order->first = record->next;
        fl_free(record);
    }
}

/* The record of this step, created if it is new. */
static fl_status find_record(fl_step_order *order, int64_t step, fl_step_record **out)
{
    fl_step_record **at = &order->first;
    if (step - order->next_step > FL_REPORTS_AHEAD_MAX) {
        return fl_fail(FL_EFORMAT, "a report of step %lld, the next one is %lld", (long long)step,
                       (long long)order->next_step);
    }
    while (*at != NULL && (*at)->step < step) {
        at = &(*at)->next;
    }
    if (*at == NULL || (*at)->step != step) {
        fl_step_record *record = NULL;
        FL_TRY(fl_alloc(sizeof *record, (void **)&record));
        record->step = step;
        record->next = *at;
        *at = record;
    }
    *out = *at;
    return FL_OK;
}

fl_status fl_step_order_norms(fl_step_order *order, const fl_wire_norms *norms)
{
    fl_step_record *record = NULL;
    if (norms->step < order->next_step) {
        return FL_OK;
    }
    FL_TRY(find_record(order, norms->step, &record));
    if (!record->has_norms) {
        record->has_norms = true;
        record->norms = *norms;
    }
    return FL_OK;
}

fl_status fl_step_order_step(fl_step_order *order, const fl_step_report *report, int64_t at_us)
{
    fl_step_record *record = NULL;
    if (report->step < order->next_step) {
        return FL_OK;
    }
    FL_TRY(find_record(order, report->step, &record));
    if (!record->has_step) {
        record->has_step = true;
        record->report = *report;
        record->at_us = at_us;
    }
    return FL_OK;
}

fl_status fl_step_order_eval(fl_step_order *order, const fl_eval_report *eval)
{
    fl_step_record *record = NULL;
    FL_TRY(find_record(order, eval->step, &record));
    record->has_eval = true;
    record->eval = *eval;
    return FL_OK;
}

fl_step_record *fl_step_order_take(fl_step_order *order)
{
    fl_step_record *record = order->first;
    bool late = record != NULL && record->step < order->next_step;
    bool due = record != NULL && record->step == order->next_step && record->has_step;
    if (!late && !due) {
        return NULL;
    }
    order->next_step += due;
    order->first = record->next;
    record->next = NULL;
    return record;
}

/* The first step whose report is complete; NULL: none. */
static const fl_step_record *first_whole(const fl_step_order *order)
{
    const fl_step_record *record = order->first;
    while (record != NULL && !record->has_step) {
        record = record->next;
    }
    return record;
}

int64_t fl_step_order_gap(const fl_step_order *order)
{
    const fl_step_record *record = first_whole(order);
    return record == NULL ? 0 : record->step - order->next_step;
}

void fl_step_order_skip(fl_step_order *order)
{
    const fl_step_record *whole = first_whole(order);
    order->next_step = whole == NULL ? order->next_step : whole->step;
}
