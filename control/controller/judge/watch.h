/* Finds which worker was lost first, and how: pure decisions over the controller's records.
 *
 * The death of one worker makes the others report a lost peer or a passed deadline. Such a report
 * is a consequence, never the cause: after one, the watch waits until the detector has had the time
 * to find the cause. A death by a signal is named at once. */
#ifndef FL_CONTROL_CONTROLLER_JUDGE_WATCH_H
#define FL_CONTROL_CONTROLLER_JUDGE_WATCH_H

#include "control/state/worker.h"

/* Microseconds. */
typedef struct fl_watch_limits {
    int64_t silence_us; /* longest time between two signs of life */
    int64_t trial_us;   /* without progress, until hosts try whether they reach each other */
    int64_t settle_us;  /* from the first symptom to naming its cause */
    int64_t start_us;   /* from the fork to ready */
    int64_t opening_us; /* for which a worker may stand still before it is ready, while no other one
                           keeps it (fl_worker.still_us) */
    int64_t grace_us;   /* from ABORT to SIGKILL */
    int64_t circle_us;  /* for which all workers may wait for each other */
} fl_watch_limits;

/* Limits such that silence, settling, grace and ending together take at most detect_ms. */
fl_watch_limits fl_watch_limits_of(int64_t detect_ms, int64_t deadline_ms);

/* For how long the worker should have been ready; at most 0: it may still become that. Pure. */
int64_t fl_watch_late_us(const fl_worker *worker, const fl_watch_limits *limits, int64_t now_us);

/* Find the first cause, once it is certain.
 * who      out: the rank; unchanged on FL_LOSS_NONE
 * Returns  FL_LOSS_NONE while no worker is lost or the cause is not certain yet
 * Threads  pure; any */
fl_loss_kind fl_watch_judge(const fl_worker *workers, int n_workers, const fl_watch_limits *limits,
                            int64_t now_us, int *who);

/* "worker 1 (stage 1 of replica 0) was killed by signal 9 (Killed) at step 37": returns text. */
const char *fl_watch_text(const fl_worker *worker, fl_loss_kind kind, int64_t now_us, char *text,
                          size_t size_bytes);

/* "killed", "silent", ...: as events.jsonl names it. */
const char *fl_watch_kind_text(fl_loss_kind kind);

#endif
