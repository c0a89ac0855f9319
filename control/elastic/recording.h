/* The decisions of a finished run, for a run that repeats them: its first plan, and what changed at
 * which step. launcher/run/runs/recording_read.c makes a recording from a run's events. */
#ifndef FL_CONTROL_ELASTIC_RECORDING_H
#define FL_CONTROL_ELASTIC_RECORDING_H

#include <frostline/plan.h>

typedef enum fl_recorded_kind {
    FL_RECORDED_PLAN,      /* another plan runs from this step on */
    FL_RECORDED_LR,        /* train.lr becomes value */
    FL_RECORDED_END_EPOCH, /* the current epoch becomes the last one */
    FL_RECORDED_STOP,      /* the run ends */
    FL_RECORDED_END,       /* the run ends early, as if this step were its last one */
} fl_recorded_kind;

typedef struct fl_recorded {
    fl_recorded_kind kind;
    int64_t step;  /* the first step to which it applies, also the number of steps before it */
    double value;  /* LR */
    fl_plan *plan; /* PLAN; NULL otherwise */
} fl_recorded;

typedef struct fl_recording {
    fl_plan first;   /* the plan before the first step */
    int n;           /* decisions */
    fl_recorded *of; /* [n], in the order in which they took effect */
} fl_recording;

/* The first decision at `step` or after it: an index, n if there is none. Pure. */
int fl_recording_find(const fl_recording *recording, int64_t step);

/* recording is the caller's memory. */
void fl_recording_fini(fl_recording *recording);

#endif
