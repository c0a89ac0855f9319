/* Reads the recorded decisions of a finished run, so that another run can repeat them. */
#ifndef FL_LAUNCHER_RUN_RUNS_RECORDING_READ_H
#define FL_LAUNCHER_RUN_RUNS_RECORDING_READ_H

#include "control/elastic/recording.h"

/* The new run, as far as it must agree with the recorded one. */
typedef struct fl_recording_facts {
    const fl_job *job;
    int n_layers, n_devices, n_ranks;
    int64_t n_samples, n_steps;
    uint64_t data_fingerprint; /* 0: unknown */
    const char *kernels;       /* the instruction set; a different one causes a warning */
} fl_recording_facts;

/* Read RUN/job.yaml and RUN/events.jsonl. *recording is zeroed before; call fini after a failure,
 * too.
 * Returns FL_EINVAL if a file is missing or damaged ("RUN/events.jsonl:17: ..."), if the run was
 * recorded by a version that did not write everything that is needed, or if the new run has another
 * job, other data or another number of devices. Nothing in the files is trusted. */
fl_status fl_recording_read(const char *run_dir, const fl_recording_facts *facts,
                            fl_recording *recording) FL_MUST_CHECK;

#endif
