/* The plan that is due after workers have joined: see replan.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_REPLAN_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_REPLAN_STATE_H

#include <frostline/plan.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct fl_replan {
    bool due;
    int rank;     /* that joined last */
    bool by_host; /* a host has joined: the plan is chosen anew even if it is not elastic */
    int64_t due_us;
    uint32_t generation;          /* ③, 0: none is in progress */
    int n_tries;                  /* since ① */
    bool drained[FL_MAX_WORKERS]; /* by rank: to leave again, once the run that went back trains */
} fl_replan;

#endif
