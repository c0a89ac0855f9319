/* The inputs of the controller for one run. */
#ifndef FL_CONTROL_STATE_OPTIONS_H
#define FL_CONTROL_STATE_OPTIONS_H

#include "control/state/birth.h"
#include "control/state/hosts/costs_origin.h"
#include "control/state/hosts/host_facts.h"
#include "control/state/hosts/host_links.h"
#include "control/state/hosts/hosts.h"
#include "control/state/phase.h"
#include "control/state/sums/recovery_sums.h"
#include "pipe/plan/planner.h"
#include "pipe/step/input/activations.h"

#include <frostline/plan.h>
#include <frostline/run.h>

/* The body of a forked worker; returns its exit code. Called in the child. */
typedef int fl_worker_main(void *context, const fl_worker_birth *birth, const char *endpoint);

/* A checkpoint or a snapshot that cannot be used, and why. */
typedef struct fl_refused_checkpoint {
    int64_t step;
    char why[512];
} fl_refused_checkpoint;

/* fl_resume_origin.checkpoint of a run that begins again. */
#define FL_RESUME_START "the start of the run"

/* How a run continues that was interrupted: for events.jsonl and the terminal. All borrowed. */
typedef struct fl_resume_origin {
    const char *checkpoint;               /* its path, or what it is */
    const char *why;                      /* the loss after which the run goes back; NULL: none */
    int64_t step;                         /* finished steps */
    int64_t n_repeated;                   /* steps that are taken again for that loss */
    int64_t n_cut_steps, n_cut_events;    /* lines after the checkpoint that were cut off */
    const char *plan_why;                 /* why this plan; NULL: the run begins again */
    const char *ended;                    /* how the run ended before: "stopped", "lost" ... */
    int n_refused;                        /* newer checkpoints that could not be used: */
    const fl_refused_checkpoint *refused; /* [n_refused] */
    int n_changed;                        /* fields of the job that have another value now: */
    const char *const *changed;           /* [n_changed] their paths */
} fl_resume_origin;

typedef struct fl_controller_options {
    const fl_job *job;
    const fl_model *model;           /* NULL: events.jsonl does not describe the model */
    const fl_dataset *dataset;       /* NULL: events.jsonl does not describe the data set */
    const fl_plan *plan;             /* of the first generation */
    const fl_worker_birth *birth;    /* of the first workers; NULL: they begin at the first step */
    const fl_plan_input *plan_input; /* of this plan and of later ones */
    const fl_costs_origin *costs;    /* NULL: events.jsonl does not describe them */
    fl_profile *learned; /* out: the profile, corrected by live steps; NULL: not wanted */
    const fl_candidate *candidates; /* for events.jsonl */
    int n_candidates;
    const fl_activations *activations;   /* NULL: nothing is cached */
    const char *no_cache_why;            /* why nothing is cached; may be NULL */
    struct fl_metrics_listener *metrics; /* NULL: the job asks for no metrics */
    const char *run_dir;                 /* absolute; exists */
    int dir_fd;
    const char *job_text; /* every field of the job, for checkpoints and for the agents of other
                             hosts; NULL: unknown */
    const struct fl_checkpoint_store *checkpoints; /* where they go; NULL: none can be written */
    const struct fl_checkpoint *resume; /* the run continues from it; its workers are those of
                                           `plan`. NULL: the run begins */
    bool record_waits; /* with it: the files of the run stay as they are until all workers are
                          ready */
    bool returns;      /* `resume` is that of the snapshot, and no checkpoint */
    const fl_resume_origin *origin;    /* with it: how that came about. Without it: why the
                                          run begins again; NULL: it is new */
    struct fl_kept_snapshot *snapshot; /* of the run, kept for the next controller; NULL: none */
    fl_recovery_sums *recovered;       /* in and out: before this controller, and with it; may be
                                          NULL */
    struct fl_lasting *lasting; /* in and out: what the run keeps when it goes back; may be NULL */
    void (*all_ready)(void *ready_context); /* called once all workers are ready to train;
                                               NULL: nothing is to be done then */
    void *ready_context;
    fl_return_finder *find_return;                  /* NULL: the run never goes back */
    bool (*begins_again)(const void *find_context); /* whether the run does, after a start that has
                                                       failed; NULL: it does not */
    void *find_context;
    struct fl_held_ports *held_ports; /* in and out: from a survey to the controller, and from one
                                         controller to the next (control/link/held_port.h);
                                         NULL: nothing holds them */
    struct fl_model_file *model_file; /* that the workers fill; NULL: the weights are not kept */
    const struct fl_recording *recording; /* of the run to repeat; NULL: none */
    int n_devices;                        /* of the job */
    const fl_hosts *hosts;                /* of the run; NULL: this one alone */
    const char *host_options;  /* that give a run its hosts again, " --hosts FILE"; NULL: none */
    const fl_host_link *links; /* [n_links] between hosts, measured before the start */
    int n_links;
    bool hosts_measured;                    /* of fl_agent_options */
    struct fl_host_starter *starters;       /* [hosts->n] of fl_agent_options; may be NULL */
    const fl_host_facts *host_facts;        /* that its other hosts must have, too; with hosts */
    const struct fl_device_survey *devices; /* of the machine; NULL: unknown */
    const char *kernels;                    /* the instruction set, "avx2"; NULL: unknown */
    int64_t lead; /* steps from a decision to the step at which it takes effect: fl_due_lead */
    int64_t n_samples, n_steps, n_epochs;
    int64_t n_validation;               /* samples kept out of training; 0: none */
    const fl_callbacks *callbacks;      /* of the program; NULL: none */
    const struct fl_pass_options *pass; /* workers make a pass and do not train; NULL: they train */
    struct fl_pass_outcome *outcome;    /* out: of the pass */
    fl_worker_main *worker;
    void *context;
} fl_controller_options;

#endif
