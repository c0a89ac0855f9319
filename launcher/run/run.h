/* Checks of a run that need no process to be started, and its plans. */
#ifndef FL_LAUNCHER_RUN_RUN_H
#define FL_LAUNCHER_RUN_RUN_H

#include "control/controller/run.h"
#include "device/machine/survey.h"
#include "launcher/job/cluster_file.h"

#include <frostline/run.h>

struct fl_resume;

/* Check that the model takes the data set's samples, that the batch fits the data, and that at
 * least one plan satisfies the job within its devices and their memory.
 * Returns FL_EINVAL or FL_EBUDGET; messages begin with the job's field ("pipe.k: ..."). */
fl_status fl_check(const fl_model *model, const fl_dataset *dataset,
                   const fl_job *job) FL_MUST_CHECK;

/* The same on several hosts, of which this one is the first; cluster: their devices and links.
 * hosts NULL: on this host alone. */
fl_status fl_check_on_hosts(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                            const fl_hosts *hosts, const fl_cluster_file *cluster) FL_MUST_CHECK;

/* What to plan, and callbacks for the results; all that they receive is borrowed. */
typedef struct fl_plan_request {
    const int *frozen; /* [n] numbers of frozen blocks, each planned in turn */
    int n;
    const char *profile; /* take the costs from this file, without measuring; NULL: as a run */
    const fl_cluster_file
        *cluster;          /* plan for its devices, in place of this machine's; NULL: none */
    const fl_hosts *hosts; /* of the run, whose devices and links `cluster` has; NULL: none */
    void (*costs)(void *context, const fl_costs_origin *origin); /* called once, before any plan */
    void (*devices)(void *context, const fl_device_survey *devices, int n_workers); /* then this */
    /* then this, of a cluster of several hosts; from: fl_costs_origin_of_link */
    void (*between_hosts)(void *context, const fl_link_cost *link, const char *from);
    /* why_not: NULL, or why nothing fits (then only F of *plan is valid); candidates
     * [n_candidates], cheapest first */
    void (*seen)(void *context, const fl_plan *plan, const char *why_not,
                 const fl_candidate *candidates, int n_candidates);
    void *context;
} fl_plan_request;

/* Choose plans as a run on this machine would, without starting one. Returns as fl_check. If some
 * numbers of frozen blocks have no plan that fits, the callback receives the reason; the call
 * succeeds. */
fl_status fl_plan_job(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                      const fl_plan_request *request) FL_MUST_CHECK;

/* fl_run, into the directory `run_dir` (created if it does not exist; FL_EINVAL if it holds a run)
 * or, when NULL, into a new one under run.dir. */
fl_status fl_run_in(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                    const char *run_dir, fl_run_result *result) FL_MUST_CHECK;

/* The same on several hosts, of which this one is the first, and whose agents join (docs/hosts.md).
 * cluster: the devices and links of all of them, and profiles of other kinds of hosts. */
fl_status fl_run_on_hosts(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                          const char *run_dir, const fl_hosts *hosts,
                          const fl_cluster_file *cluster, fl_run_result *result) FL_MUST_CHECK;

/* fl_run_in, with all decisions of the run in `recorded_dir`, each at the step at which it took
 * effect there: equal to that run to the last bit on the same hardware. NULL: decide as usual. Also
 * returns what fl_recording_read returns. */
fl_status fl_run_again(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                       const char *run_dir, const char *recorded_dir,
                       fl_run_result *result) FL_MUST_CHECK;

/* Continue the run that fl_resume_open has opened, with a job that fl_resume_load_job has given.
 * hosts, cluster: as fl_run_on_hosts, also others than before; NULL: on this host alone. Also
 * returns what fl_resume_choose returns. */
fl_status fl_run_continue(fl_model *model, const fl_dataset *dataset, const fl_job *job,
                          struct fl_resume *resume, const fl_hosts *hosts,
                          const fl_cluster_file *cluster, fl_run_result *result) FL_MUST_CHECK;

#endif
