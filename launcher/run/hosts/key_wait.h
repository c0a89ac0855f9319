/* The keys of a run that begins later than its agents: the head writes hosts.key once it has the
 * run directory. */
#ifndef FL_LAUNCHER_RUN_HOSTS_KEY_WAIT_H
#define FL_LAUNCHER_RUN_HOSTS_KEY_WAIT_H

#include <frostline/status.h>

#include <stdint.h>

/* Wait until there is a file of this path; The log says once for what it waits, and for how
 * long. A path that cannot be looked up is left to whoever reads it.
 * FL_EDEADLINE: no such file in time. */
fl_status fl_host_key_await(const char *path, int64_t timeout_ms) FL_MUST_CHECK;

#endif
