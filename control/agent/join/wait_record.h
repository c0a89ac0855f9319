/* The record of a wait for hosts, in the run directory: for clients, because the run answers nobody
 * until all hosts have joined.
 *
 *     waiting.txt ①  for whom the head waits, since when, for how long; or what hosts measure
 *     waiting.stop ②  the same file, once a client has asked the head to end the wait
 *
 * A client renames ① to ②, which fails once the wait is over: no request outlasts its wait. The
 * head removes both when the wait ends. A head that was killed leaves them, so they count only
 * while a process holds the run. */
#ifndef FL_CONTROL_AGENT_JOIN_WAIT_RECORD_H
#define FL_CONTROL_AGENT_JOIN_WAIT_RECORD_H

#include "control/state/hosts/hosts.h"

#include <stdbool.h>
#include <stdint.h>

#define FL_WAIT_FILE "waiting.txt"
#define FL_WAIT_STOP_FILE "waiting.stop"

enum { FL_WAIT_TEXT = 700 };

/* What the head has recorded so far. All zeros: nothing. */
typedef struct fl_wait_record {
    bool any;
    bool awaited[FL_MAX_WORKERS];
    int64_t since_s; /* the time of day at which the wait began */
} fl_wait_record;

/* Record that the head waits for these hosts, limit_ms in all; none of them: remove the record. It
 * is written only when they have changed. A record that cannot be written is left out.
 *   awaited  [hosts->n] */
void fl_wait_record_note(fl_wait_record *record, int dir_fd, const fl_hosts *hosts,
                         const bool *awaited, int64_t limit_ms);

/* Record that hosts measure `what`, in the place of hosts for which the head waits. */
void fl_wait_record_measures(fl_wait_record *record, int dir_fd, const char *what);

/* Remove the record and the request to end the wait. */
void fl_wait_record_clear(int dir_fd);

/* Whether a client has asked the head to end the wait. */
bool fl_wait_record_is_stopped(int dir_fd);

/* ---- clients ---- */

/* "waits for hosts b (10.0.0.2), c (10.0.0.3) to join, for 12 s, 588 s more at most", or "measures
 * the links between hosts, for 3 s", of the run in the directory `path`; "" without a record.
 * Returns text. */
const char *fl_wait_record_text(const char *path, char text[FL_WAIT_TEXT]);

/* Ask the head to end the wait. False: there is no record of one. */
bool fl_wait_record_ask_stop(const char *path);

#endif
