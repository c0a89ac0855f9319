/* Compares what a host has with what the head has: paths may lead to other files there. */
#ifndef FL_LAUNCHER_RUN_JOINED_HOST_FACTS_H
#define FL_LAUNCHER_RUN_JOINED_HOST_FACTS_H

#include "control/state/hosts/host_facts.h"
#include "launcher/run/plan/preparation.h"

/* Of this host. p: checked. Of the weights to start from, names, shapes and the first and last
 * elements of each tensor are read. FL_EIO, FL_ENOMEM. */
fl_status fl_host_facts_make(const fl_preparation *p, fl_host_facts *out) FL_MUST_CHECK;

/* FL_EINVAL names the host, the path, what was found and what the head has. head_dir: the head's
 * working directory. Pure, but for the absolute form of paths. */
fl_status fl_host_facts_compare(const fl_job *job, const char *host, const char *head_dir,
                                const fl_host_facts *found,
                                const fl_host_facts *head) FL_MUST_CHECK;

#endif
