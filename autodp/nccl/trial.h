/* Whether this host's NCCL can be loaded: found once, before any worker starts. */
#ifndef FL_AUTODP_NCCL_TRIAL_H
#define FL_AUTODP_NCCL_TRIAL_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

enum { FL_NCCL_TRIAL_MS = 20000, FL_NCCL_REASON_BYTES = 640 };

typedef struct fl_nccl_trial {
    int version; /* as ncclGetVersion gives it; 0: no process may load the library, because of */
    char reason[FL_NCCL_REASON_BYTES]; /* this; "": nobody has tried */
    bool is_broken;                    /* the library ended or held up the process that loaded it */
} fl_nccl_trial;

/* Load the library in a process of its own, and ask for its version: a file that is cut short, or
 * whose start never ends, harms that process alone.
 * kind            of the devices, as in fl_device_ops
 * driver_version  as in fl_native
 * Returns FL_EIO or FL_ENOMEM if there is no such process. Threads: the caller must have no others.
 */
fl_status fl_nccl_try(const char *kind, int driver_version, int64_t timeout_ms,
                      fl_nccl_trial *out) FL_MUST_CHECK;

bool fl_nccl_was_tried(const fl_nccl_trial *trial);

/* Whether a job's workers may load it. The job's own choice is fl_nccl_choose's. */
bool fl_nccl_is_usable(const fl_nccl_trial *trial);

/* From now on no worker uses it, for this reason. */
void fl_nccl_refuse(fl_nccl_trial *trial, const char *format, ...) FL_PRINTF(2, 3);

#endif
