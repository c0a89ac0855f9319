/* When a run writes checkpoints. Pure. */
#ifndef FL_CONTROL_CHECKPOINT_SCHEDULE_H
#define FL_CONTROL_CHECKPOINT_SCHEDULE_H

#include <frostline/job.h>

typedef struct fl_checkpoint_schedule {
    fl_interval every; /* all 0: never */
    int64_t steps_per_epoch;
} fl_checkpoint_schedule;

/* The present of a run. */
typedef struct fl_checkpoint_moment {
    int64_t steps;    /* finished */
    int64_t end_step; /* after which the run ends, with a checkpoint of its own */
    int64_t now_us;
    int64_t last_step; /* of the last checkpoint, or of the last try; 0: the start of the run */
    int64_t last_us;   /* when that was */
    int64_t lead;      /* steps that a request needs to reach the workers before its step, >= 1 */
} fl_checkpoint_moment;

/* The step whose state is to be saved and for which to ask the workers now: a multiple of the
 * interval where that counts steps or epochs. 0: there is nothing to ask for now. */
int64_t fl_checkpoint_due(const fl_checkpoint_schedule *schedule,
                          const fl_checkpoint_moment *moment);

/* The steps that a request should be ahead: those of a quarter of a second, at steps of step_ms (0:
 * unknown); twice as many after each of n_late tries for which workers were already further, a
 * quarter after each of n_switched tries whose step was that of a change of the plan. */
int64_t fl_checkpoint_lead(double step_ms, int64_t default_lead, int n_late, int n_switched);

#endif
