/* Names of hosts that come up one after the other, as those of pods: each resolves once its host is
 * there. */
#ifndef FL_LAUNCHER_RUN_HOSTS_HOST_NAMES_H
#define FL_LAUNCHER_RUN_HOSTS_HOST_NAMES_H

#include <frostline/job.h>
#include <frostline/status.h>

#include <stdint.h>

/* Wait until each of these names [n] has an IPv4 address, or is one; at once and every ten seconds,
 * log for which it waits, and for how long. FL_EDEADLINE names the first that has none; a name
 * server that does not answer may add its own time-outs to timeout_ms. */
fl_status fl_host_names_await(const char *const *names, int n, int64_t timeout_ms) FL_MUST_CHECK;

/* Log a warning about the first host of the job whose address is a name without an IPv4 address on
 * this machine: a plan may be made where the names of the hosts are not known. It asks no further
 * names, so that name servers which do not answer are waited for once. */
void fl_host_names_warn(const fl_job *job);

#endif
