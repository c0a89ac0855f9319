#include "control/agent/measure/flight_copy.h"

#include "device/system/clock.h"

enum { MARGIN = 256 }; /* operations that the writer may leave while the oldest ones are read */

/* ---- shown ---- */

static bool show_track(const fl_flight *flight, int rank, int track, bool has_ended,
                       fl_shown_until *until, fl_shown_track *out)
{
    uint64_t lost = 0, *cursor = &until->cursor[track];
    *out = (fl_shown_track){.has_changed = false};
    fl_flight_look(flight, rank, track, &out->view);
    if ((!out->view.whole && !has_ended) || out->view.n_changes == until->n_changes[track]) {
        return false;
    }
    until->n_changes[track] = out->view.n_changes;
    out->view.n_changes &= ~UINT64_C(1);
    uint64_t written = fl_flight_written(flight, rank, track);
    *cursor = written > *cursor + FL_SHOWN_RECENT ? written - FL_SHOWN_RECENT : *cursor;
    out->n_recent =
        fl_flight_read(flight, rank, track, cursor, out->recent, FL_SHOWN_RECENT, &lost);
    out->has_changed = true;
    return true;
}

bool fl_flight_shown_make(const fl_flight *flight, int rank, bool has_ended, fl_shown_until *until,
                          fl_flight_shown *out)
{
    bool any = false;
    out->step = fl_flight_step_of(flight, rank);
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        any = show_track(flight, rank, track, has_ended, until, &out->track[track]) || any;
    }
    out->now_ns = fl_now_ns();
    return any;
}

void fl_flight_shown_take(fl_flight *copy, int rank, const fl_flight_shown *shown,
                          int64_t offset_ns)
{
    for (int i = 0; i < FL_FLIGHT_TRACKS; i++) {
        fl_shown_track track = shown->track[i];
        if (!track.has_changed) {
            continue;
        }
        for (int k = 0; k < track.view.depth; k++) {
            track.view.open[k].entered_ns -= offset_ns;
        }
        for (int k = 0; k < track.n_recent; k++) {
            track.recent[k].entered_ns -= offset_ns;
            track.recent[k].left_ns -= offset_ns;
        }
        fl_flight_append(copy, rank, i, track.recent, track.n_recent);
        fl_flight_show(copy, rank, i, &track.view);
    }
    fl_flight_show_step(copy, rank, shown->step);
}

/* ---- records ---- */

/* Where reading begins. */
static uint64_t begin_of(const fl_flight *flight, int rank, int track, uint64_t cursor)
{
    uint64_t written = fl_flight_written(flight, rank, track);
    uint64_t kept = FL_FLIGHT_RING - MARGIN;
    if (cursor == FL_RECORDS_OLDEST) {
        return written > kept ? written - kept : 0;
    }
    return cursor < written ? cursor : written; /* beyond: of another process */
}

static void read_track(const fl_flight *flight, int rank, int track,
                       const fl_records_request *request, int *n, fl_flight_records *out)
{
    fl_flight_view view;
    fl_flight_entry piece[FL_RECORDS_PIECE];
    uint64_t lost = 0, *cursor = &out->cursor[track];
    int64_t end = request->first_step + request->n_steps;
    bool is_first = request->cursor[track] == FL_RECORDS_OLDEST;
    int n_read = 1;
    fl_flight_look(flight, rank, track, &view);
    out->role[track] = view.role;
    *cursor = request->cursor[track];
    if (*n + FL_RECORDS_PIECE > FL_RECORDS_MAX) {
        out->all = false;
        return;
    }
    *cursor = begin_of(flight, rank, track, *cursor);
    is_first = is_first && *cursor > 0;
    while (n_read > 0 && *n + FL_RECORDS_PIECE <= FL_RECORDS_MAX) {
        n_read = fl_flight_read(flight, rank, track, cursor, piece, FL_RECORDS_PIECE, &lost);
        for (int i = 0; i < n_read; i++) {
            bool is_asked = piece[i].step >= request->first_step && piece[i].step < end;
            if (is_first && piece[i].step > request->first_step) {
                lost++; /* at least: the steps began before what is remembered */
            }
            is_first = false;
            if (is_asked && piece[i].kind != FL_FLIGHT_NONE) {
                out->entry[(*n)++] = piece[i];
                out->n[track]++;
            }
        }
    }
    out->all = out->all && n_read == 0;
    out->n_lost += (int64_t)lost;
}

void fl_flight_records_make(const fl_flight *flight, int rank, const fl_records_request *request,
                            fl_flight_records *out)
{
    int n = 0;
    /* The step first: every operation that ended before it is then among those that are read. */
    *out = (fl_flight_records){
        .number = request->number, .step = fl_flight_step_of(flight, rank), .all = true};
    for (int track = 0; track < FL_FLIGHT_TRACKS; track++) {
        read_track(flight, rank, track, request, &n, out);
    }
}
