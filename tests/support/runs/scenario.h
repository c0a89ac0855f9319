/* One whole run of a small model, in a process of its own: what the job says, what happens to whom
 * at which moment, and how the run must end.
 *
 *     scenario s = {.name = "vote",
 *                   .sets = JOB_SETS("pipe.k", "2", "autodp.r", "1", "devices.count", "3"),
 *                   .n_samples = 203,
 *                   .at = {{.point = "vote", .who = 1, .act = kill_this_worker}}};
 *     scenario_start(&s);
 *     expect_lost(&s, 1, "was killed by signal 9");
 *
 * The run is in `s.dir`, below the test's `root`. Several may run at once. What the fields point to
 * is read by scenario_start alone, and by the processes that it forks. */
#ifndef FL_TESTS_SUPPORT_RUNS_SCENARIO_H
#define FL_TESTS_SUPPORT_RUNS_SCENARIO_H

#include "device/flight/flight.h"
#include "launcher/worker/worker_state.h"
#include "support/data/ragged.h"
#include "support/runs/runs.h"

#include <stdatomic.h>
#include <sys/types.h>

/* Fields of a job: path, value, ... */
#define JOB_SETS(...) ((const char *const[]){__VA_ARGS__, NULL})

enum {
    SCENARIO_DEEDS = 2,
    CONTROLLER = FL_MAX_WORKERS,
    EVERYBODY = -1,
    SCENARIO_PATIENCE_MS = 120000
};

/* What a worker does at a test point of its own (see worker_state.h); `step`, unless 0, counts the
 * steps that it has done. */
typedef struct scenario_deed {
    const char *point;
    int who; /* rank, or EVERYBODY */
    int64_t step;
    void (*act)(fl_worker_state *w);
} scenario_deed;

/* What the processes of a run leave to the test. */
typedef struct scenario_outcome {
    _Atomic int pid[FL_MAX_WORKERS + 1]; /* by rank, since the worker's first test point */
    _Atomic int n_deeds;
    _Atomic int64_t deed_us; /* when the last deed began; 0: none did */
    int64_t ended_us;        /* when the controller was done */
    fl_status status;        /* of fl_run_in */
    char message[4096];
} scenario_outcome;

typedef struct scenario {
    const char *name;        /* of the run directory */
    const char *const *sets; /* fields of the job that differ from its defaults */
    const char *const *more; /* set after those */
    const char *device;      /* devices.kind; NULL: FL_TEST_DEVICE of the environment, or a CPU */
    const fl_script_entry *script;
    int n_script;
    int64_t n_samples; /* of the toy data set */
    int blocks;        /* of the toy model; 0: 4 */
    float dropout;     /* its layers' */
    /* Samples of these lengths and a transformer for them (ragged.h) instead of images; NULL: the
     * toy data set. per_token: with a target for each token. */
    ragged_length *length;
    bool per_token;
    /* The job, model and data set as the test wants them beyond that; NULL: as they are. */
    fl_status (*adjust)(fl_job *job, fl_model **model, fl_dataset *data);
    scenario_deed at[SCENARIO_DEEDS];
    void (*at_point)(const char *point, fl_worker_state *w);           /* at every test point */
    void (*at_operation)(fl_flight_kind kind, int rank, int64_t step); /* as each one begins */
    const void *context;                                               /* the test's own */
    bool resumes;        /* the run in the directory continues, with these fields of the job */
    const char *repeats; /* directory of a run; NULL: none */

    char dir[128];
    pid_t controller;
    int alive; /* a pipe that ends when no process of the run lives */
    int wait_status;
    scenario_outcome *outcome; /* shared with the run; valid until scenario_forget */
} scenario;

/* In the controller and the workers of a run: its scenario. In the test: NULL. */
const scenario *scenario_here(void);

/* In a worker of a run: the process of its controller. */
pid_t controller_here(void);

/* Cleared memory that the test shares with the processes that it forks from now on. */
void *shared_memory(size_t size_bytes);

/* ---- deeds ---- */

void kill_this_worker(fl_worker_state *w);
void stop_this_worker(fl_worker_state *w);
void interrupt_the_run(fl_worker_state *w); /* as a user's Ctrl-C, at any point */
/* For EVERYBODY at the point "step": the leader sends the controller this signal, which stops the
 * run, and holds until it has the order. The run ends after this step or the next one. */
void stop_after_step(fl_worker_state *w, int number);
void interrupt_after_step(fl_worker_state *w);
void kill_the_controller(fl_worker_state *w);

/* ---- in a deed ---- */

/* Copy from and clear memory of a worker's device, behind all work that `params`'s stream has. */
void read_device(const fl_params *params, const float *from, int64_t n, float *to);
void clear_device(const fl_params *params, float *memory, int64_t n);

/* ---- a run ---- */

void scenario_start(scenario *s);

/* Wait until no process of the run lives. Fails the test if one still does after
 * SCENARIO_PATIENCE_MS. */
void scenario_wait(scenario *s);

/* Start it and wait for an end without failure; then forget it. */
void scenario_run(scenario *s);

/* Release what a test holds of a run that ended; its directory stays. */
void scenario_forget(scenario *s);

/* ---- how it ended; each waits for that, and fails the test otherwise ---- */

/* fl_run_in returned this. */
void expect_end(scenario *s, fl_status status);
/* The controller was killed, and all workers ended with it. */
void expect_beheaded(scenario *s);
/* A deed was done, and the message begins with this worker and holds `how`. Returns how long the
 * run took to end from the deed on, in us. */
int64_t expect_lost(scenario *s, int who, const char *how);

/* ---- what it left ---- */

/* The losses of all of its n_steps steps; the caller frees them. */
double *losses_of(const scenario *s, int n_steps);

/* Run this job, whose toy layers drop out a tenth, on one worker; the losses of its n_steps steps.
 * The caller frees them. */
double *losses_of_one(const char *const *sets, int64_t n_samples, int n_steps);

/* max |a - b| / |b| over the steps from .. to - 1. */
double worst_difference(const double *a, const double *b, int from, int to);

#endif
