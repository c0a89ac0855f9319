/* Addresses of hosts: what a name means, which ones are this host's, and ports that are free. */
#ifndef FL_LAUNCHER_RUN_HOSTS_HOST_ADDRESS_H
#define FL_LAUNCHER_RUN_HOSTS_HOST_ADDRESS_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

enum { FL_ADDRESS_TEXT = 16 }; /* "255.255.255.255" */

/* The IPv4 address of a host: of its name, or the text itself if it is one. FL_EINVAL, "NAME: why"
 * if it has none, and for one that no host may have (launcher/job/text/address.h). May ask name
 * servers, whose time-outs it waits for. */
fl_status fl_host_address(const char *name, char address[FL_ADDRESS_TEXT]) FL_MUST_CHECK;

/* The address from which this host reaches "tcp://ADDRESS:PORT"; "" if there is none. May ask name
 * servers; nothing is sent to the other host. */
void fl_host_address_toward(const char *endpoint, char address[FL_ADDRESS_TEXT]);

/* The IPv4 addresses of all network interfaces of this host, at most `max`, as numbers:
 * 0x0a000001 is 10.0.0.1. Returns how many; 0: they are not known. */
int fl_host_address_all(uint32_t *addresses, int max);

/* Whether this IPv4 address is one of this host. */
bool fl_host_address_is_own(const char *address);

/* Whether it is one of 127.0.0.0/8, which no other host can reach. Pure. */
bool fl_host_address_is_loopback(const char *address);

/* The address at which other hosts reach this one: that of a network interface, or, with NULL, the
 * one that `name`, this host's, resolves to, or else that of the first interface that is up.
 * FL_EINVAL: there is none. */
fl_status fl_host_address_own(const char *interface, const char *name,
                              char address[FL_ADDRESS_TEXT]) FL_MUST_CHECK;

/* A port of this host's address that nothing uses, and neither the next one: 1 .. 65534. Another
 * process may take it before the caller does. FL_EIO. */
fl_status fl_host_address_free_ports(const char *address, int *port) FL_MUST_CHECK;

/* Whether this process could listen at "tcp://ADDRESS:PORT" now; FL_EINVAL says why not. FL_OK if
 * ADDRESS is no IPv4 address. */
fl_status fl_host_address_check_port(const char *endpoint) FL_MUST_CHECK;

#endif
