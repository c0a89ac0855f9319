#include "control/link/wire/wire.h"

#include "control/link/wire/bytes.h"
#include "control/link/wire/ranges.h"
#include "control/link/wire/wire_cache.h"
#include "control/link/wire/wire_checkpoint.h"
#include "control/link/wire/wire_elastic.h"
#include "control/link/wire/wire_graphs.h"
#include "control/link/wire/wire_nonfinite.h"
#include "control/link/wire/wire_recovery.h"
#include "control/link/wire/wire_reports.h"
#include "control/link/wire/wire_setting.h"

#include <string.h>

enum { MAGIC = 0x4b4c4c46 /* "FLLK" */, VERSION = 1 };

/* ---- bodies ---- */

static size_t body_size(const fl_wire_message *f)
{
    switch (f->type) {
    case FL_WIRE_HELLO:
    case FL_WIRE_READY:
    case FL_WIRE_ALIVE:
    case FL_WIRE_BREAK:
        return 8;
    case FL_WIRE_HEARTBEAT:
        return 8 + FL_WIRE_MEMORY_BYTES + 4 +
               strnlen(f->heartbeat.operation, FL_WIRE_OPERATION_MAX) + FL_WIRE_UNANSWERED_BYTES;
    case FL_WIRE_STEP:
        return fl_wire_step_size(&f->step);
    case FL_WIRE_TIME:
        return FL_WIRE_TIME_BYTES;
    case FL_WIRE_EVAL:
        return fl_wire_eval_size(&f->eval);
    case FL_WIRE_PASS:
        return fl_wire_pass_size(&f->pass);
    case FL_WIRE_LEDGER:
        return fl_wire_ledger_size(&f->ledger);
    case FL_WIRE_FAILED:
        return 4 + 4 + strnlen(f->failed.text, FL_WIRE_TEXT_MAX);
    case FL_WIRE_PREPARED:
        return fl_wire_prepared_size(&f->prepared);
    case FL_WIRE_TRANSITION:
        return FL_WIRE_TRANSITION_BYTES;
    case FL_WIRE_NORMS:
        return fl_wire_norms_size(&f->norms);
    case FL_WIRE_SETTING_DONE:
        return FL_WIRE_SETTING_DONE_BYTES;
    case FL_WIRE_CACHE:
        return FL_WIRE_CACHE_BYTES;
    case FL_WIRE_COMM:
        return fl_wire_comm_size(&f->comm);
    case FL_WIRE_GRAPHS:
        return fl_wire_graphs_size(&f->graphs);
    case FL_WIRE_CACHE_TIERS:
        return fl_wire_cache_tiers_size(&f->cache_tiers);
    case FL_WIRE_NONFINITE:
        return fl_wire_nonfinite_size(&f->nonfinite);
    case FL_WIRE_HASHES:
    case FL_WIRE_SAVED:
        return fl_wire_hashes_size(&f->hashes);
    case FL_WIRE_HASHES_FAILED:
        return 8 + 4;
    case FL_WIRE_CHECKPOINT_FILE:
        return FL_WIRE_CHECKPOINT_FILE_BYTES;
    case FL_WIRE_CHECKPOINT_PART:
        return fl_wire_checkpoint_part_size(&f->checkpoint_part);
    case FL_WIRE_SNAPSHOT:
        return FL_WIRE_SNAPSHOT_BYTES;
    case FL_WIRE_COMMAND:
        return fl_wire_command_size(&f->command);
    case FL_WIRE_BROKEN:
        return fl_wire_broken_size(&f->broken);
    case FL_WIRE_REGROUP:
        return fl_wire_regroup_size(&f->regroup);
    case FL_WIRE_ABORT:
        return 4;
    case FL_WIRE_COUNTS:
        return FL_WIRE_COUNTS_BYTES;
    case FL_WIRE_DONE:
    case FL_WIRE_STOPPING:
    case FL_WIRE_TAKEN:
    case FL_WIRE_WAKE:
        break;
    }
    return 0;
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

bool fl_wire_get_status(fl_reader *r, fl_status *status)
{
    int32_t value = fl_get_i32(r);
    *status = (fl_status)value;
    return known_status(value);
}

static void put_counts(fl_writer *w, const fl_wire_counts *counts)
{
    fl_put_i64(w, counts->n_sent);
    fl_put_i64(w, counts->n_taken);
    fl_put(w, counts->round, 4);
    fl_put(w, counts->lacks, 4);
    fl_put(w, counts->numbered, 1);
}

static bool get_counts(fl_reader *r, fl_wire_counts *counts)
{
    counts->n_sent = fl_get_i64(r);
    counts->n_taken = fl_get_i64(r);
    counts->round = (uint32_t)fl_get(r, 4);
    counts->lacks = (uint32_t)fl_get(r, 4);
    uint64_t numbered = fl_get(r, 1);
    counts->numbered = numbered != 0;
    return counts->n_sent >= counts->numbered && counts->n_taken >= 0 && counts->round > 0 &&
           numbered <= 1;
}

static void put_body(fl_writer *w, const fl_wire_message *f)
{
    switch (f->type) {
    case FL_WIRE_HELLO:
        fl_put_i64(w, f->pid);
        break;
    case FL_WIRE_HEARTBEAT:
        fl_put_i64(w, f->heartbeat.steps);
        fl_wire_put_memory(w, &f->heartbeat.memory);
        fl_put_text(w, f->heartbeat.operation, FL_WIRE_OPERATION_MAX);
        fl_wire_put_unanswered(w, &f->heartbeat.unanswered);
        break;
    case FL_WIRE_READY:
        fl_put_i64(w, f->memory_peak_bytes);
        break;
    case FL_WIRE_STEP:
        fl_wire_put_step(w, &f->step);
        break;
    case FL_WIRE_TIME:
        fl_wire_put_time(w, &f->time);
        break;
    case FL_WIRE_EVAL:
        fl_wire_put_eval(w, &f->eval);
        break;
    case FL_WIRE_PASS:
        fl_wire_put_pass(w, &f->pass);
        break;
    case FL_WIRE_LEDGER:
        fl_wire_put_ledger(w, &f->ledger);
        break;
    case FL_WIRE_FAILED:
        fl_put(w, (uint32_t)f->failed.status, 4);
        fl_put_text(w, f->failed.text, FL_WIRE_TEXT_MAX);
        break;
    case FL_WIRE_COMMAND:
        fl_wire_put_command(w, &f->command);
        break;
    case FL_WIRE_PREPARED:
        fl_wire_put_prepared(w, &f->prepared);
        break;
    case FL_WIRE_TRANSITION:
        fl_wire_put_transition(w, &f->transition);
        break;
    case FL_WIRE_NORMS:
        fl_wire_put_norms(w, &f->norms);
        break;
    case FL_WIRE_SETTING_DONE:
        fl_wire_put_setting_done(w, &f->setting_done);
        break;
    case FL_WIRE_CACHE:
        fl_wire_put_cache(w, &f->cache);
        break;
    case FL_WIRE_COMM:
        fl_wire_put_comm(w, &f->comm);
        break;
    case FL_WIRE_GRAPHS:
        fl_wire_put_graphs(w, &f->graphs);
        break;
    case FL_WIRE_CACHE_TIERS:
        fl_wire_put_cache_tiers(w, &f->cache_tiers);
        break;
    case FL_WIRE_NONFINITE:
        fl_wire_put_nonfinite(w, &f->nonfinite);
        break;
    case FL_WIRE_HASHES:
    case FL_WIRE_SAVED:
        fl_wire_put_hashes(w, &f->hashes);
        break;
    case FL_WIRE_HASHES_FAILED:
        fl_put_i64(w, f->hashes_failed.step);
        fl_put(w, (uint32_t)f->hashes_failed.error, 4);
        break;
    case FL_WIRE_CHECKPOINT_FILE:
        fl_wire_put_checkpoint_file(w, &f->checkpoint_file);
        break;
    case FL_WIRE_CHECKPOINT_PART:
        fl_wire_put_checkpoint_part(w, &f->checkpoint_part);
        break;
    case FL_WIRE_SNAPSHOT:
        fl_wire_put_snapshot(w, &f->snapshot);
        break;
    case FL_WIRE_BROKEN:
        fl_wire_put_broken(w, &f->broken);
        break;
    case FL_WIRE_BREAK:
        fl_put(w, f->break_order.serial, 4);
        fl_put(w, f->break_order.until, 4);
        break;
    case FL_WIRE_REGROUP:
        fl_wire_put_regroup(w, &f->regroup);
        break;
    case FL_WIRE_ALIVE:
        fl_put_i64(w, f->n_counted);
        break;
    case FL_WIRE_ABORT:
        fl_put(w, (uint32_t)f->why, 4);
        break;
    case FL_WIRE_COUNTS:
        put_counts(w, &f->counts);
        break;
    case FL_WIRE_DONE:
    case FL_WIRE_STOPPING:
    case FL_WIRE_TAKEN:
    case FL_WIRE_WAKE:
        break;
    }
}

/* False when the type is unknown or a value is out of range. */
static bool get_body(fl_reader *r, fl_wire_message *f)
{
    switch (f->type) {
    case FL_WIRE_HELLO:
        f->pid = fl_get_i64(r);
        return f->pid > 0;
    case FL_WIRE_HEARTBEAT:
        f->heartbeat.steps = fl_get_i64(r);
        return fl_wire_get_memory(r, &f->heartbeat.memory) && fl_wire_is_step(f->heartbeat.steps) &&
               fl_get_text(r, f->heartbeat.operation, FL_WIRE_OPERATION_MAX) &&
               fl_wire_get_unanswered(r, &f->heartbeat.unanswered);
    case FL_WIRE_READY:
        f->memory_peak_bytes = fl_get_i64(r);
        return fl_wire_is_bytes(f->memory_peak_bytes);
    case FL_WIRE_STEP:
        return fl_wire_get_step(r, f->generation, &f->step);
    case FL_WIRE_TIME:
        return fl_wire_get_time(r, &f->time);
    case FL_WIRE_EVAL:
        return fl_wire_get_eval(r, &f->eval);
    case FL_WIRE_PASS:
        return fl_wire_get_pass(r, &f->pass);
    case FL_WIRE_LEDGER:
        return fl_wire_get_ledger(r, &f->ledger);
    case FL_WIRE_FAILED:
        return fl_wire_get_status(r, &f->failed.status) &&
               fl_get_text(r, f->failed.text, FL_WIRE_TEXT_MAX);
    case FL_WIRE_COMMAND:
        return fl_wire_get_command(r, &f->command);
    case FL_WIRE_PREPARED:
        return fl_wire_get_prepared(r, f->generation, &f->prepared);
    case FL_WIRE_TRANSITION:
        return fl_wire_get_transition(r, f->generation, &f->transition);
    case FL_WIRE_NORMS:
        return fl_wire_get_norms(r, &f->norms);
    case FL_WIRE_SETTING_DONE:
        return fl_wire_get_setting_done(r, &f->setting_done);
    case FL_WIRE_CACHE:
        return fl_wire_get_cache(r, &f->cache);
    case FL_WIRE_COMM:
        return fl_wire_get_comm(r, f->generation, &f->comm);
    case FL_WIRE_GRAPHS:
        return fl_wire_get_graphs(r, f->generation, &f->graphs);
    case FL_WIRE_CACHE_TIERS:
        return fl_wire_get_cache_tiers(r, &f->cache_tiers);
    case FL_WIRE_NONFINITE:
        return fl_wire_get_nonfinite(r, &f->nonfinite);
    case FL_WIRE_HASHES:
    case FL_WIRE_SAVED:
        return fl_wire_get_hashes(r, &f->hashes);
    case FL_WIRE_HASHES_FAILED:
        f->hashes_failed.step = fl_get_i64(r);
        f->hashes_failed.error = fl_get_i32(r);
        return fl_wire_is_step(f->hashes_failed.step) && f->hashes_failed.error > 0;
    case FL_WIRE_CHECKPOINT_FILE:
        return fl_wire_get_checkpoint_file(r, f->generation, &f->checkpoint_file);
    case FL_WIRE_CHECKPOINT_PART:
        return fl_wire_get_checkpoint_part(r, f->generation, &f->checkpoint_part);
    case FL_WIRE_SNAPSHOT:
        return fl_wire_get_snapshot(r, f->generation, &f->snapshot);
    case FL_WIRE_BROKEN:
        return fl_wire_get_broken(r, &f->broken);
    case FL_WIRE_BREAK:
        f->break_order.serial = (uint32_t)fl_get(r, 4);
        f->break_order.until = (uint32_t)fl_get(r, 4);
        return f->break_order.serial > 0;
    case FL_WIRE_REGROUP:
        return fl_wire_get_regroup(r, &f->regroup);
    case FL_WIRE_ALIVE:
        f->n_counted = fl_get_i64(r);
        return fl_wire_is_step(f->n_counted);
    case FL_WIRE_ABORT:
        return fl_wire_get_status(r, &f->why);
    case FL_WIRE_COUNTS:
        return get_counts(r, &f->counts);
    case FL_WIRE_DONE:
    case FL_WIRE_STOPPING:
    case FL_WIRE_TAKEN:
    case FL_WIRE_WAKE:
        return true;
    }
    return false;
}

/* ---- frames ---- */

size_t fl_wire_size(const fl_wire_message *frame)
{
    return FL_WIRE_HEADER_BYTES + body_size(frame);
}

void fl_wire_put(const fl_wire_message *frame, unsigned char *out)
{
    fl_writer w;
    w.at = out;
    fl_put(&w, MAGIC, 4);
    fl_put(&w, VERSION, 2);
    fl_put(&w, (uint64_t)frame->type, 2);
    fl_put(&w, (uint32_t)frame->rank, 4);
    fl_put(&w, frame->generation, 4);
    fl_put_i64(&w, frame->at_us);
    fl_put(&w, body_size(frame), 4);
    put_body(&w, frame);
}

fl_status fl_wire_next(const unsigned char **at, size_t *left, fl_wire_message *out)
{
    fl_reader r = {*at, *left, false};
    uint64_t magic = fl_get(&r, 4), version = fl_get(&r, 2), type = fl_get(&r, 2);
    int32_t rank = fl_get_i32(&r);
    uint32_t generation = (uint32_t)fl_get(&r, 4);
    int64_t at_us = fl_get_i64(&r);
    size_t size_bytes = fl_get(&r, 4);
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
    if (at_us < 0 || at_us > FL_WIRE_CLOCK_MAX) {
        return fl_fail(FL_EFORMAT, "a frame of the time %lld us, allowed are 0 to %lld",
                       (long long)at_us, (long long)FL_WIRE_CLOCK_MAX);
    }
    if (size_bytes > FL_WIRE_BODY_MAX || size_bytes > r.left) {
        return fl_fail(FL_EFORMAT, "a frame of type %d (%s) is cut: %zu of %zu bytes", (int)type,
                       fl_wire_type_text((fl_wire_type)type), r.left, size_bytes);
    }
    fl_reader body = {r.at, size_bytes, false};
    out->type = (fl_wire_type)type;
    out->rank = rank;
    out->generation = generation;
    out->at_us = at_us;
    if (!get_body(&body, out) || body.short_of_bytes || body.left != 0) {
        return fl_fail(FL_EFORMAT,
                       "a frame of type %d (%s) with %zu bytes has another length, or a value "
                       "that is out of range",
                       (int)type, fl_wire_type_text((fl_wire_type)type), size_bytes);
    }
    *at = r.at + size_bytes;
    *left = r.left - size_bytes;
    return FL_OK;
}

fl_status fl_wire_read_counts(const unsigned char *bytes, size_t n, fl_wire_counts *out)
{
    fl_wire_message frame;
    FL_TRY(fl_wire_next(&bytes, &n, &frame));
    if (frame.type != FL_WIRE_COUNTS || n > 0) {
        return fl_fail(FL_EFORMAT, "a message without counts");
    }
    *out = frame.counts;
    return FL_OK;
}

void fl_wire_ids(const fl_wire_message *frame, int64_t *ids)
{
    fl_reader r = {frame->ledger.wire, (size_t)frame->ledger.n * 8, false};
    for (uint32_t i = 0; i < frame->ledger.n; i++) {
        ids[i] = fl_get_i64(&r);
    }
}

const char *fl_wire_type_text(fl_wire_type type)
{
    switch (type) {
    case FL_WIRE_HELLO:
        return "hello";
    case FL_WIRE_HEARTBEAT:
        return "heartbeat";
    case FL_WIRE_READY:
        return "ready";
    case FL_WIRE_STEP:
        return "step";
    case FL_WIRE_TIME:
        return "time";
    case FL_WIRE_EVAL:
        return "eval";
    case FL_WIRE_PASS:
        return "pass";
    case FL_WIRE_LEDGER:
        return "ledger";
    case FL_WIRE_FAILED:
        return "failed";
    case FL_WIRE_DONE:
        return "done";
    case FL_WIRE_ALIVE:
        return "alive";
    case FL_WIRE_STOPPING:
        return "stopping";
    case FL_WIRE_TAKEN:
        return "taken";
    case FL_WIRE_COMMAND:
        return "command";
    case FL_WIRE_ABORT:
        return "abort";
    case FL_WIRE_PREPARED:
        return "prepared";
    case FL_WIRE_TRANSITION:
        return "transition";
    case FL_WIRE_NORMS:
        return "norms";
    case FL_WIRE_SETTING_DONE:
        return "setting";
    case FL_WIRE_CACHE:
        return "cache";
    case FL_WIRE_COMM:
        return "communicators";
    case FL_WIRE_GRAPHS:
        return "graphs";
    case FL_WIRE_CACHE_TIERS:
        return "cache tiers";
    case FL_WIRE_NONFINITE:
        return "nonfinite";
    case FL_WIRE_HASHES:
        return "hashes of weights";
    case FL_WIRE_SAVED:
        return "saved layers";
    case FL_WIRE_HASHES_FAILED:
        return "hashes failed";
    case FL_WIRE_CHECKPOINT_FILE:
        return "checkpoint file";
    case FL_WIRE_CHECKPOINT_PART:
        return "checkpoint part";
    case FL_WIRE_SNAPSHOT:
        return "snapshot";
    case FL_WIRE_WAKE:
        return "wake";
    case FL_WIRE_BROKEN:
        return "broken";
    case FL_WIRE_BREAK:
        return "break";
    case FL_WIRE_REGROUP:
        return "regroup";
    case FL_WIRE_COUNTS:
        return "counts";
    }
    return "unknown";
}
