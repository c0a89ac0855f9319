/* Names of hosts that come up one after the other, as those of pods: each resolves once its host is
 * there. */
#ifndef FL_LAUNCHER_RUN_HOSTS_HOST_NAMES_H
#define FL_LAUNCHER_RUN_HOSTS_HOST_NAMES_H

#include <frostline/status.h>

#include <stdint.h>

/* Wait until each of these names [n] has an IPv4 address, or is one; at once and every ten seconds,
 * log for which it waits. FL_EDEADLINE names the first that has none; a name server that does not
 * answer may add its own time-outs to timeout_ms. */
fl_status fl_host_names_await(const char *const *names, int n, int64_t timeout_ms) FL_MUST_CHECK;

#endif
