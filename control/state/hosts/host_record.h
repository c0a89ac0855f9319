/* The controller's records about the hosts of a run. Times are fl_now_us; 0 means not yet. */
#ifndef FL_CONTROL_STATE_HOSTS_HOST_RECORD_H
#define FL_CONTROL_STATE_HOSTS_HOST_RECORD_H

#include "control/state/hosts/host_clock.h"
#include "control/state/hosts/host_sight.h"
#include "device/machine/machine_kind.h"

#include <stdbool.h>
#include <stdint.h>

enum { FL_HOST_WHY_MAX = 1023, FL_HOST_GRACE_MAX_MS = 24 * 3600 * 1000 };

typedef enum fl_host_state {
    FL_HOST_STATE_AWAITED,  /* its agent has not joined */
    FL_HOST_STATE_JOINED,   /* it is in the run */
    FL_HOST_STATE_DRAINING, /* its workers are leaving, or are to leave */
    FL_HOST_STATE_DRAINED,  /* its workers have left, and its agent may end */
    FL_HOST_STATE_LOST,
    FL_HOST_STATES
} fl_host_state;

typedef struct fl_host_record {
    fl_host_state state;
    int64_t joined_us, ended_us; /* ended: drained or lost */
    /* Noted shortly afterwards (fl_host_times_note), and kept when the run goes back; 0: not yet.
     * By the clock of the run, and since 1970. */
    double joined_s, ended_s, ended_wall_s;
    fl_clock_estimate clock; /* of a host that has joined; not known of the head */
    int64_t notice_us;       /* its agent asked for the host to be drained */
    int64_t grace_us;        /* the time that the agent gave then */
    int64_t silent_us;       /* LOST: it had not answered for so long; 0: otherwise */
    bool unfit;              /* LOST: it has said that it cannot take part */
    fl_machine_kind kind;    /* as it has joined last; of the head: "" */
    int apart_from;      /* LOST, or soon: 1 + the host that it does not reach; 0: not for that */
    fl_host_trial trial; /* with apart_from */
    char why[FL_HOST_WHY_MAX + 1]; /* LOST: why; JOINED: why its last drain was given up */
} fl_host_record;

/* "joined", as status, events and metrics name it. */
static inline const char *fl_host_state_text(fl_host_state state)
{
    static const char *const text[] = {"awaited", "joined", "draining", "drained", "lost"};
    return text[state];
}

#endif
