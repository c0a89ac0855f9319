/* The training group over NCCL, for devices whose streams a library can use: NVIDIA GPUs, and the
 * asynchronous test device with a stand-in of NCCL. */
#ifndef FL_AUTODP_NCCL_NCCL_H
#define FL_AUTODP_NCCL_NCCL_H

#include "autodp/group/backend.h"
#include "autodp/nccl/trial.h"

#include <frostline/job.h>

/* With options->keeper, channels and buckets of a group that is connected are split off one
 * communicator of all members, if all pairs can use NCCL. It comes from the group before where that
 * takes less time. Without a keeper, each opens for itself.
 *
 * Channels and buckets use NCCL where all their members can: the same version of it, and each on a
 * device of its own, since NCCL refuses two ranks on one. The others go through host memory, as
 * those of fl_host_group_ops do. All members of a group must be opened with the same table.
 * options->every_pair: FL_ENOTSUP, with the pair and the reason, if a pair cannot use NCCL.
 *
 * A bucket is summed by ncclAllReduce, in the order of additions that NCCL chooses for its owners.
 * A reduce-scatter is an all-reduce, too, so that it has the same bits. */
extern const fl_group_ops fl_nccl_group_ops;

/* Fill backend, refused and every_pair as the job's autodp.transport says; options->device is
 * filled. trial: of this host, borrowed while the group opens; NULL: nobody has tried. */
void fl_nccl_choose(const fl_job *job, const fl_nccl_trial *trial, fl_group_options *options);

#endif
