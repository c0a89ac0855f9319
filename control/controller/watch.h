/* Who was lost first, and how: pure decisions over what the controller knows of its workers.
 *
 * One worker's death makes the others report a lost peer or a deadline. Such a report is a
 * consequence and never the cause, so after one the watch waits until the detector has had its
 * time; a death by a signal is named at once. */
#ifndef FL_CONTROL_CONTROLLER_WATCH_H
#define FL_CONTROL_CONTROLLER_WATCH_H

#include "control/state/worker.h"

/* Microseconds. */
typedef struct fl_watch_limits {
    int64_t silence_us; /* longest time between two signs of life */
    int64_t settle_us;  /* from the first sign of trouble to naming its cause */
    int64_t start_us;   /* from the fork to ready */
    int64_t grace_us;   /* from ABORT to SIGKILL */
} fl_watch_limits;

/* Such that silence, settling, grace and ending together stay within detect_ms. */
fl_watch_limits fl_watch_limits_of(int64_t detect_ms, int64_t deadline_ms);

/* The first cause, once it is certain.
 * Returns FL_LOSS_NONE while all is well or the cause is not certain yet; else *who is the rank.
 * Threads: pure; any. */
fl_loss_kind fl_watch_judge(const fl_worker *workers, int n_workers, const fl_watch_limits *limits,
                            int64_t now_us, int *who);

/* "worker 1 (stage 1 of replica 0) was killed by signal 9 (Killed) at step 37": returns text. */
const char *fl_watch_text(const fl_worker *worker, fl_loss_kind kind, int64_t now_us, char *text,
                          size_t size_bytes);

/* "killed", "silent", ...: for events.jsonl. */
const char *fl_watch_kind_text(fl_loss_kind kind);

#endif
