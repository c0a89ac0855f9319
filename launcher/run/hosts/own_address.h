/* An address that a user gives for this host, checked before other hosts are told it: workers
 * listen at it, so it must be one of this host's own, and it must lead the others here. */
#ifndef FL_LAUNCHER_RUN_HOSTS_OWN_ADDRESS_H
#define FL_LAUNCHER_RUN_HOSTS_OWN_ADDRESS_H

#include "launcher/run/hosts/host_address.h"

#include <stdbool.h>

/* As fl_host_address, which asks name servers. An address that no host may have, as "*" or "[::]",
 * is refused with those of this host that would do. */
fl_status fl_own_address_resolve(const char *given, char address[FL_ADDRESS_TEXT]) FL_MUST_CHECK;

/* FL_EINVAL, with what was found and the addresses of this host that would do, if `address` is no
 * address of an interface of this host, or is a loopback one.
 * given  as the user wrote it: the address itself, or a name for it
 * near   the other hosts are this machine, too: a loopback address leads them here */
fl_status fl_own_address_check(const char *given, const char *address, bool near) FL_MUST_CHECK;

/* FL_EINVAL, with what was found, if `address`, which is to be another host's, is one of this
 * host's network interfaces, or the broadcast address of their networks: no other host has it. A
 * loopback address is not: all hosts may be one machine. */
fl_status fl_own_address_check_other(const char *given, const char *address) FL_MUST_CHECK;

#endif
