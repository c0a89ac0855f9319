/* Whether another host can take part in a job: it makes the checks that its agent makes before a
 * worker starts. The head sends it one object of JSON: the job, the head's fingerprints, and the
 * ranks and the address of the host. `frostline doctor --compare` reads it from the standard input,
 * and reports one finding of the job, and one more if its workers cannot reach each other. */
#ifndef FL_LAUNCHER_DOCTOR_HOSTS_HOST_JOB_H
#define FL_LAUNCHER_DOCTOR_HOSTS_HOST_JOB_H

#include "control/state/hosts/host_facts.h"
#include "launcher/doctor/hosts/hosts.h"

#include <frostline/job.h>

#define FL_HOST_JOB_OPTION "--compare"

/* On the head: ask all hosts whose doctor has answered and has this version, all at the same time,
 * and add what they report to their findings. Waits for ten minutes at most, as a data set may have
 * to be tokenized there. The caller has no threads. */
void fl_host_job_ask(const fl_cluster_file *file, const fl_job *job, const fl_host_facts *facts,
                     fl_doctor_host *hosts);

/* On the host. Goes to the head's working directory, where this host has it. The caller has no
 * threads. */
void fl_host_job_answer(FILE *in, fl_findings *findings);

#endif
