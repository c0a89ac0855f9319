/* Several hosts: what a run on them is made of before it starts, and its keys. */
#ifndef FL_LAUNCHER_RUN_HOSTS_HOSTS_H
#define FL_LAUNCHER_RUN_HOSTS_HOSTS_H

#include "control/state/hosts/hosts.h"
#include "launcher/job/cluster_file.h"

#include <frostline/job.h>

/* Where the hosts of a run come from. */
typedef struct fl_hosts_source {
    const char *name;   /* of the option or the field: for messages */
    const char *listen; /* "tcp://ADDRESS:PORT": agents join there, and the links of workers take
                           the next port; NULL: the head's address and free ports */
    const char *key;    /* a file of ready-made keys; NULL: new ones */
    int64_t names_ms;   /* to wait for the addresses of names; 0: not at all */
} fl_hosts_source;

/* The hosts of the file, with their keys. Names are resolved, that of `listen`, too.
 * Returns  FL_EINVAL for another text of `listen`, a host without an address, fewer than two hosts,
 *          and without `listen` if the first host is not this one, or for a file without keys;
 *          FL_EDEADLINE if a name has no address in time; FL_EIO without free ports; FL_ENOTSUP if
 *          this ZeroMQ has no CURVE */
fl_status fl_hosts_make(const fl_cluster_file *file, const fl_hosts_source *source,
                        const fl_job *job, fl_hosts *out) FL_MUST_CHECK;

/* The name of the source of a job's own hosts. */
#define FL_HOSTS_OF_JOB "hosts"

/* Which host has which ranks, for plans: without addresses, keys and ports. source: the name of the
 * option or the field, for messages. Returns FL_EINVAL for fewer than two hosts, or more memory
 * than devices.memory. */
fl_status fl_hosts_place(const fl_cluster_file *file, const char *source, const fl_job *job,
                         fl_hosts *out) FL_MUST_CHECK;

/* The hosts of the job's field `hosts`. */
void fl_hosts_of_job(const fl_job *job, fl_cluster_file *out);

/* Make the job one of these hosts: devices.count is that of all of them, and nothing is kept in the
 * memory of one host that another one would need. Returns FL_EINVAL, with the field, where the job
 * asks for what a run on several hosts does not have. */
fl_status fl_hosts_take_job(const fl_hosts *hosts, fl_job *job) FL_MUST_CHECK;

enum { FL_HOSTS_KEYS_TEXT = 512 };

/* New keys, as files have them: hosts.key for agents, and that of the head, which has one more.
 * FL_ENOTSUP if this ZeroMQ has no CURVE. */
fl_status fl_hosts_print_keys(char agents[FL_HOSTS_KEYS_TEXT],
                              char head[FL_HOSTS_KEYS_TEXT]) FL_MUST_CHECK;

/* Write RUN/hosts.key: the head's public key, and the secret one of the agents and workers. FL_EIO.
 */
fl_status fl_hosts_write_key(const fl_hosts *hosts, int dir_fd) FL_MUST_CHECK;

/* The run is over: nobody can join it any more. The record of its wait for hosts goes as well. */
void fl_hosts_remove_key(int dir_fd);

#endif
