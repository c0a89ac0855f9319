/* Corrects the profile by the run's own times. */
#ifndef FL_CONTROL_ELASTIC_LEARN_H
#define FL_CONTROL_ELASTIC_LEARN_H

#include "control/link/link.h"

typedef struct fl_elastic fl_elastic;

enum { FL_LEARN_STEPS = 64 };

/* The newest steps of one worker in the current generation. */
typedef struct fl_learn_worker {
    int64_t n; /* steps ever recorded */
    double compute_us[FL_LEARN_STEPS];
} fl_learn_worker;

typedef struct fl_learn {
    uint32_t generation; /* the generation being measured */
    fl_learn_worker *of; /* [n_workers]; NULL: learning is off */
    bool knows_graphs;   /* a worker has reported the memory of its captured work */
} fl_learn;

fl_status fl_learn_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_learn_close(fl_elastic *elastic);
void fl_learn_time(fl_elastic *elastic, int rank, uint32_t generation,
                   const fl_time_report *report);

void fl_learn_graphs(fl_elastic *elastic, int rank, const fl_graphs_report *report);

/* Call it before the controller's plan changes and when the run is over; after a change, call
 * fl_learn_begin. */
void fl_learn_end(fl_elastic *elastic);
void fl_learn_begin(fl_elastic *elastic);

#endif
