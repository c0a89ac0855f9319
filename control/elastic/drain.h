/* Plans without some of the workers that the run has: what `drain` asks for, of a worker and of a
 * host. */
#ifndef FL_CONTROL_ELASTIC_DRAIN_H
#define FL_CONTROL_ELASTIC_DRAIN_H

#include "control/elastic/elastic.h"

/* Choose the plan in which these workers have no place: the running one if they have no work, else
 * the best one for those that remain. Ask for it with *terms (fl_elastic_ask_with).
 * ranks    [FL_MAX_WORKERS] those to be drained, besides those that are
 * Returns  FL_EBUDGET if no worker remains that can take work; else as fl_worker_pool_choose. *plan
 *          and *terms are then undefined.
 * Threads  the controller's */
fl_status fl_drain_choose(const fl_elastic *elastic, const bool *ranks, fl_plan *plan,
                          fl_elastic_terms *terms) FL_MUST_CHECK;

#endif
