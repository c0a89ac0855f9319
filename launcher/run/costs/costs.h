/* The source of a run's costs: the profile file, or a measurement at the start; and what the run
 * writes back. */
#ifndef FL_LAUNCHER_RUN_COSTS_COSTS_H
#define FL_LAUNCHER_RUN_COSTS_COSTS_H

#include "autodp/nccl/trial.h"
#include "control/state/options.h"
#include "device/machine/survey.h"
#include "launcher/run/costs/profile_file.h"

#define FL_COSTS_RUN_FILE "profile.yaml"

enum { FL_COSTS_PATH_MAX = 4096 };

typedef struct fl_costs_options {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_layer_memory *memory_one; /* [n_layers] */
    const fl_sample_sizes *sizes;      /* where samples differ in length; otherwise NULL */
    const fl_device_survey *devices;
    const fl_nccl_trial *nccl; /* of this host */
    int n_workers;             /* of this host, which run at once */
    const char *run_dir; /* of a run that continues: its own costs are taken if they fit; or NULL */
    const char *only;    /* plan from this profile, of any device, without measuring; or NULL */
} fl_costs_options;

typedef struct fl_costs {
    fl_profile_key key;
    fl_profile_about about;
    fl_costs_origin origin; /* borrows `path` */
    char path[FL_COSTS_PATH_MAX];
    /* beside it: cuBLASLt's answers (fl_device_options.algorithms); "": not kept */
    char algorithms[FL_COSTS_PATH_MAX + 16];
    char note[1024];
    fl_nccl_trial nccl; /* as given, or refused because it failed when its links were measured */
} fl_costs;

/* Only find out which files keep the costs and cuBLASLt's answers: for a pass over samples, which
 * guesses its costs. */
void fl_costs_find(const fl_costs_options *options, fl_costs *costs);

/* Read the known costs; otherwise measure and keep them. A file that is broken, of another model or
 * device, or not writable causes a warning. The caller must not have threads yet.
 * Returns FL_EINVAL when `only` cannot be used, and what fl_costs_measure returns. */
fl_status fl_costs_get(const fl_costs_options *options, fl_costs *costs,
                       fl_profile *profile) FL_MUST_CHECK;

/* The parts of it. look: whether they are known; then they are read. measure: after find or look;
 * nothing is kept; FL_ENOTSUP if the link between workers goes over 127.0.0.1 and that does not get
 * through. take: keep what was measured. */
bool fl_costs_look(const fl_costs_options *options, fl_costs *costs, fl_profile *profile);
fl_status fl_costs_measure(const fl_costs_options *options, fl_costs *costs,
                           fl_profile *profile) FL_MUST_CHECK;
void fl_costs_take(const fl_costs_options *options, fl_costs *costs, const fl_profile *profile);

/* Where the user's cache keeps the profile of this key; "": there is no cache. */
void fl_costs_cache_path(const fl_profile_key *key, char path[FL_COSTS_PATH_MAX]);

/* It is measured now. */
void fl_costs_tell_time(fl_profile_about *about);

/* Write the costs that a run begins with into its directory: a run that continues decides by them.
 * A file that cannot be written causes a warning. */
void fl_costs_keep_in(const char *run_dir, const fl_costs_options *options, const fl_costs *costs,
                      const fl_profile *profile);

/* Write what the run has learned. A file that cannot be written causes a warning. */
void fl_costs_keep(const fl_costs_options *options, const fl_costs *costs,
                   const fl_profile *profile);

#endif
