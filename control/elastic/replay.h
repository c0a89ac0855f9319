/* A run that repeats another: the decisions of the recording that it has repeated so far. */
#ifndef FL_CONTROL_ELASTIC_REPLAY_H
#define FL_CONTROL_ELASTIC_REPLAY_H

#include "control/link/link.h"

typedef struct fl_elastic fl_elastic;

/* Serial numbers of repeated settings: larger than those of the control socket. */
#define FL_REPLAY_SERIAL (INT64_C(1) << 62)

typedef struct fl_replay {
    int n_done;         /* decisions repeated so far */
    bool waits;         /* waits for the workers to report that the setting has taken effect */
    fl_setting setting; /* the setting sent last */
} fl_replay;

/* The plan to prepare now, the step at which it commits, and the kind of answer that its commit
 * gives. False: no plan is to be prepared now. Only where the options have a recording. */
bool fl_replay_next_plan(fl_elastic *elastic, fl_plan *next, int64_t *step, fl_due_kind *answers);

/* Send the recorded setting for the step at which the workers wait. Call it while no transition is
 * in progress. Only where the options have a recording. */
void fl_replay_watch(fl_elastic *elastic);

/* The setting with this serial has taken effect; NULL if the replay did not send it. */
const fl_setting *fl_replay_setting_done(fl_elastic *elastic, int64_t serial);

#endif
