/* The file of `frostline plan --cluster` and `frostline run --hosts`: hosts, their devices and the
 * links between them. A run needs the address of each host.
 *
 *     hosts:
 *       - {name: a, devices: 8, address: 10.0.0.1}
 *       - {name: b, devices: 8, address: 10.0.0.2, sockets: 2, memory: 40GiB, speed: 0.5}
 *       - {name: c, devices: 4, address: 10.0.0.3, profile: old-hosts.yaml}
 *     links:
 *       within_host: {latency_us: 5, bandwidth: 8GiB}
 *       between_hosts: {latency_us: 30, bandwidth: 3GiB}
 *
 * A run measures links that are not given; a plan assumes those between hosts. */
#ifndef FL_LAUNCHER_JOB_CLUSTER_FILE_H
#define FL_LAUNCHER_JOB_CLUSTER_FILE_H

#include "pipe/cost/cluster.h"

#include <stddef.h>

enum { FL_HOST_NAME_MAX = 64, FL_HOST_PROFILE_MAX = 256 };

/* About 350 KiB. */
typedef struct fl_cluster_file {
    fl_cluster cluster;                                /* passes fl_cluster_check */
    char name[FL_MAX_WORKERS][FL_HOST_NAME_MAX];       /* of each host */
    char address[FL_MAX_WORKERS][FL_HOST_NAME_MAX];    /* of each host; "": not given */
    char profile[FL_MAX_WORKERS][FL_HOST_PROFILE_MAX]; /* file with costs of layers there; "": the
                                                          plan's own profile has them */
} fl_cluster_file;

/* Read the file. FL_EIO: it cannot be read; FL_EINVAL with "file:line:column: field: found ...,
 * allowed: ..."; *out is then undefined. */
fl_status fl_cluster_file_load(const char *path, fl_cluster_file *out) FL_MUST_CHECK;

/* A run's hosts from elsewhere than a file. init: none yet, and nothing is known of links. add: one
 * more, with a socket for every devices / n_sockets of its n_devices; fewer than FL_MAX_WORKERS in
 * all. name and address are shorter than FL_HOST_NAME_MAX. */
void fl_cluster_file_init(fl_cluster_file *out);
void fl_cluster_file_add(fl_cluster_file *out, const char *name, const char *address, int n_devices,
                         int n_sockets);

/* As load, of a text. name: of the file, for messages. */
fl_status fl_cluster_file_parse(const char *name, const char *text, size_t size_bytes,
                                fl_cluster_file *out) FL_MUST_CHECK;

#endif
