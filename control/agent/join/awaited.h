/* Hosts for which the head waits: which they are, and for how long, in words. */
#ifndef FL_CONTROL_AGENT_JOIN_AWAITED_H
#define FL_CONTROL_AGENT_JOIN_AWAITED_H

#include "control/state/hosts/hosts.h"

enum {
    FL_AWAITED_TEXT = 640,
    FL_AWAITED_JOIN_MS = 600000, /* for the hosts of a run that begins */
    FL_AWAITED_AGAIN_MS = 20000, /* for those of a run that goes back */
};

/* "b (10.0.0.2)" or "b (10.0.0.2), c (10.0.0.3) and 5 more"; returns text. Pure.
 * awaited  [hosts->n] which of them */
const char *fl_awaited_names(const fl_hosts *hosts, const bool *awaited,
                             char text[FL_AWAITED_TEXT]);

#define FL_AWAITED_TASK_LOST "its task has ended before it joined"

/* Whether to look now at tasks of an engine that are to join, which looks at files: true twice a
 * second at most, and never without an engine. *looked_us: when that was. */
bool fl_awaited_looks_at_tasks(const fl_hosts *hosts, int64_t now_us, int64_t *looked_us);

/* When the wait is told again: after 10 s, 30 s, 70 s, and then once a minute. All zeros: it has
 * not begun. */
typedef struct fl_awaited_clock {
    int64_t begun_us, due_us, pause_us;
} fl_awaited_clock;

void fl_awaited_begin(fl_awaited_clock *clock, int64_t now_us);

/* True each time that it is due. */
bool fl_awaited_is_due(fl_awaited_clock *clock, int64_t now_us);

/* Log that the head still waits for these hosts, and for how long, if it is due. limit_ms: from the
 * beginning of the wait. */
void fl_awaited_tell(fl_awaited_clock *clock, const fl_hosts *hosts, const bool *awaited,
                     int64_t limit_ms, int64_t now_us);

#endif
