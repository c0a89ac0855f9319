/* What the agent of another host sends of the flight recorders of its workers, with which the
 * controller shares no memory:
 *
 *     shown     several times a second: the operations that each thread is in, and the last ones
 *               that it has left. The controller keeps them in a copy of the recorders
 *     records   on request, for a trace: the operations of some steps that each thread has left,
 *               from a cursor on. One request is one answer of limited size, and the same request
 *               gets the same answer again as long as the recorder remembers
 *
 * Times are fl_now_ns of that host. */
#ifndef FL_CONTROL_AGENT_MEASURE_FLIGHT_COPY_H
#define FL_CONTROL_AGENT_MEASURE_FLIGHT_COPY_H

#include "control/link/wire/bytes.h"
#include "device/flight/flight.h"

enum {
    FL_SHOWN_RECENT = 16,  /* finished operations of a thread, at most */
    FL_RECORDS_MAX = 320,  /* operations of one answer; */
    FL_RECORDS_PIECE = 64, /* there is room for as many when an answer has all of them */
};

/* In place of a cursor: from the oldest operation that is remembered. */
#define FL_RECORDS_OLDEST UINT64_MAX

/* Times are from 0 to this, so that differences fit. */
#define FL_FLIGHT_TIME_MAX_NS (INT64_MAX / 4)

typedef struct fl_shown_track {
    bool has_changed;    /* since it was shown last; otherwise the rest is not valid */
    fl_flight_view view; /* `last` is not carried */
    int n_recent;
    fl_flight_entry recent[FL_SHOWN_RECENT]; /* [n_recent] left since then, the oldest first */
} fl_shown_track;

typedef struct fl_flight_shown {
    int64_t now_ns; /* when it was made */
    int64_t step;
    fl_shown_track track[FL_FLIGHT_TRACKS];
} fl_flight_shown;

/* What was shown last of a worker; cleared: nothing. */
typedef struct fl_shown_until {
    uint64_t n_changes[FL_FLIGHT_TRACKS];
    uint64_t cursor[FL_FLIGHT_TRACKS];
} fl_shown_until;

typedef struct fl_records_request {
    uint32_t number; /* the answer has the same */
    int64_t first_step, n_steps;
    uint64_t cursor[FL_FLIGHT_TRACKS];
} fl_records_request;

typedef struct fl_flight_records {
    uint32_t number;
    int64_t step;                      /* that the worker was at before the operations were read */
    bool all;                          /* there are no more for now */
    int64_t n_lost;                    /* overwritten before they were read */
    uint64_t cursor[FL_FLIGHT_TRACKS]; /* for the next request */
    fl_flight_role role[FL_FLIGHT_TRACKS];
    int n[FL_FLIGHT_TRACKS];
    fl_flight_entry entry[FL_RECORDS_MAX]; /* those of track 0, then those of track 1, ... */
} fl_flight_records;

/* ---- on the other host ---- */

/* What has changed since *until, which goes on; false: nothing. has_ended: the process is dead, and
 * may have died in the middle of a change. */
bool fl_flight_shown_make(const fl_flight *flight, int rank, bool has_ended, fl_shown_until *until,
                          fl_flight_shown *out);

void fl_flight_records_make(const fl_flight *flight, int rank, const fl_records_request *request,
                            fl_flight_records *out);

/* ---- on the head ---- */

/* Into the copy of this worker's recorder. offset_ns: fl_now_ns of that host minus that of this
 * one. */
void fl_flight_shown_take(fl_flight *copy, int rank, const fl_flight_shown *shown,
                          int64_t offset_ns);

/* ---- as bytes: flight_wire.c ---- */

void fl_flight_put_shown(fl_writer *w, const fl_flight_shown *shown);
void fl_flight_put_request(fl_writer *w, const fl_records_request *request);
void fl_flight_put_records(fl_writer *w, const fl_flight_records *records);

/* False for anything that the functions above did not write. */
bool fl_flight_get_shown(fl_reader *r, fl_flight_shown *shown);
bool fl_flight_get_request(fl_reader *r, fl_records_request *request);
bool fl_flight_get_records(fl_reader *r, fl_flight_records *records);

#endif
