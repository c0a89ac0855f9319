/* What a run on several hosts measures with its agents before it chooses its plan: the links
 * between hosts where nothing states them, and what layers cost on hosts of other kinds. */
#ifndef FL_LAUNCHER_RUN_PLAN_RUN_SURVEY_H
#define FL_LAUNCHER_RUN_PLAN_RUN_SURVEY_H

#include "launcher/run/plan/preparation.h"

/* Whether it has anything to measure: then fl_run_plan_make chooses no plan. */
bool fl_run_survey_is_wanted(const fl_preparation *p);

/* Whether it measures the links between hosts. */
bool fl_run_survey_measures_links(const fl_preparation *p);

/* Wait for the hosts, and measure. Of links, p->profile then has the worst of all pairs, p->links
 * all of them; of kinds, p->found has the profiles. The head measures its own costs meanwhile if
 * they are not known (p->own_costs_unknown). run_dir: with the keys, for which others wait. job:
 * its text.
 * *stopped as fl_host_survey_run. Returns what that returns, and what fl_costs_measure does. */
fl_status fl_run_survey(fl_preparation *p, const char *run_dir, const char *job,
                        int *stopped) FL_MUST_CHECK;

/* Have ssh start the agents of a run whose hosts it starts, but for those that run since they were
 * measured. The caller has no threads, and run_dir the keys. FL_EIO. */
fl_status fl_run_start_agents(const fl_preparation *p, const char *run_dir) FL_MUST_CHECK;

#endif
