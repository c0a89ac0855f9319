/* The preparation of a run: everything that is determined before a worker starts. A value whose
 * fields are filled in this order, and released by fl_preparation_fini at any point:
 *
 *     the caller            model, dataset, job, callbacks, recorded_dir, resume, weights, F,
 *                           guesses_costs, tried
 *     preparation.c         the numbers of samples, steps and workers; each layer's memory
 *     run_plan.c            recording, cache, metrics, processors, costs, plan, due steps */
#ifndef FL_LAUNCHER_RUN_PLAN_PREPARATION_H
#define FL_LAUNCHER_RUN_PLAN_PREPARATION_H

#include "autodp/nccl/trial.h"
#include "control/controller/run.h"
#include "control/elastic/due_steps.h"
#include "control/observe/metrics/metrics_http.h"
#include "device/machine/survey.h"
#include "launcher/job/cluster_file.h"
#include "launcher/run/costs/costs.h"
#include "launcher/run/runs/recording_read.h"
#include "launcher/worker/processors/cores.h"
#include "pipe/plan/batch/capacity.h"
#include "pipe/plan/planner.h"
#include "pipe/state/weights/init_weights.h"
#include "pipe/step/input/activations.h"

#include <frostline/run.h>

enum { FL_PREPARATION_CANDIDATES_MAX = 256 };

typedef struct fl_preparation {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_callbacks *callbacks; /* of the program; NULL: none */
    const char *weights;           /* to start from; NULL: as model.init has them */
    fl_safetensors *weights_file;  /* they are open, and are taken from here */
    int F;                         /* frozen blocks of the first plan */
    bool guesses_costs;            /* nothing is measured to choose the plan */
    const fl_hosts *hosts;         /* of the run, this one the first; NULL: this one alone */
    const fl_host *joined;         /* this host, which has joined another one's run; NULL: no */
    const fl_cluster *cluster;     /* plans are for its devices; NULL: for this machine's */
    const fl_cluster_file *cluster_file; /* that it is from; NULL: it is from no file */
    struct fl_run_kinds *kinds;   /* cluster, with profiles of other kinds of hosts; NULL: none */
    struct fl_found_kinds *found; /* kinds of hosts that runs find; NULL: they look for none */
    bool own_costs_unknown;       /* this host has to measure them, after fl_run_plan_make */
    fl_host_link *links;          /* [n_links] between hosts, measured for this start */
    int n_links;
    bool hosts_measured;              /* the agents of `hosts` were there, and join the run next */
    struct fl_host_starter *starters; /* [hosts->n] ssh of agents, kept by the caller; NULL: ssh
                                         starts none */
    fl_cluster *islands;     /* this machine's, where its links differ; NULL: they do not */
    const fl_dataset *whole; /* the data set as the caller gave it */
    fl_dataset view;         /* without validation samples; no ops: there are none */
    int64_t n_validation;    /* samples */
    int64_t n_samples, steps_per_epoch, n_steps;
    fl_device_survey devices;
    const fl_nccl_trial *tried; /* by the caller; NULL: it is tried here */
    fl_nccl_trial nccl;         /* whether workers may load it */
    int n_workers;
    int n_ranks; /* devices.max: the workers that the run may grow to */
    fl_cores cores;
    fl_due_steps due;
    fl_sample_sizes *sizes;
    fl_run_batches *batches;
    fl_memory_model *ragged;          /* NULL: all samples have one length */
    const char *recorded_dir;         /* of the run to repeat; NULL: none */
    struct fl_resume *resume;         /* the run that continues; NULL: a new one begins */
    struct fl_kept_snapshot *kept;    /* its snapshots in memory; NULL: it makes none */
    struct fl_held_ports *held_ports; /* until a survey or the controller opens them, in between,
                                         and from one controller to the next (held_port.h); NULL:
                                         nothing holds them */
    struct fl_run_losses *losses;     /* for which it goes back (returns.h); NULL: it never does */
    fl_recovery_sums *recovered;      /* what losses have cost it so far; NULL: not wanted */
    fl_recording recording;
    fl_layer_memory *memory_one; /* [n_layers] */
    fl_profile *profile, *learned;
    fl_costs *costs;
    fl_plan_input input;
    fl_plan *plan;
    fl_init_weights init;        /* weights to start from */
    fl_activations *activations; /* NULL: no cache, because of no_cache_why: */
    char no_cache_why[512];
    bool listens; /* the job asks for metrics */
    fl_metrics_listener metrics;
    fl_candidate *candidates; /* [FL_PREPARATION_CANDIDATES_MAX] */
    int n_candidates;
} fl_preparation;

/* FL_EINVAL if an argument is NULL or the data set's table lacks an entry, which the message names.
 * Nothing else of them is used or called before this check. */
fl_status fl_preparation_check_arguments(const fl_model *model, const fl_dataset *dataset,
                                         const fl_job *job) FL_MUST_CHECK;

/* Check model, data and job against each other, and count the memory of each layer. Returns
 * FL_EINVAL, with the job's field where one is at fault, and what fl_dry_run_check returns. */
fl_status fl_preparation_check(fl_preparation *p) FL_MUST_CHECK;

/* This host, where the run has several; NULL: it has one. */
const fl_host *fl_preparation_own_host(const fl_preparation *p);

/* Warn of a job that asks for more processors or memory than the machine has. */
void fl_preparation_warn(const fl_preparation *p);

/* Whose kernels the workers use: a GPU's name, or the processor's instruction set. Another one's
 * losses differ in the last bits. */
const char *fl_preparation_kernels(const fl_preparation *p);

void fl_preparation_fini(fl_preparation *p);

#endif
