/* Which run a user means, and how it is reached: on this machine, or over a network. */
#ifndef FL_LAUNCHER_CLI_CTL_CTL_PLACE_H
#define FL_LAUNCHER_CLI_CTL_CTL_PLACE_H

#include "launcher/cli/cli.h"
#include "launcher/cli/ctl/ctl_client.h"

#include <limits.h>

typedef struct fl_ctl_place {
    char path[PATH_MAX]; /* of the run directory; of a far run its tcp:// address */
    bool far;
    bool goes_back;           /* it does not answer, because it goes back after a loss */
    bool waits;               /* it does not answer, and waits for its hosts; it has a path then */
    const char *key, *server; /* of a far run: files; borrowed from the command line */
} fl_ctl_place;

/* name  a run directory, the name of a run or a job, or tcp://ADDRESS:PORT, for which --key and
 *       --server must be among the arguments; NULL: the newest run that lives
 * Returns FL_EINVAL, with what there is, when that is no run; FL_EBUSY for a run that starts, or
 * goes back after a loss, and does not answer yet. */
fl_status fl_ctl_place_find(const fl_args *args, const char *name,
                            fl_ctl_place *place) FL_MUST_CHECK;

/* Which runs that do not answer yet are not awaited. One that waits for its hosts at its start may
 * do so for minutes, and no request that needs its workers is. */
typedef enum fl_ctl_patience {
    FL_CTL_PATIENT,    /* only such a one */
    FL_CTL_TELL_BACK,  /* one that goes back, and one that waits for its hosts: it can be told */
    FL_CTL_TELL_WAITS, /* one that waits for its hosts: that can be ended */
} fl_ctl_patience;

/* The same, but wait until the deadline for a run that does not answer yet. */
fl_status fl_ctl_place_await(const fl_args *args, const char *name, fl_ctl_patience patience,
                             int64_t deadline_us, fl_ctl_place *place) FL_MUST_CHECK;

/* As fl_ctl_client_open and fl_ctl_client_open_far. */
fl_status fl_ctl_place_open(const fl_ctl_place *place, bool events,
                            fl_ctl_client_link **link) FL_MUST_CHECK;

#endif
