#include "control/agent/wire/agent_wire.h"

#include "control/agent/wire/reach_wire.h"
#include "control/link/wire/bytes.h"
#include "control/link/wire/wire_elastic.h"

#include <frostline/plan.h>

enum { MAGIC = 0x47414c46 /* "FLAG" */, VERSION = 13 };

/* ---- bodies ---- */

static void put_threads(fl_writer *w, const fl_thread_look *look)
{
    fl_put_i64(w, look->n_major_faults);
    fl_put(w, look->is_runnable, 1);
}

/* Of two looks, the difference is taken. */
static bool is_so_far(int64_t value)
{
    return value >= 0 && value <= INT64_MAX / 2;
}

static bool get_threads(fl_reader *r, fl_thread_look *look)
{
    look->n_major_faults = fl_get_i64(r);
    return fl_get_bool(r, &look->is_runnable) && is_so_far(look->n_major_faults);
}

static void put_birth(fl_writer *w, const fl_worker_birth *b)
{
    fl_put(w, b->joins, 1);
    fl_put_i64(w, b->step);
    fl_put_i64(w, b->cursor.epoch);
    fl_put_i64(w, b->cursor.position);
    fl_put_f64(w, b->lr_factor);
    fl_put_i64(w, b->end_step);
    fl_put(w, (uint32_t)b->n_skipped, 4);
    fl_put(w, b->paused, 1);
    fl_put(w, b->evaluates, 1);
    fl_wire_put_plan(w, &b->plan);
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        fl_put(w, (uint32_t)b->parked[layer], 4);
        fl_put_i64(w, b->since[layer]);
    }
}

static bool get_parked(fl_reader *r, fl_worker_birth *b)
{
    bool good = true;
    for (int layer = 0; layer < b->plan.n_layers; layer++) {
        b->parked[layer] = fl_get_i32(r);
        b->since[layer] = fl_get_i64(r);
        good = good && b->parked[layer] >= -1 && b->parked[layer] < b->plan.n_workers &&
               b->since[layer] >= 0;
    }
    return good;
}

static bool get_birth(fl_reader *r, fl_agent_frame *f)
{
    fl_worker_birth *b = &f->birth;
    b->rank = f->rank;
    b->incarnation = f->incarnation;
    bool good = fl_get_bool(r, &b->joins);
    b->step = fl_get_i64(r);
    b->cursor.epoch = fl_get_i64(r);
    b->cursor.position = fl_get_i64(r);
    b->lr_factor = fl_get_f64(r);
    b->end_step = fl_get_i64(r);
    b->n_skipped = fl_get_i32(r);
    return good && fl_get_bool(r, &b->paused) && fl_get_bool(r, &b->evaluates) &&
           fl_wire_get_plan(r, &b->plan) && get_parked(r, b) && b->step >= 0 &&
           b->cursor.epoch >= 0 && b->cursor.position >= 0 && b->end_step >= 0 &&
           b->n_skipped >= 0 && f->rank < b->plan.n_workers;
}

static void put_clock(fl_writer *w, const fl_clock_estimate *c)
{
    fl_put(w, c->known, 1);
    fl_put_i64(w, c->offset_ns);
    fl_put_i64(w, c->wall_offset_ns);
    fl_put_i64(w, c->round_trip_ns);
    fl_put_i64(w, c->drift_ppb);
    fl_put_i64(w, c->at_ns);
    fl_put_i64(w, c->error_ns);
}

static void put_body(fl_writer *w, const fl_agent_frame *f)
{
    switch (f->type) {
    case FL_AGENT_SPAWNED:
        fl_put_i64(w, f->spawned.pid);
        fl_put(w, (uint32_t)f->spawned.error, 4);
        fl_put(w, (uint32_t)f->spawned.gpu, 4);
        fl_put_text(w, f->spawned.gpu_name, FL_SURVEY_NAME_BYTES - 1);
        break;
    case FL_AGENT_EXITED:
        fl_put(w, (uint32_t)f->wait_status, 4);
        break;
    case FL_AGENT_LOOKED:
        fl_put(w, f->looked.is_known, 1);
        fl_put_i64(w, f->looked.process.cpu_us);
        put_threads(w, &f->looked.process.work);
        put_threads(w, &f->looked.process.link);
        break;
    case FL_AGENT_FLIGHT:
        fl_flight_put_shown(w, &f->flight);
        break;
    case FL_AGENT_READ:
        fl_flight_put_request(w, &f->read);
        break;
    case FL_AGENT_RECORDS:
        fl_flight_put_records(w, &f->records);
        break;
    case FL_AGENT_SPAWN:
        put_birth(w, &f->birth);
        break;
    case FL_AGENT_HOST:
        fl_put(w, (uint64_t)f->host.news, 1);
        fl_put_i64(w, f->host.grace_ms);
        fl_put_i64(w, f->host.silent_ms);
        fl_put(w, f->host.unfit, 1);
        fl_put_text(w, f->host.text, FL_HOST_WHY_MAX);
        fl_put_text(w, f->host.name, FL_HOST_TEXT - 1);
        fl_put_text(w, f->host.address, FL_HOST_TEXT - 1);
        fl_put(w, (uint32_t)f->host.n, 4);
        fl_put_text(w, f->host.kind.processor, FL_MACHINE_KIND_TEXT - 1);
        fl_put_text(w, f->host.kind.gpus, FL_MACHINE_KIND_TEXT - 1);
        put_clock(w, &f->host.clock);
        break;
    case FL_AGENT_RELEASE:
    case FL_AGENT_REFUSE:
        fl_put_text(w, f->text, FL_HOST_WHY_MAX);
        break;
    case FL_AGENT_END:
        fl_put(w, (uint64_t)f->ending, 1);
        break;
    case FL_AGENT_REACH:
        fl_put(w, f->reach.number, 8);
        fl_put_i64(w, f->reach.timeout_ms);
        break;
    case FL_AGENT_REACHED:
        fl_reach_put_answer(w, &f->reached);
        break;
    case FL_AGENT_APART:
        fl_put(w, (uint32_t)f->apart.from, 4);
        fl_put(w, f->apart.trial.port, 2);
        fl_put(w, f->apart.trial.by_other, 1);
        fl_put_text(w, f->apart.text, FL_HOST_WHY_MAX);
        break;
    case FL_AGENT_KILL:
    case FL_AGENT_LOOK:
    case FL_AGENT_HIDE:
    case FL_AGENT_SHARES:
        break;
    }
}

static bool get_gpu(fl_reader *r, fl_agent_frame *f)
{
    f->spawned.gpu = fl_get_i32(r);
    return fl_get_text(r, f->spawned.gpu_name, FL_SURVEY_NAME_BYTES - 1) && f->spawned.gpu >= 0 &&
           f->spawned.gpu < FL_SURVEY_DEVICES_MAX &&
           (f->spawned.gpu == 0 || f->spawned.gpu_name[0] != '\0');
}

/* Either a process, or the error for which it was not started. */
static bool get_spawned(fl_reader *r, fl_agent_frame *f)
{
    f->spawned.pid = fl_get_i64(r);
    f->spawned.error = fl_get_i32(r);
    return get_gpu(r, f) && f->spawned.pid >= 0 && f->spawned.error >= 0 &&
           (f->spawned.pid == 0) == (f->spawned.error != 0);
}

static bool get_looked(fl_reader *r, fl_agent_frame *f)
{
    bool good = fl_get_bool(r, &f->looked.is_known);
    f->looked.process.cpu_us = fl_get_i64(r);
    return get_threads(r, &f->looked.process.work) && get_threads(r, &f->looked.process.link) &&
           good && is_so_far(f->looked.process.cpu_us);
}

static bool get_clock(fl_reader *r, fl_agent_frame *f)
{
    fl_clock_estimate *c = &f->host.clock;
    bool good = fl_get_bool(r, &c->known);
    c->offset_ns = fl_get_i64(r);
    c->wall_offset_ns = fl_get_i64(r);
    c->round_trip_ns = fl_get_i64(r);
    c->drift_ppb = fl_get_i64(r);
    c->at_ns = fl_get_i64(r);
    c->error_ns = fl_get_i64(r);
    return good && c->known == (f->host.news == FL_HOST_NEWS_CLOCK) && c->round_trip_ns >= 0 &&
           c->error_ns >= 0;
}

static bool get_new_host(fl_reader *r, fl_agent_frame *f)
{
    bool good = fl_get_text(r, f->host.name, FL_HOST_TEXT - 1) &&
                fl_get_text(r, f->host.address, FL_HOST_TEXT - 1);
    f->host.n = fl_get_i32(r);
    good = fl_get_text(r, f->host.kind.processor, FL_MACHINE_KIND_TEXT - 1) && good;
    good = fl_get_text(r, f->host.kind.gpus, FL_MACHINE_KIND_TEXT - 1) && good;
    bool joined = f->host.news == FL_HOST_NEWS_JOINED;
    bool named = f->host.kind.processor[0] != '\0' || f->host.kind.gpus[0] != '\0';
    return good && (joined || !named) && (f->host.name[0] != '\0') == joined &&
           (f->host.n > 0) == joined && f->host.n >= 0 && f->host.n <= FL_MAX_WORKERS;
}

static bool get_host(fl_reader *r, fl_agent_frame *f)
{
    uint64_t news = fl_get(r, 1);
    f->host.news = (fl_host_news)news;
    f->host.grace_ms = fl_get_i64(r);
    f->host.silent_ms = fl_get_i64(r);
    return fl_get_bool(r, &f->host.unfit) && news < FL_HOST_NEWS_KINDS && f->host.grace_ms >= 0 &&
           f->host.grace_ms <= FL_HOST_GRACE_MAX_MS &&
           (f->host.grace_ms > 0) == (news == FL_HOST_NEWS_NOTICE) && f->host.silent_ms >= 0 &&
           ((f->host.silent_ms == 0 && !f->host.unfit) || news == FL_HOST_NEWS_LOST) &&
           fl_get_text(r, f->host.text, FL_HOST_WHY_MAX) && get_new_host(r, f) && get_clock(r, f);
}

static bool get_reach(fl_reader *r, fl_agent_frame *f)
{
    f->reach.number = fl_get(r, 8);
    f->reach.timeout_ms = fl_get_i64(r);
    return f->rank == 0 && f->incarnation == 0 && f->reach.number > 0 && f->reach.timeout_ms > 0 &&
           f->reach.timeout_ms <= FL_REACH_MS_MAX;
}

static bool get_apart(fl_reader *r, fl_agent_frame *f)
{
    f->apart.from = fl_get_i32(r);
    f->apart.trial.port = (uint16_t)fl_get(r, 2);
    return fl_get_bool(r, &f->apart.trial.by_other) && f->rank > 0 && f->incarnation == 0 &&
           f->apart.from >= 0 && f->apart.from < FL_MAX_WORKERS &&
           fl_get_text(r, f->apart.text, FL_HOST_WHY_MAX) && f->apart.text[0] != '\0';
}

static bool get_body(fl_reader *r, uint64_t type, fl_agent_frame *f)
{
    switch (type) {
    case FL_AGENT_SPAWN:
        return f->incarnation > 0 && get_birth(r, f);
    case FL_AGENT_KILL:
    case FL_AGENT_LOOK:
        return f->incarnation > 0;
    case FL_AGENT_END:
        f->ending = (fl_agent_ending)fl_get(r, 1);
        return f->rank == 0 && f->incarnation == 0 && f->ending < FL_AGENT_ENDINGS;
    case FL_AGENT_HIDE:
        return f->rank == 0 && f->incarnation == 0;
    case FL_AGENT_SPAWNED:
        return f->incarnation > 0 && get_spawned(r, f);
    case FL_AGENT_EXITED:
        f->wait_status = fl_get_i32(r);
        return f->incarnation > 0;
    case FL_AGENT_LOOKED:
        return f->incarnation > 0 && get_looked(r, f);
    case FL_AGENT_FLIGHT:
        return f->incarnation > 0 && fl_flight_get_shown(r, &f->flight);
    case FL_AGENT_READ:
        return f->incarnation > 0 && fl_flight_get_request(r, &f->read);
    case FL_AGENT_RECORDS:
        return f->incarnation > 0 && fl_flight_get_records(r, &f->records);
    case FL_AGENT_HOST:
        return f->incarnation == 0 && get_host(r, f);
    case FL_AGENT_SHARES:
        return f->incarnation == 0;
    case FL_AGENT_REFUSE:
        return f->rank == 0 && f->incarnation == 0 && fl_get_text(r, f->text, FL_HOST_WHY_MAX);
    case FL_AGENT_REACH:
        return get_reach(r, f);
    case FL_AGENT_REACHED:
        return f->incarnation == 0 && fl_reach_get_answer(r, &f->reached);
    case FL_AGENT_APART:
        return get_apart(r, f);
    case FL_AGENT_RELEASE:
        return f->incarnation == 0 && fl_get_text(r, f->text, FL_HOST_WHY_MAX);
    default:
        return false;
    }
}

/* ---- frames ---- */

size_t fl_agent_wire_put(const fl_agent_frame *frame, unsigned char out[FL_AGENT_FRAME_MAX])
{
    fl_writer w = {out};
    fl_put(&w, MAGIC, 4);
    fl_put(&w, VERSION, 2);
    fl_put(&w, (uint64_t)frame->type, 2);
    fl_put(&w, (uint32_t)frame->rank, 4);
    fl_put(&w, frame->incarnation, 4);
    put_body(&w, frame);
    return (size_t)(w.at - out);
}

fl_status fl_agent_wire_get(const unsigned char *bytes, size_t n, fl_agent_frame *out)
{
    fl_reader r = {bytes, n, false};
    uint64_t magic = fl_get(&r, 4), version = fl_get(&r, 2), type = fl_get(&r, 2);
    fl_agent_frame frame = {.rank = fl_get_i32(&r)};
    frame.incarnation = (uint32_t)fl_get(&r, 4);
    if (r.short_of_bytes) {
        return fl_fail(FL_EFORMAT,
                       "the header of a frame between controller and agent is cut: "
                       "%zu of %d bytes",
                       n, FL_AGENT_HEADER_BYTES);
    }
    if (magic != MAGIC || version != VERSION) {
        return fl_fail(FL_EFORMAT, "not a frame between controller and agent of version %d",
                       VERSION);
    }
    if (frame.rank < 0 || frame.rank >= FL_MAX_WORKERS) {
        return fl_fail(FL_EFORMAT, "a frame about rank %d, allowed are 0 to %d", frame.rank,
                       FL_MAX_WORKERS - 1);
    }
    if (!get_body(&r, type, &frame) || r.short_of_bytes || r.left != 0) {
        return fl_fail(FL_EFORMAT, "a frame of type %d and %zu bytes makes no sense", (int)type, n);
    }
    frame.type = (fl_agent_type)type;
    *out = frame;
    return FL_OK;
}
