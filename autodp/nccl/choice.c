#include "autodp/nccl/nccl.h"

void fl_nccl_choose(const fl_job *job, const fl_nccl_trial *trial, fl_group_options *options)
{
    bool possible = !options->device->ops->host_memory;
    bool wanted = job->autodp.transport != FL_TRANSPORT_HOST;
    options->backend = wanted && possible ? &fl_nccl_group_ops : NULL;
    options->refused = trial == NULL || fl_nccl_is_usable(trial) ? NULL : trial->reason;
    options->between_hosts = job->autodp.security == FL_SECURITY_NONE;
    options->every_pair = job->autodp.transport == FL_TRANSPORT_NCCL;
}
