/* The address of a host as a user writes it. Pure: no name server is asked. */
#ifndef FL_LAUNCHER_JOB_TEXT_ADDRESS_H
#define FL_LAUNCHER_JOB_TEXT_ADDRESS_H

#include <frostline/status.h>

/* Whether this is a name, or an IPv4 address of four decimal numbers: a resolver also takes "10.1",
 * and reads "010.77.1.1" as octal. FL_EINVAL, "found TEXT, allowed: ...". */
fl_status fl_address_check_form(const char *text) FL_MUST_CHECK;

/* The same, and no address of many hosts: a multicast one, or 255.255.255.255. */
fl_status fl_address_check_host(const char *text) FL_MUST_CHECK;

#endif
