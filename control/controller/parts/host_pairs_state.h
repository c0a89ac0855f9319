/* What is kept of trials between hosts: see host_pairs.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_HOST_PAIRS_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_HOST_PAIRS_STATE_H

#include "control/state/hosts/host_sight.h"

typedef enum fl_host_pairs_state {
    FL_HOST_PAIRS_IDLE,
    FL_HOST_PAIRS_ASKED,
    FL_HOST_PAIRS_LEAVING, /* the gate is to count a host as lost */
} fl_host_pairs_state;

typedef struct fl_host_pairs {
    fl_host_pairs_state state;
    int64_t since_us;   /* of this state */
    int64_t timeout_ms; /* of a trial */
    int64_t stood_us; /* since when the training stood still as the last trial began; 0: unknown */
    int64_t checked_us; /* when all had answered last, and no pair was apart; 0: never */
    int64_t progress;   /* of workers that open connections or meet; 0: none does */
    int64_t idle_us;    /* since when it is the same */
    fl_host_sight sight;
    char own_why[384]; /* the workers of the head do not reach each other; "": they do */
} fl_host_pairs;

#endif
