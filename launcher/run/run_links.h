/* The links between the hosts of a run, measured where nothing states them. */
#ifndef FL_LAUNCHER_RUN_RUN_LINKS_H
#define FL_LAUNCHER_RUN_RUN_LINKS_H

#include "launcher/run/preparation.h"

/* Whether the run has to measure them before it chooses its plan: it has several hosts, their file
 * does not state what messages between them cost, and the run does not go back. */
bool fl_run_links_are_wanted(const fl_preparation *p);

/* Wait for the hosts, and measure: p->profile then has the worst of all pairs, p->links all of
 * them. run_dir: with the keys, for which others wait. *stopped and statuses as
 * fl_host_survey_run. */
fl_status fl_run_links_measure(fl_preparation *p, const char *run_dir, int *stopped) FL_MUST_CHECK;

#endif
