#include "control/link/wire/wire_elastic.h"

#include "control/link/wire/ranges.h"
#include "control/link/wire/wire_setting.h"
#include "pipe/plan/planner.h"

/* ---- plans and commands ---- */

size_t fl_wire_plan_size(const fl_plan *p)
{
    size_t n_departed = (size_t)(p->n_workers - fl_plan_members(p));
    return 9 * 4 + 2 * 8 + 4 * (size_t)(p->K + 1) + 4 * (size_t)(p->K * p->R) + 4 * n_departed;
}

void fl_wire_put_plan(fl_writer *w, const fl_plan *p)
{
    fl_put(w, p->generation, 4);
    fl_put(w, (uint32_t)p->F, 4);
    fl_put(w, (uint32_t)p->K, 4);
    fl_put(w, (uint32_t)p->R, 4);
    fl_put(w, (uint32_t)p->M, 4);
    fl_put(w, (uint32_t)p->schedule, 4);
    fl_put(w, (uint32_t)p->n_layers, 4);
    fl_put(w, (uint32_t)p->n_workers, 4);
    fl_put_f64(w, p->predicted_step_us);
    fl_put_f64(w, p->predicted_bubble);
    for (int i = 0; i <= p->K; i++) {
        fl_put(w, (uint32_t)p->first[i], 4);
    }
    for (int i = 0; i < p->K * p->R; i++) {
        fl_put(w, (uint32_t)p->rank_of[i], 4);
    }
    fl_put(w, (uint32_t)(p->n_workers - fl_plan_members(p)), 4);
    for (int rank = 0; rank < p->n_workers; rank++) {
        if (p->departed[rank]) {
            fl_put(w, (uint32_t)rank, 4);
        }
    }
}

/* Ascending. */
static bool get_departed(fl_reader *r, fl_plan *p)
{
    int n = fl_get_i32(r), last = -1;
    bool good = n >= 0 && n <= FL_MAX_WORKERS && p->n_workers <= FL_MAX_WORKERS;
    for (int i = 0; good && i < n; i++) {
        int rank = fl_get_i32(r);
        good = rank > last && rank < p->n_workers;
        if (good) {
            p->departed[rank] = true;
            last = rank;
        }
    }
    return good;
}

bool fl_wire_get_plan(fl_reader *r, fl_plan *p)
{
    *p = (fl_plan){.generation = (uint32_t)fl_get(r, 4)};
    p->F = fl_get_i32(r);
    p->K = fl_get_i32(r);
    p->R = fl_get_i32(r);
    p->M = fl_get_i32(r);
    uint64_t schedule = fl_get(r, 4);
    p->n_layers = fl_get_i32(r);
    p->n_workers = fl_get_i32(r);
    p->predicted_step_us = fl_get_f64(r);
    p->predicted_bubble = fl_get_f64(r);
    if (p->K < 1 || p->K > FL_MAX_STAGES || p->R < 1 || p->R > FL_MAX_WORKERS / p->K ||
        schedule > FL_1F1B) {
        return false;
    }
    p->schedule = (fl_schedule)schedule;
    for (int i = 0; i <= p->K; i++) {
        p->first[i] = fl_get_i32(r);
    }
    for (int i = 0; i < p->K * p->R; i++) {
        p->rank_of[i] = fl_get_i32(r);
    }
    if (!get_departed(r, p)) {
        return false;
    }
    return !r->short_of_bytes && fl_plan_check(p) == FL_OK;
}

/* COMMIT, CANCEL, PASS and END answer for a step. */
static bool is_answer(fl_command_kind kind)
{
    return kind == FL_COMMAND_COMMIT || kind == FL_COMMAND_CANCEL || kind == FL_COMMAND_PASS ||
           kind == FL_COMMAND_END;
}

/* To save the state. */
static bool is_request(fl_command_kind kind)
{
    return kind == FL_COMMAND_CHECKPOINT || kind == FL_COMMAND_SNAPSHOT;
}

size_t fl_wire_command_size(const fl_command *command)
{
    size_t rest = command->kind == FL_COMMAND_PREPARE   ? 8 + fl_wire_plan_size(&command->plan)
                  : command->kind == FL_COMMAND_SETTING ? FL_WIRE_SETTING_BYTES
                  : is_request(command->kind)           ? 8 + 8
                  : is_answer(command->kind)            ? 8 + 4
                                                        : 0;
    return 4 + rest;
}

void fl_wire_put_command(fl_writer *w, const fl_command *command)
{
    fl_put(w, (uint32_t)command->kind, 4);
    if (command->kind == FL_COMMAND_PREPARE) {
        fl_put_i64(w, command->due_step);
        fl_wire_put_plan(w, &command->plan);
    } else if (command->kind == FL_COMMAND_SETTING) {
        fl_wire_put_setting(w, &command->setting);
    } else if (is_request(command->kind)) {
        fl_put_i64(w, command->due_step);
        fl_put_i64(w, command->serial);
    } else if (is_answer(command->kind)) {
        fl_put_i64(w, command->due_step);
        fl_put(w, (uint32_t)command->due, 4);
    }
}

static bool get_answer(fl_reader *r, fl_command *command)
{
    command->due_step = fl_get_i64(r);
    uint64_t due = fl_get(r, 4);
    command->due = due < FL_DUE_KINDS ? (fl_due_kind)due : FL_DUE_NONE;
    return command->due_step >= 0 && due < FL_DUE_KINDS;
}

bool fl_wire_get_command(fl_reader *r, fl_command *command)
{
    uint64_t kind = fl_get(r, 4);
    if (kind < FL_COMMAND_STOP || kind > FL_COMMAND_SNAPSHOT) {
        return false;
    }
    command->kind = (fl_command_kind)kind;
    command->due_step = 0;
    command->due = FL_DUE_NONE;
    if (kind == FL_COMMAND_PREPARE) {
        command->due_step = fl_get_i64(r);
        return command->due_step >= 0 && fl_wire_get_plan(r, &command->plan);
    }
    if (kind == FL_COMMAND_SETTING) {
        return fl_wire_get_setting(r, &command->setting);
    }
    if (is_request(command->kind)) {
        command->due_step = fl_get_i64(r);
        command->serial = fl_get_i64(r);
        return command->due_step >= 0 && command->serial > 0;
    }
    return !is_answer(command->kind) || get_answer(r, command);
}

/* ---- transitions ---- */

size_t fl_wire_prepared_size(const fl_prepared_report *report)
{
    return 4 + 8 + 4 + strnlen(report->text, FL_WIRE_REFUSAL_MAX);
}

void fl_wire_put_prepared(fl_writer *w, const fl_prepared_report *report)
{
    fl_put(w, (uint32_t)report->status, 4);
    fl_put_i64(w, report->took_us);
    fl_put_text(w, report->text, FL_WIRE_REFUSAL_MAX);
}

bool fl_wire_get_prepared(fl_reader *r, uint32_t generation, fl_prepared_report *report)
{
    report->generation = generation;
    bool known = fl_wire_get_status(r, &report->status);
    report->took_us = fl_get_i64(r);
    return known && fl_wire_is_us(report->took_us) &&
           fl_get_text(r, report->text, FL_WIRE_REFUSAL_MAX);
}

void fl_wire_put_transition(fl_writer *w, const fl_transition_parts *t)
{
    fl_put_i64(w, t->step);
    fl_put_i64(w, t->wait_us);
    fl_put_i64(w, t->vote_us);
    fl_put_i64(w, t->migrate_us);
    fl_put_i64(w, t->switch_us);
    fl_put_i64(w, t->received_bytes);
    fl_put_i64(w, t->kept_bytes);
    fl_put_i64(w, t->device_bytes);
    fl_put(w, (uint32_t)t->comm, 4);
    fl_put_i64(w, t->comm_us);
    for (int way = 0; way < FL_TRANSFER_WAYS; way++) {
        fl_put(w, (uint32_t)t->part[way].pairs, 4);
        fl_put_i64(w, t->part[way].bytes);
        fl_put_i64(w, t->part[way].us);
    }
}

static bool get_part(fl_reader *r, fl_transfer_part *part)
{
    uint64_t pairs = fl_get(r, 4);
    *part = (fl_transfer_part){.pairs = pairs <= FL_MAX_WORKERS ? (int)pairs : 0,
                               .bytes = fl_get_i64(r)};
    part->us = fl_get_i64(r);
    return pairs <= FL_MAX_WORKERS && fl_wire_is_bytes(part->bytes) && fl_wire_is_us(part->us);
}

static bool get_way(fl_reader *r, fl_comm_way *way)
{
    uint64_t number = fl_get(r, 4);
    *way = number < FL_COMM_WAYS ? (fl_comm_way)number : FL_COMM_NONE;
    return number < FL_COMM_WAYS;
}

bool fl_wire_get_transition(fl_reader *r, uint32_t generation, fl_transition_parts *t)
{
    *t = (fl_transition_parts){.generation = generation, .step = fl_get_i64(r)};
    t->wait_us = fl_get_i64(r);
    t->vote_us = fl_get_i64(r);
    t->migrate_us = fl_get_i64(r);
    t->switch_us = fl_get_i64(r);
    t->received_bytes = fl_get_i64(r);
    t->kept_bytes = fl_get_i64(r);
    t->device_bytes = fl_get_i64(r);
    bool known = get_way(r, &t->comm);
    t->comm_us = fl_get_i64(r);
    for (int way = 0; way < FL_TRANSFER_WAYS; way++) {
        known = get_part(r, &t->part[way]) && known;
    }
    return known && fl_wire_is_us(t->comm_us) && fl_wire_is_step(t->step) &&
           fl_wire_is_us(t->wait_us) && fl_wire_is_us(t->vote_us) && fl_wire_is_us(t->migrate_us) &&
           fl_wire_is_us(t->switch_us) && fl_wire_is_bytes(t->received_bytes) &&
           fl_wire_is_bytes(t->kept_bytes) && fl_wire_is_bytes(t->device_bytes);
}

static bool get_registration(fl_reader *r, fl_group_comm *c)
{
    int registration = fl_get_i32(r);
    c->n_registered = fl_get_i32(r);
    c->registered_bytes = fl_get_i64(r);
    c->register_us = fl_get_i64(r);
    bool known = registration >= 0 && registration < FL_REGISTRATIONS;
    c->registration = known ? (fl_comm_registration)registration : FL_REGISTERED_NONE;
    return known && c->n_registered >= 0 && fl_wire_is_bytes(c->registered_bytes) &&
           fl_wire_is_us(c->register_us);
}

size_t fl_wire_comm_size(const fl_comm_report *report)
{
    return 4 + 8 + 2 * 4 + 4 + 2 * 4 + 2 * 8 + strnlen(report->comm.host_pairs, FL_GROUP_PAIRS_MAX);
}

void fl_wire_put_comm(fl_writer *w, const fl_comm_report *report)
{
    const fl_group_comm *c = &report->comm;
    fl_put(w, (uint32_t)c->way, 4);
    fl_put_i64(w, c->us);
    fl_put(w, (uint32_t)c->n_pairs, 4);
    fl_put(w, (uint32_t)c->n_device_pairs, 4);
    fl_put(w, (uint32_t)c->registration, 4);
    fl_put(w, (uint32_t)c->n_registered, 4);
    fl_put_i64(w, c->registered_bytes);
    fl_put_i64(w, c->register_us);
    fl_put_text(w, c->host_pairs, FL_GROUP_PAIRS_MAX);
}

bool fl_wire_get_comm(fl_reader *r, uint32_t generation, fl_comm_report *report)
{
    fl_group_comm *c = &report->comm;
    *report = (fl_comm_report){.generation = generation};
    bool known = get_way(r, &c->way);
    c->us = fl_get_i64(r);
    c->n_pairs = fl_get_i32(r);
    c->n_device_pairs = fl_get_i32(r);
    known = get_registration(r, c) && known;
    return known && fl_wire_is_us(c->us) && c->n_pairs >= 0 && c->n_device_pairs >= 0 &&
           c->n_device_pairs <= c->n_pairs && fl_get_text(r, c->host_pairs, FL_GROUP_PAIRS_MAX);
}

/* ---- norms ---- */

size_t fl_wire_norms_size(const fl_wire_norms *norms)
{
    return 8 + 4 + 8 * (size_t)norms->n;
}

void fl_wire_put_norms(fl_writer *w, const fl_wire_norms *norms)
{
    fl_put_i64(w, norms->step);
    fl_put(w, (uint32_t)norms->n, 4);
    for (int i = 0; i < norms->n; i++) {
        fl_put_f64(w, norms->squared[i]);
    }
}

bool fl_wire_get_norms(fl_reader *r, fl_wire_norms *norms)
{
    norms->step = fl_get_i64(r);
    norms->n = fl_get_i32(r);
    if (!fl_wire_is_step(norms->step) || norms->n < 0 || norms->n > FL_MAX_LAYERS) {
        return false;
    }
    for (int i = 0; i < norms->n; i++) {
        norms->squared[i] = fl_get_f64(r);
    }
    return true;
}
