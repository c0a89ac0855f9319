/* What the record of a run says of its return after a loss, for clients that ask while nobody
 * answers. */
#ifndef FL_LAUNCHER_RUN_RUNS_RETURNING_H
#define FL_LAUNCHER_RUN_RUNS_RETURNING_H

enum { FL_RETURNING_TEXT = 900 };

/* "for 12 s, return 1, from step 2388 to step 2200 (checkpoint): WHY" of the run in
 * the directory `path`, as far as its events have it; "" if they do not. Returns text. */
const char *fl_run_returning(const char *path, char text[FL_RETURNING_TEXT]);

/* Seconds since a time as events have it, "2026-01-31T09:30:00.000Z", whatever follows; -1: it is
 * none. */
long fl_seconds_since(const char *wall);

#endif
