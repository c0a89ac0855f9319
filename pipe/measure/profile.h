/* Measure what layers cost, in forked children, before the workers start. */
#ifndef FL_PIPE_MEASURE_PROFILE_H
#define FL_PIPE_MEASURE_PROFILE_H

#include "autodp/nccl/trial.h"
#include "device/machine/survey.h"

#include <frostline/plan.h>

/* n_at_once: the workers of this host, which compute at the same time; 0: as many as the job has.
 * Runs every distinct layer (same kind, same parameter shapes, same input shape) for real in a
 * forked child on one device's cores, and a ping-pong and an all-reduce between two children for
 * the link, each within timeout_ms. The caller must not have threads yet.
 * The link is measured through host memory, and then over NCCL where the job and *nccl allow that.
 * NCCL that fails, hangs or ends its process there is refused in *nccl with the reason, and the
 * link is the one through host memory; with autodp.transport nccl that is FL_ENOTSUP.
 * Returns FL_EFAILED when a child died (its message) or stayed stopped for fault.detect,
 * FL_EDEADLINE when it was too slow, or one call of a layer or of the loss took longer than
 * fault.deadline and 5 s, FL_ESTOPPED on SIGINT, SIGTERM or SIGHUP to the caller;
 * a SIGTERM is then raised again. */
fl_status fl_profile_measure(const fl_model *model, const fl_dataset *dataset, const fl_job *job,
                             const fl_device_survey *devices, int n_at_once, fl_nccl_trial *nccl,
                             int64_t timeout_ms, fl_profile *out) FL_MUST_CHECK;

/* Whether it measures a link between two children, for which they connect to each other at
 * 127.0.0.1. */
bool fl_profile_has_link(const fl_job *job, const fl_device_survey *devices, int n_at_once);

#endif
