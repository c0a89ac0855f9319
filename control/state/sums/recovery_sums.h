/* The losses of a run and what they cost, for reports. */
#ifndef FL_CONTROL_STATE_SUMS_RECOVERY_SUMS_H
#define FL_CONTROL_STATE_SUMS_RECOVERY_SUMS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct fl_recovery_sums {
    int64_t n_losses;     /* of workers, also in standby, after which the run went on; some may
                             have been lost several times */
    int64_t n_recoveries; /* how often the others regrouped */
    int64_t n_returns;    /* how often the run went back to a snapshot, a checkpoint, its start */
    int64_t n_repeated;   /* steps that it took again for that */
    int64_t lost_us;      /* from each loss until all had switched to the plan after it */
    int64_t last_us;      /* of the last one */
    int64_t returns_us;   /* since when the run goes back, and has not trained; 0: it does not */
    int k, r;             /* that the run is to have (control/elastic/elastic.h) */
    int n_started;        /* ranks below it have had a worker since the run began */
    bool fails_again;     /* the last lost worker reported a failure of its own */
    char why[1024];       /* the last loss that none could make good, and why; "": none */
} fl_recovery_sums;

#endif
