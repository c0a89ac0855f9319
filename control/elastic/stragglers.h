/* Workers that are slow by their own computing. */
#ifndef FL_CONTROL_ELASTIC_STRAGGLERS_H
#define FL_CONTROL_ELASTIC_STRAGGLERS_H

#include "control/link/link.h"

typedef struct fl_elastic fl_elastic;

typedef struct fl_stragglers fl_stragglers;

fl_status fl_stragglers_open(fl_elastic *elastic) FL_MUST_CHECK;
void fl_stragglers_close(fl_elastic *elastic);

/* A worker tells of a step; every 50 steps all are compared, and who is slow by its own computing
 * is told by the event worker.slow, or worker.recovered. */
void fl_stragglers_add(fl_elastic *elastic, int rank, const fl_time_report *report);

/* The rank named last, -1: none. */
int fl_stragglers_named(const fl_elastic *elastic);

/* How often any was named. */
int64_t fl_stragglers_count(const fl_elastic *elastic);

#endif
