#include "control/link/step_order.h"

#include "device/system/alloc.h"

void fl_step_record_free(fl_step_record **record)
{
    while ((*record)->shares != NULL) {
        fl_step_share *share = (*record)->shares;
        (*record)->shares = share->next;
        fl_free(share);
    }
    fl_free(*record);
    *record = NULL;
}

void fl_step_order_forget(fl_step_order *order)
{
    while (order->first != NULL) {
        fl_step_record *record = order->first;
        order->first = record->next;
        fl_step_record_free(&record);
    }
}

void fl_step_order_fini(fl_step_order *order)
{
    fl_step_order_forget(order);
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

/* Where the replica's share is in the list, or belongs. */
static fl_step_share **find_share(fl_step_record *record, int32_t replica)
{
    fl_step_share **at = &record->shares;
    while (*at != NULL && (*at)->replica < replica) {
        at = &(*at)->next;
    }
    return at;
}

fl_status fl_step_order_share(fl_step_order *order, const fl_wire_message *frame)
{
    const fl_wire_ledger *l = &frame->ledger;
    fl_step_record *record = NULL;
    fl_step_share *share = NULL;
    if (l->step < order->next_step) {
        return FL_OK;
    }
    FL_TRY(find_record(order, l->step, &record));
    fl_step_share **at = find_share(record, l->replica);
    if (*at != NULL && (*at)->replica == l->replica) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *share + (size_t)l->n * sizeof *share->ids, (void **)&share));
    *share = (fl_step_share){.next = *at,
                             .epoch = l->epoch,
                             .generation = frame->generation,
                             .replica = l->replica,
                             .n = l->n};
    fl_wire_ids(frame, share->ids);
    *at = share;
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
