/* What is kept of a worker that comes back: see joining.h. */
#ifndef FL_CONTROL_CONTROLLER_PARTS_JOINING_STATE_H
#define FL_CONTROL_CONTROLLER_PARTS_JOINING_STATE_H

#include "control/controller/judge/attempts.h"
#include "control/state/worker.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum fl_joining_state {
    FL_JOINING_NONE,
    FL_JOINING_DELAYED,  /* a process is started at due_us */
    FL_JOINING_STARTING, /* it has been; it is asked for once it is ready */
    FL_JOINING_ASKED,    /* a transition to `generation` is in progress */
} fl_joining_state;

/* One rank. */
typedef struct fl_joining_worker {
    fl_joining_state state;
    int64_t due_us;
    uint32_t generation;
    uint32_t last_member; /* the last generation of which the process before may be a member */
    int n_restarts;       /* so far, without a request */
    fl_attempts attempts; /* to have it join, since its process was started */
    bool wanted;          /* a request asked for it */
    bool by_host;         /* its host has joined: all of them get work together */
    bool failed;          /* what a request asked for has ended */
    fl_loss_kind late;    /* it was ended for this; FL_LOSS_NONE: it was not */
} fl_joining_worker;

#endif
