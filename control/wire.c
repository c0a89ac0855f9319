#include "control/wire.h"

#include "pipe/planner.h"

#include <string.h>

enum { MAGIC = 0x4b4c4c46 /* "FLLK" */, VERSION = 1 };

/* ---- little-endian values ---- */

typedef struct writer {
    unsigned char *at;
} writer;

typedef struct reader {
    const unsigned char *at;
    size_t left;
    bool short_of_bytes;
} reader;

static void put(writer *w, uint64_t value, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++) {
        *w->at++ = (unsigned char)(value >> (8 * i));
    }
}

static void put_i64(writer *w, int64_t value)
{
    put(w, (uint64_t)value, 8);
}

static void put_f64(writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(w, bits, 8);
}

static void put_text(writer *w, const char *text, size_t max)
{
    size_t n = strnlen(text, max);
    put(w, n, 4);
    memcpy(w->at, text, n);
    w->at += n;
}

static uint64_t get(reader *r, size_t n_bytes)
{
    if (r->left < n_bytes) {
        r->short_of_bytes = true;
        r->left = 0;
        return 0;
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        value |= (uint64_t)r->at[i] << (8 * i);
    }
    r->at += n_bytes;
    r->left -= n_bytes;
    return value;
}

static int32_t get_i32(reader *r)
{
    return (int32_t)(uint32_t)get(r, 4);
}

static int64_t get_i64(reader *r)
{
    return (int64_t)get(r, 8);
}

static double get_f64(reader *r)
{
    uint64_t bits = get(r, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* False when the text is longer than `max`, cut, or has a zero byte inside. */
static bool get_text(reader *r, char *text, size_t max)
{
    size_t n = get(r, 4);
    if (n > max || n > r->left || memchr(r->at, 0, n) != NULL) {
        return false;
    }
    memcpy(text, r->at, n);
    text[n] = 0;
    r->at += n;
    r->left -= n;
    return true;
}

/* ---- bodies ---- */

static size_t plan_size(const fl_plan *p)
{
    return 8 * 4 + 2 * 8 + 4 * (size_t)(p->K + 1) + 4 * (size_t)(p->K * p->R);
}

static size_t body_size(const fl_frame *f)
{
    switch (f->type) {
    case FL_FRAME_HELLO:
    case FL_FRAME_READY:
        return 8;
    case FL_FRAME_HEARTBEAT:
        return 8 + 4 + strnlen(f->heartbeat.operation, FL_WIRE_OPERATION_MAX);
    case FL_FRAME_STEP:
        return 8 * 8 + 4 * 4;
    case FL_FRAME_TIME:
        return 6 * 8;
    case FL_FRAME_EVAL:
        return 6 * 8;
    case FL_FRAME_LEDGER:
        return 8 + 8 + 4 + 4 + (size_t)f->ledger.n * 8;
    case FL_FRAME_FAILED:
        return 4 + 4 + strnlen(f->failed.text, FL_WIRE_TEXT_MAX);
    case FL_FRAME_PREPARED:
        return 4 + 8 + 4 + strnlen(f->prepared.text, FL_WIRE_REFUSAL_MAX);
    case FL_FRAME_TRANSITION:
        return 8 * 8;
    case FL_FRAME_VERDICT:
        return 4 + (f->verdict.kind == FL_VERDICT_PREPARE ? plan_size(&f->verdict.plan) : 0);
    case FL_FRAME_ABORT:
        return 4;
    case FL_FRAME_DONE:
    case FL_FRAME_ALIVE:
    case FL_FRAME_STOPPING:
    case FL_FRAME_WAKE:
        break;
    }
    return 0;
}

static void put_step(writer *w, const fl_step_report *s)
{
    put_i64(w, s->step);
    put_i64(w, s->epoch);
    put_f64(w, s->loss);
    put_f64(w, s->grad_norm);
    put_f64(w, s->lr);
    put_f64(w, s->ms);
    put_i64(w, s->samples);
    put_i64(w, s->tokens);
    put(w, (uint32_t)s->f, 4);
    put(w, (uint32_t)s->k, 4);
    put(w, (uint32_t)s->r, 4);
    put(w, (uint32_t)s->m, 4);
}

static bool get_step(reader *r, uint32_t generation, fl_step_report *s)
{
    *s = (fl_step_report){.step = get_i64(r), .generation = generation};
    s->epoch = get_i64(r);
    s->loss = get_f64(r);
    s->grad_norm = get_f64(r);
    s->lr = get_f64(r);
    s->ms = get_f64(r);
    s->samples = get_i64(r);
    s->tokens = get_i64(r);
    s->f = get_i32(r);
    s->k = get_i32(r);
    s->r = get_i32(r);
    s->m = get_i32(r);
    return s->step >= 0 && s->epoch >= 0 && s->samples >= 0 && s->tokens >= 0 && s->ms >= 0;
}

static void put_time(writer *w, const fl_time_report *t)
{
    put_i64(w, t->step);
    put_i64(w, t->compute_us);
    put_i64(w, t->wait_us);
    put_i64(w, t->reduce_wait_us);
    put_i64(w, t->optimizer_us);
    put_i64(w, t->data_us);
}

static bool get_time(reader *r, fl_time_report *t)
{
    t->step = get_i64(r);
    t->compute_us = get_i64(r);
    t->wait_us = get_i64(r);
    t->reduce_wait_us = get_i64(r);
    t->optimizer_us = get_i64(r);
    t->data_us = get_i64(r);
    return t->step >= 0 && t->compute_us >= 0 && t->wait_us >= 0 && t->reduce_wait_us >= 0 &&
           t->optimizer_us >= 0 && t->data_us >= 0;
}

static void put_eval(writer *w, const fl_eval_report *e)
{
    put_i64(w, e->epoch);
    put_i64(w, e->step);
    put_f64(w, e->loss);
    put_f64(w, e->accuracy);
    put_f64(w, e->ms);
    put_i64(w, e->samples);
}

static bool get_eval(reader *r, fl_eval_report *e)
{
    e->epoch = get_i64(r);
    e->step = get_i64(r);
    e->loss = get_f64(r);
    e->accuracy = get_f64(r);
    e->ms = get_f64(r);
    e->samples = get_i64(r);
    return e->epoch >= 0 && e->step >= 0 && e->samples >= 0 && e->ms >= 0;
}

static void put_ledger(writer *w, const fl_frame_ledger *l)
{
    put_i64(w, l->epoch);
    put_i64(w, l->step);
    put(w, (uint32_t)l->replica, 4);
    put(w, l->n, 4);
    for (uint32_t i = 0; i < l->n; i++) {
        put_i64(w, l->ids[i]);
    }
}

static bool get_ledger(reader *r, fl_frame_ledger *l)
{
    l->epoch = get_i64(r);
    l->step = get_i64(r);
    l->replica = get_i32(r);
    l->n = (uint32_t)get(r, 4);
    l->ids = NULL;
    l->wire = r->at;
    if (l->epoch < 0 || l->step < 0 || l->replica < 0 || r->left != (size_t)l->n * 8) {
        return false;
    }
    r->at += r->left;
    r->left = 0;
    return true;
}

static bool known_status(int32_t value)
{
    switch (value) {
#define CASE(name, number, text) case number:
        FL_STATUS_MAP(CASE)
#undef CASE
        return true;
    default:
        return false;
    }
}

static bool get_status(reader *r, fl_status *status)
{
    int32_t value = get_i32(r);
    *status = (fl_status)value;
    return known_status(value);
}

static void put_plan(writer *w, const fl_plan *p)
{
    put(w, p->generation, 4);
    put(w, (uint32_t)p->F, 4);
    put(w, (uint32_t)p->K, 4);
    put(w, (uint32_t)p->R, 4);
    put(w, (uint32_t)p->M, 4);
    put(w, (uint32_t)p->schedule, 4);
    put(w, (uint32_t)p->n_layers, 4);
    put(w, (uint32_t)p->n_workers, 4);
    put_f64(w, p->predicted_step_us);
    put_f64(w, p->predicted_bubble);
    for (int i = 0; i <= p->K; i++) {
        put(w, (uint32_t)p->first[i], 4);
    }
    for (int i = 0; i < p->K * p->R; i++) {
        put(w, (uint32_t)p->rank_of[i], 4);
    }
}

static bool get_plan(reader *r, fl_plan *p)
{
    *p = (fl_plan){.generation = (uint32_t)get(r, 4)};
    p->F = get_i32(r);
    p->K = get_i32(r);
    p->R = get_i32(r);
    p->M = get_i32(r);
    p->schedule = (fl_schedule)get(r, 4);
    p->n_layers = get_i32(r);
    p->n_workers = get_i32(r);
    p->predicted_step_us = get_f64(r);
    p->predicted_bubble = get_f64(r);
    if (p->K < 1 || p->K > FL_MAX_STAGES || p->R < 1 || p->R > FL_MAX_WORKERS / p->K ||
        p->schedule > FL_1F1B) {
        return false;
    }
    for (int i = 0; i <= p->K; i++) {
        p->first[i] = get_i32(r);
    }
    for (int i = 0; i < p->K * p->R; i++) {
        p->rank_of[i] = get_i32(r);
    }
    return fl_plan_check(p) == FL_OK;
}

static bool get_verdict(reader *r, fl_verdict *verdict)
{
    uint64_t value = get(r, 4);
    verdict->kind = (fl_verdict_kind)value;
    return value == FL_VERDICT_PREPARE ? get_plan(r, &verdict->plan)
                                       : value >= FL_VERDICT_STOP && value <= FL_VERDICT_CANCEL;
}

static void put_transition(writer *w, const fl_transition_parts *t)
{
    put_i64(w, t->step);
    put_i64(w, t->prepare_us);
    put_i64(w, t->vote_us);
    put_i64(w, t->migrate_us);
    put_i64(w, t->switch_us);
    put_i64(w, t->sent_bytes);
    put_i64(w, t->received_bytes);
    put_i64(w, t->copied_bytes);
}

static bool get_transition(reader *r, uint32_t generation, fl_transition_parts *t)
{
    *t = (fl_transition_parts){.generation = generation, .step = get_i64(r)};
    t->prepare_us = get_i64(r);
    t->vote_us = get_i64(r);
    t->migrate_us = get_i64(r);
    t->switch_us = get_i64(r);
    t->sent_bytes = get_i64(r);
    t->received_bytes = get_i64(r);
    t->copied_bytes = get_i64(r);
    return t->step >= 0 && t->prepare_us >= 0 && t->vote_us >= 0 && t->migrate_us >= 0 &&
           t->switch_us >= 0 && t->sent_bytes >= 0 && t->received_bytes >= 0 &&
           t->copied_bytes >= 0;
}

static bool get_prepared(reader *r, uint32_t generation, fl_prepared_report *p)
{
    p->generation = generation;
    bool known = get_status(r, &p->status);
    p->took_us = get_i64(r);
    return known && p->took_us >= 0 && get_text(r, p->text, FL_WIRE_REFUSAL_MAX);
}

static void put_body(writer *w, const fl_frame *f)
{
    switch (f->type) {
    case FL_FRAME_HELLO:
        put_i64(w, f->pid);
        break;
    case FL_FRAME_HEARTBEAT:
        put_i64(w, f->heartbeat.steps);
        put_text(w, f->heartbeat.operation, FL_WIRE_OPERATION_MAX);
        break;
    case FL_FRAME_READY:
        put_i64(w, f->memory_peak_bytes);
        break;
    case FL_FRAME_STEP:
        put_step(w, &f->step);
        break;
    case FL_FRAME_TIME:
        put_time(w, &f->time);
        break;
    case FL_FRAME_EVAL:
        put_eval(w, &f->eval);
        break;
    case FL_FRAME_LEDGER:
        put_ledger(w, &f->ledger);
        break;
    case FL_FRAME_FAILED:
        put(w, (uint32_t)f->failed.status, 4);
        put_text(w, f->failed.text, FL_WIRE_TEXT_MAX);
        break;
    case FL_FRAME_VERDICT:
        put(w, (uint32_t)f->verdict.kind, 4);
        if (f->verdict.kind == FL_VERDICT_PREPARE) {
            put_plan(w, &f->verdict.plan);
        }
        break;
    case FL_FRAME_PREPARED:
        put(w, (uint32_t)f->prepared.status, 4);
        put_i64(w, f->prepared.took_us);
        put_text(w, f->prepared.text, FL_WIRE_REFUSAL_MAX);
        break;
    case FL_FRAME_TRANSITION:
        put_transition(w, &f->transition);
        break;
    case FL_FRAME_ABORT:
        put(w, (uint32_t)f->why, 4);
        break;
    case FL_FRAME_DONE:
    case FL_FRAME_ALIVE:
    case FL_FRAME_STOPPING:
    case FL_FRAME_WAKE:
        break;
    }
}

/* False when the type is unknown or a value is out of its range. */
static bool get_body(reader *r, fl_frame *f)
{
    switch (f->type) {
    case FL_FRAME_HELLO:
        f->pid = get_i64(r);
        return f->pid > 0;
    case FL_FRAME_HEARTBEAT:
        f->heartbeat.steps = get_i64(r);
        return f->heartbeat.steps >= 0 &&
               get_text(r, f->heartbeat.operation, FL_WIRE_OPERATION_MAX);
    case FL_FRAME_READY:
        f->memory_peak_bytes = get_i64(r);
        return f->memory_peak_bytes >= 0;
    case FL_FRAME_STEP:
        return get_step(r, f->generation, &f->step);
    case FL_FRAME_TIME:
        return get_time(r, &f->time);
    case FL_FRAME_EVAL:
        return get_eval(r, &f->eval);
    case FL_FRAME_LEDGER:
        return get_ledger(r, &f->ledger);
    case FL_FRAME_FAILED:
        return get_status(r, &f->failed.status) && get_text(r, f->failed.text, FL_WIRE_TEXT_MAX);
    case FL_FRAME_VERDICT:
        return get_verdict(r, &f->verdict);
    case FL_FRAME_PREPARED:
        return get_prepared(r, f->generation, &f->prepared);
    case FL_FRAME_TRANSITION:
        return get_transition(r, f->generation, &f->transition);
    case FL_FRAME_ABORT:
        return get_status(r, &f->why);
    case FL_FRAME_DONE:
    case FL_FRAME_ALIVE:
    case FL_FRAME_STOPPING:
    case FL_FRAME_WAKE:
        return true;
    }
    return false;
}

/* ---- frames ---- */

size_t fl_wire_size(const fl_frame *frame)
{
    return FL_WIRE_HEADER_BYTES + body_size(frame);
}

void fl_wire_put(const fl_frame *frame, unsigned char *out)
{
    writer w = {out};
    put(&w, MAGIC, 4);
    put(&w, VERSION, 2);
    put(&w, (uint64_t)frame->type, 2);
    put(&w, (uint32_t)frame->rank, 4);
    put(&w, frame->generation, 4);
    put_i64(&w, frame->at_us);
    put(&w, body_size(frame), 4);
    put_body(&w, frame);
}

fl_status fl_wire_next(const unsigned char **at, size_t *left, fl_frame *out)
{
    reader r = {*at, *left, false};
    uint64_t magic = get(&r, 4), version = get(&r, 2), type = get(&r, 2);
    int32_t rank = get_i32(&r);
    uint32_t generation = (uint32_t)get(&r, 4);
    int64_t at_us = get_i64(&r);
    size_t size_bytes = get(&r, 4);
    if (r.short_of_bytes) {
        return fl_fail(FL_EFORMAT, "a frame's header is cut: %zu of %d bytes", *left,
                       FL_WIRE_HEADER_BYTES);
    }
    if (magic != MAGIC || version != VERSION) {
        return fl_fail(FL_EFORMAT, "not a frame of version %d", VERSION);
    }
    if (rank < 0 || rank >= FL_MAX_WORKERS) {
        return fl_fail(FL_EFORMAT, "a frame of rank %d, allowed are 0 to %d", rank,
                       FL_MAX_WORKERS - 1);
    }
    if (size_bytes > FL_WIRE_BODY_MAX || size_bytes > r.left) {
        return fl_fail(FL_EFORMAT, "a frame of type %d is cut: %zu of %zu bytes", (int)type, r.left,
                       size_bytes);
    }
    reader body = {r.at, size_bytes, false};
    out->type = (fl_frame_type)type;
    out->rank = rank;
    out->generation = generation;
    out->at_us = at_us;
    if (!get_body(&body, out) || body.short_of_bytes || body.left != 0) {
        return fl_fail(FL_EFORMAT, "a frame of type %d and %zu bytes makes no sense", (int)type,
                       size_bytes);
    }
    *at = r.at + size_bytes;
    *left = r.left - size_bytes;
    return FL_OK;
}

void fl_wire_ids(const fl_frame *frame, int64_t *ids)
{
    reader r = {frame->ledger.wire, (size_t)frame->ledger.n * 8, false};
    for (uint32_t i = 0; i < frame->ledger.n; i++) {
        ids[i] = get_i64(&r);
    }
}

const char *fl_wire_type_text(fl_frame_type type)
{
    switch (type) {
    case FL_FRAME_HELLO:
        return "hello";
    case FL_FRAME_HEARTBEAT:
        return "heartbeat";
    case FL_FRAME_READY:
        return "ready";
    case FL_FRAME_STEP:
        return "step";
    case FL_FRAME_TIME:
        return "time";
    case FL_FRAME_EVAL:
        return "eval";
    case FL_FRAME_LEDGER:
        return "ledger";
    case FL_FRAME_FAILED:
        return "failed";
    case FL_FRAME_DONE:
        return "done";
    case FL_FRAME_ALIVE:
        return "alive";
    case FL_FRAME_STOPPING:
        return "stopping";
    case FL_FRAME_VERDICT:
        return "verdict";
    case FL_FRAME_ABORT:
        return "abort";
    case FL_FRAME_PREPARED:
        return "prepared";
    case FL_FRAME_TRANSITION:
        return "transition";
    case FL_FRAME_WAKE:
        return "wake";
    }
    return "unknown";
}
