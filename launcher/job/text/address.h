/* The address of a host as a user writes it. Pure: no name server is asked. */
#ifndef FL_LAUNCHER_JOB_TEXT_ADDRESS_H
#define FL_LAUNCHER_JOB_TEXT_ADDRESS_H

#include <frostline/status.h>

#include <stddef.h>

/* What a text may be. */
typedef enum fl_address_kind {
    FL_ADDRESS_NONE, /* it is no address */
    FL_ADDRESS_OR_NAME,
    FL_ADDRESS_ALONE,
} fl_address_kind;

/* Whether this is an IPv4 address that a host may have (device/text/ip_address.h), as four decimal
 * numbers, because a resolver also takes "10.1" and reads "010.77.1.1" as octal; or, with
 * FL_ADDRESS_OR_NAME, a name. FL_EINVAL, "found TEXT, ...; allowed: ...". */
fl_status fl_address_check(const char *text, fl_address_kind kind) FL_MUST_CHECK;

/* If some of the hosts have a loopback address, and others do not: the index of the first host that
 * has one. Otherwise -1. Host names are not looked at.
 * address  of n hosts, each `stride` bytes after the one before */
int fl_address_find_near(const char *address, size_t stride, int n);

/* FL_EINVAL, "found GIVEN (ADDRESS), which leads other hosts to themselves; ...", for such a host
 * whose address is written as `given`. */
fl_status fl_address_refuse_near(const char *given, const char *address);

#endif
