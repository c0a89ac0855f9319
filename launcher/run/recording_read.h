/* What a run that is over recorded of its decisions, read back so that another run repeats them. */
#ifndef FL_LAUNCHER_RUN_RECORDING_READ_H
#define FL_LAUNCHER_RUN_RECORDING_READ_H

#include "control/elastic/recording.h"

/* The run that is to repeat a recorded one, as far as both must agree. */
typedef struct fl_recording_facts {
    const fl_job *job;
    int n_layers, n_devices;
    int64_t n_samples, n_steps;
    uint64_t data_fingerprint; /* 0: unknown */
    const char *kernels;       /* the instruction set; another one is warned of */
} fl_recording_facts;

/* Read RUN/job.yaml and RUN/events.jsonl. *recording is zeros before, and to be finished also after
 * a failure.
 * Returns FL_EINVAL: a file is missing or damaged ("RUN/events.jsonl:17: ..."), the run was
 * recorded by a version that did not write all that is needed, or what is to be repeated is another
 * job, has other data or another number of devices. Nothing in the files is trusted. */
fl_status fl_recording_read(const char *run_dir, const fl_recording_facts *facts,
                            fl_recording *recording) FL_MUST_CHECK;

#endif
