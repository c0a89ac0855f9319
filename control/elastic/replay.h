/* A run that repeats another: how far it has come in the recording. */
#ifndef FL_CONTROL_ELASTIC_REPLAY_H
#define FL_CONTROL_ELASTIC_REPLAY_H

#include "control/link/link.h"

typedef struct fl_elastic fl_elastic;

/* Serial numbers of settings that are repeated: beyond those of the control socket. */
#define FL_REPLAY_SERIAL (INT64_C(1) << 62)

typedef struct fl_replay {
    int n_done;         /* decisions */
    bool waits;         /* for the workers to say that the setting has taken effect */
    fl_setting setting; /* the one sent last */
} fl_replay;

/* The plan that is to be prepared now, the step at which it is committed, and the answer that its
 * commit gives. False: none, now. Only where the options have a recording. */
bool fl_replay_next_plan(fl_elastic *elastic, fl_plan *next, int64_t *step, fl_due_kind *answers);

/* Send what is recorded for the step at which the workers wait; called while no plan changes. Only
 * where the options have a recording. */
void fl_replay_watch(fl_elastic *elastic);

/* The setting with this serial has taken effect; NULL if the replay did not send it. */
const fl_setting *fl_replay_setting_done(fl_elastic *elastic, int64_t serial);

#endif
