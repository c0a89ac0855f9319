/* Which addresses a host may have. Every part that takes the address of a host asks here. */
#ifndef FL_DEVICE_TEXT_IP_ADDRESS_H
#define FL_DEVICE_TEXT_IP_ADDRESS_H

#include <stdbool.h>

/* Why no host may have this address, to follow "found ADDRESS, ": "a multicast address". NULL: a
 * host may have it, or the text is no address. All IPv6 addresses have a fault. Loopback addresses
 * have none: all hosts of a run may be one machine. Pure. */
const char *fl_ip_fault(const char *text);

/* Whether it is one of 127.0.0.0/8, which leads every host to itself. Pure. */
bool fl_ip_is_loopback(const char *text);

#endif
