/* The links between the hosts of a file: whether each pair can talk, and how fast. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_HOST_LINKS_H
#define FL_LAUNCHER_DOCTOR_HOSTS_HOST_LINKS_H

#include "control/agent/survey/host_survey.h"
#include "launcher/doctor/hosts/hosts.h"

#include <frostline/job.h>

/* Start agents by ssh, as a run does, with keys that only they get, and measure every pair. Hosts
 * with an error of ssh are left out. A host that does not reach this one, and a pair that cannot
 * talk, are findings. Waits for half a minute at most, and longer only for pairs that cannot; no
 * longer once the process is to end, for which the caller holds the signals
 * (launcher/doctor/hosts/stops.h). The caller has no threads.
 * source, listen   where the hosts come from, for messages; where the agents join, NULL: anywhere
 * hosts            [cluster.n_hosts] with their findings
 * found            out: the pairs; cleared where nothing was measured */
void fl_doctor_look_at_host_links(const fl_cluster_file *file, const char *source,
                                  const char *listen, const fl_job *job,
                                  const fl_doctor_host *hosts, fl_host_survey *found,
                                  fl_findings *findings);

/* Say what was found of the pairs, and compare it with the links that the file states. */
void fl_doctor_judge_links(const fl_cluster_file *file, const fl_host_survey *found,
                           fl_security security, fl_findings *findings);

/* The pairs, as an array of the object that is open. */
void fl_doctor_pair_fields(const fl_cluster_file *file, const fl_host_survey *found, fl_json *json);

#endif
