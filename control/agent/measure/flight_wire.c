/* Operations as bytes: of fixed size, and checked one by one, because another host has sent them.
 */
#include "control/agent/measure/flight_copy.h"

#include <frostline/plan.h>

/* ---- one operation ---- */

static void put_entry(fl_writer *w, const fl_flight_entry *e)
{
    fl_put(w, (uint64_t)e->kind, 1);
    fl_put(w, (uint64_t)e->depth, 1);
    fl_put(w, e->generation, 4);
    fl_put_i64(w, e->step);
    fl_put(w, (uint32_t)e->micro_batch, 4);
    fl_put(w, (uint32_t)e->item, 4);
    fl_put(w, (uint32_t)e->peer, 4);
    fl_put_i64(w, e->bytes);
    fl_put_i64(w, e->entered_ns);
    fl_put_i64(w, e->left_ns);
}

static bool is_time(int64_t ns)
{
    return ns >= 0 && ns <= FL_FLIGHT_TIME_MAX_NS;
}

static bool get_entry(fl_reader *r, fl_flight_entry *e)
{
    uint64_t kind = fl_get(r, 1), depth = fl_get(r, 1);
    *e = (fl_flight_entry){.kind = (fl_flight_kind)kind, .depth = (int)depth};
    e->generation = (uint32_t)fl_get(r, 4);
    e->step = fl_get_i64(r);
    e->micro_batch = fl_get_i32(r);
    e->item = fl_get_i32(r);
    e->peer = fl_get_i32(r);
    e->bytes = fl_get_i64(r);
    e->entered_ns = fl_get_i64(r);
    e->left_ns = fl_get_i64(r);
    return kind < FL_FLIGHT_KINDS && depth < FL_FLIGHT_DEPTH && e->step >= 0 &&
           e->step <= INT64_MAX / 2 && e->micro_batch >= -1 && e->item >= -1 && e->peer >= -1 &&
           e->peer < FL_MAX_WORKERS && e->bytes >= 0 && e->bytes <= INT64_MAX / 2 &&
           is_time(e->entered_ns) && is_time(e->left_ns);
}

static bool get_left(fl_reader *r, fl_flight_entry *e)
{
    return get_entry(r, e) && e->left_ns >= e->entered_ns;
}

static bool get_role(fl_reader *r, fl_flight_role *role)
{
    uint64_t value = fl_get(r, 1);
    *role = (fl_flight_role)value;
    return value < FL_FLIGHT_ROLES;
}

/* ---- shown ---- */

static void put_track(fl_writer *w, const fl_shown_track *t)
{
    fl_put(w, (uint64_t)t->view.role, 1);
    fl_put(w, (uint64_t)t->view.depth, 1);
    fl_put(w, (uint64_t)t->n_recent, 1);
    fl_put(w, t->view.n_changes, 8);
    for (int i = 0; i < t->view.depth; i++) {
        put_entry(w, &t->view.open[i]);
    }
    for (int i = 0; i < t->n_recent; i++) {
        put_entry(w, &t->recent[i]);
    }
}

static bool get_track(fl_reader *r, fl_shown_track *t)
{
    bool good = get_role(r, &t->view.role);
    uint64_t depth = fl_get(r, 1), n_recent = fl_get(r, 1);
    t->view.n_changes = fl_get(r, 8);
    if (!good || depth > FL_FLIGHT_DEPTH || n_recent > FL_SHOWN_RECENT ||
        t->view.n_changes % 2 != 0) {
        return false;
    }
    t->view.whole = t->has_changed = true;
    t->view.depth = (int)depth;
    t->n_recent = (int)n_recent;
    for (int i = 0; i < t->view.depth; i++) {
        good = get_entry(r, &t->view.open[i]) && t->view.open[i].left_ns == 0 && good;
    }
    for (int i = 0; i < t->n_recent; i++) {
        good = get_left(r, &t->recent[i]) && good;
    }
    return good;
}

void fl_flight_put_shown(fl_writer *w, const fl_flight_shown *shown)
{
    uint64_t changed = 0;
    fl_put_i64(w, shown->now_ns);
    fl_put_i64(w, shown->step);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        changed |= (uint64_t)shown->track[i].has_changed << i;
    }
    fl_put(w, changed, 1);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        if (shown->track[i].has_changed) {
            put_track(w, &shown->track[i]);
        }
    }
}

bool fl_flight_get_shown(fl_reader *r, fl_flight_shown *shown)
{
    shown->now_ns = fl_get_i64(r);
    shown->step = fl_get_i64(r);
    uint64_t changed = fl_get(r, 1);
    bool good = is_time(shown->now_ns) && shown->step >= 0 && changed >> FL_FLIGHT_TRACKS == 0;
    for (int i = 0; i < FL_FLIGHT_TRACKS && good; i++) {
        shown->track[i] = (fl_shown_track){.has_changed = false};
        good = (changed >> i & 1) == 0 || get_track(r, &shown->track[i]);
    }
    return good;
}

/* ---- records ---- */

void fl_flight_put_request(fl_writer *w, const fl_records_request *request)
{
    fl_put(w, request->number, 4);
    fl_put_i64(w, request->first_step);
    fl_put_i64(w, request->n_steps);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        fl_put(w, request->cursor[i], 8);
    }
}

bool fl_flight_get_request(fl_reader *r, fl_records_request *request)
{
    request->number = (uint32_t)fl_get(r, 4);
    request->first_step = fl_get_i64(r);
    request->n_steps = fl_get_i64(r);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        request->cursor[i] = fl_get(r, 8);
    }
    return request->first_step >= 0 && request->first_step <= INT64_MAX / 2 &&
           request->n_steps >= 1 && request->n_steps <= INT64_MAX / 2;
}

void fl_flight_put_records(fl_writer *w, const fl_flight_records *records)
{
    const fl_flight_entry *e = records->entry;
    fl_put(w, records->number, 4);
    fl_put_i64(w, records->step);
    fl_put(w, records->all, 1);
    fl_put_i64(w, records->n_lost);
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        fl_put(w, records->cursor[i], 8);
        fl_put(w, (uint64_t)records->role[i], 1);
        fl_put(w, (uint64_t)records->n[i], 2);
        for (int k = 0; k < records->n[i]; k++) {
            put_entry(w, e++);
        }
    }
}

bool fl_flight_get_records(fl_reader *r, fl_flight_records *records)
{
    int n = 0;
    records->number = (uint32_t)fl_get(r, 4);
    records->step = fl_get_i64(r);
    bool good = fl_get_bool(r, &records->all);
    records->n_lost = fl_get_i64(r);
    good = good && records->step >= 0 && records->n_lost >= 0 && records->n_lost <= INT64_MAX / 4;
    for (int i = 0; i < FL_FLIGHT_TRACKS && good; i++) {
        records->cursor[i] = fl_get(r, 8);
        good = get_role(r, &records->role[i]);
        records->n[i] = (int)fl_get(r, 2);
        good = good && records->n[i] <= FL_RECORDS_MAX - n;
        for (int k = 0; k < records->n[i] && good; k++) {
            good =
                get_left(r, &records->entry[n++]) && records->entry[n - 1].kind != FL_FLIGHT_NONE;
        }
    }
    /* One that is not full has all of them: else it could be asked for ever. */
    return good && (records->all || n > FL_RECORDS_MAX - FL_RECORDS_PIECE);
}
