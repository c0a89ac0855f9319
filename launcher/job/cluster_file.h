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

#include <frostline/job.h>

#include <stddef.h>

enum {
    FL_HOST_NAME_MAX = FL_JOB_HOST_TEXT,
    FL_HOST_PROFILE_MAX = FL_TEXT_MAX,
    FL_CLUSTER_MESSAGE_MAX = 1024,
    FL_HOST_STATED_MAX = FL_TEXT_MAX + 96
};

/* About 400 KiB. */
typedef struct fl_cluster_file {
    char path[FL_TEXT_MAX];                            /* absolute; "": no file has the hosts */
    fl_cluster cluster;                                /* passes fl_cluster_check */
    char name[FL_MAX_WORKERS][FL_HOST_NAME_MAX];       /* of each host */
    char address[FL_MAX_WORKERS][FL_HOST_NAME_MAX];    /* of each host; "": not given */
    char profile[FL_MAX_WORKERS][FL_HOST_PROFILE_MAX]; /* file with costs of layers there; "": the
                                                          plan's own profile has them */
    bool has_speed[FL_MAX_WORKERS];                    /* whether the host's speed was given */
    bool has_sockets[FL_MAX_WORKERS];                  /* the same of its sockets */
    char written_in[FL_TEXT_MAX];                      /* the file that has them, or the job's */
    int line[FL_MAX_WORKERS], column[FL_MAX_WORKERS];  /* of each host there, from 1; line 0: no
                                                          file has it */
} fl_cluster_file;

/* Read the file. FL_EIO: it cannot be read; FL_EINVAL with "file:line:column: field: found ...,
 * allowed: ..."; *out is then undefined. */
fl_status fl_cluster_file_load(const char *path, fl_cluster_file *out) FL_MUST_CHECK;

/* A run's hosts from elsewhere than a file. init: none yet, and nothing is known of links. add: one
 * more, whose devices are dealt to its sockets in order; FL_MAX_WORKERS devices at most in all. */
void fl_cluster_file_init(fl_cluster_file *out);
void fl_cluster_file_add(fl_cluster_file *out, const fl_job_host *host);

/* Whether the costs of layers on this host are stated, by a profile or a speed: then nothing is
 * measured there. Pure. */
bool fl_cluster_file_states_costs(const fl_cluster_file *file, int host);

/* "memory 1.0 GiB, speed 0.5, profile b.yaml": what is stated of its devices; "": nothing. Returns
 * text. */
const char *fl_cluster_file_stated(const fl_cluster_file *file, int host,
                                   char text[FL_HOST_STATED_MAX]);

/* Fail because of a host's value, FL_EINVAL: "hosts.yaml:3:5: hosts: entry 2, KEY: ...", or, of
 * hosts that no file has, as a failure of the job's field `hosts`. */
fl_status fl_cluster_file_refuse(const fl_cluster_file *file, int host, const char *key,
                                 const char *format, ...) FL_PRINTF(4, 5) FL_MUST_CHECK;

/* As load, of a text. name: of the file, for messages. */
fl_status fl_cluster_file_parse(const char *name, const char *text, size_t size_bytes,
                                fl_cluster_file *out) FL_MUST_CHECK;

#endif
