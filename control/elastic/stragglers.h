/* Finds workers that are slow by their own computing. */
#ifndef FL_CONTROL_ELASTIC_STRAGGLERS_H
#define FL_CONTROL_ELASTIC_STRAGGLERS_H

#include "control/link/link.h"

typedef struct fl_elastic fl_elastic;

typedef struct fl_stragglers fl_stragglers;

fl_status fl_stragglers_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_stragglers_close(fl_elastic *elastic);

/* Add one worker's times of a step. Every 50 steps all workers are compared; the event worker.slow
 * names one that is slow by its own computing, worker.recovered one that is no longer slow. One
 * that does not train any more has not recovered. */
void fl_stragglers_add(fl_elastic *elastic, int rank, const fl_time_report *report);

/* The training is over: say how often each worker was named. */
void fl_stragglers_end(fl_elastic *elastic);

/* The rank named last, -1: none. */
int fl_stragglers_named(const fl_elastic *elastic);

/* How often a worker was named. */
int64_t fl_stragglers_count(const fl_elastic *elastic);

#endif
