/* Which micro-batch a stage works on at each tick: a pure function of schedule, K, M and stage.
 *
 * GPipe, K = 3, M = 4 (F0: forward of micro-batch 0, B0: its backward; time goes right):
 *     stage 0   F0 F1 F2 F3 .  .  .  .  B0 B1 B2 B3
 *     stage 1   .  F0 F1 F2 F3 .  .  B0 B1 B2 B3 .
 *     stage 2   .  .  F0 F1 F2 F3 B0 B1 B2 B3 .  .
 * 1F1B, K = 3, M = 4: each stage first fills with K - stage - 1 forwards, then alternates:
 *     stage 0   F0 F1 F2 .  .  B0 F3 B1 .  B2 .  B3
 *     stage 1   .  F0 F1 .  B0 F2 B1 F3 B2 .  B3 .
 *     stage 2   .  .  F0 B0 F1 B1 F2 B2 F3 B3 .  .
 * Sources: GPipe, arXiv 1811.06965; 1F1B: PipeDream-Flush, arXiv 2006.09503. */
#ifndef FL_PIPE_COST_SCHEDULE_H
#define FL_PIPE_COST_SCHEDULE_H

#include <frostline/plan.h>

typedef enum fl_op_kind { FL_OP_FORWARD = 0, FL_OP_BACKWARD = 1 } fl_op_kind;

typedef struct fl_op {
    fl_op_kind kind;
    int micro_batch;
} fl_op;

/* ops [2 * M] out: what stage `stage` does, in order. Pure; any thread. */
void fl_schedule_ops(fl_schedule schedule, int K, int M, int stage, fl_op *ops);

/* Most micro-batches whose activations this stage holds at once: M, or min(M, K - stage). */
int fl_schedule_in_flight(fl_schedule schedule, int K, int M, int stage);

/* One cell of the drawn schedule. */
typedef struct fl_tick {
    double begin, end;
} fl_tick;

/* Play the schedule with the given costs of one micro-batch: fwd_us, bwd_us [K], link_us [K - 1]
 * (the time for which one message between neighbours is under way).
 * ticks  [K][2 * M] out, in the order of fl_schedule_ops; may be NULL
 * Returns the makespan in microseconds. Pure; any thread. */
double fl_schedule_play(fl_schedule schedule, int K, int M, const double *fwd_us,
                        const double *bwd_us, const double *link_us, fl_tick *ticks);

/* The same, and when each stage has done its last backward: end_us [K] out. */
void fl_schedule_ends(fl_schedule schedule, int K, int M, const double *fwd_us,
                      const double *bwd_us, const double *link_us, fl_tick *ticks, double *end_us);

#endif
