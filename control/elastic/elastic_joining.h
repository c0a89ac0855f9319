/* Workers that join the run with a transition: members under its next plan, and not under the
 * present one. */
#ifndef FL_CONTROL_ELASTIC_ELASTIC_JOINING_H
#define FL_CONTROL_ELASTIC_ELASTIC_JOINING_H

#include "control/elastic/elastic.h"

/* Send them a command. They are no members yet: the leader's broadcasts do not reach them. */
void fl_elastic_tell_joining(const fl_elastic *elastic, const fl_command *command);

/* The workers that prepare the next generation: the members, and those that join. */
int fl_elastic_count_preparing(const fl_elastic *elastic);

/* They train, or stand by, under the plan that has just become the running one. */
void fl_elastic_enter_joining(fl_elastic *elastic);

#endif
