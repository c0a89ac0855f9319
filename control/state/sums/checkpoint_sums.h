/* The checkpoints of a run so far: for status, metrics and the summary. */
#ifndef FL_CONTROL_STATE_SUMS_CHECKPOINT_SUMS_H
#define FL_CONTROL_STATE_SUMS_CHECKPOINT_SUMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_checkpoint_sums {
    int64_t n_written, n_failed;
    bool any;          /* there is a durable one: */
    int64_t last_step; /* of the newest one */
    int64_t best_step; /* of checkpoints/best; at most 0: there is none */
    int64_t last_us;   /* fl_now_us when it became durable; 0: before this process */
    int64_t last_bytes, last_linked_bytes;
    double last_seconds; /* from the request until it was durable */
} fl_checkpoint_sums;

#endif
