/* What an entry of `hosts` may have, in a job and in a file of hosts, and how it is checked. */
#ifndef FL_LAUNCHER_JOB_SCHEMA_HOST_KEYS_H
#define FL_LAUNCHER_JOB_SCHEMA_HOST_KEYS_H

#include "launcher/job/schema/schema.h"

/* Items are fl_job_host. A file of hosts may leave the address out, and has FL_MAX_WORKERS hosts at
 * most. */
extern const fl_list fl__hosts_of_job;
extern const fl_list fl__hosts_of_file;

/* The hosts before an entry: n names and n addresses, each `..._stride` bytes after the one before.
 * An address "" is none. */
typedef struct fl__hosts_before {
    const char *name, *address;
    size_t name_stride, address_stride;
    int n, n_devices;
} fl__hosts_before;

/* Check entry before->n, whose values are in range, against itself and those before it. FL_EINVAL
 * with "entry 2, name: found ..., allowed: ...". Pure. */
fl_status fl__host_check(const fl_job_host *host, const fl__hosts_before *before) FL_MUST_CHECK;

/* Hosts reach each other: none has a loopback address, or all have one, and are one machine.
 * FL_EINVAL as above; *entry: which one, from 0. Names are not known here. Pure. */
fl_status fl__hosts_check_near(const fl__hosts_before *all, int *entry) FL_MUST_CHECK;

#endif
