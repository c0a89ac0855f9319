/* The keys of a run on several hosts, as hosts.key and head.key have them. */
#ifndef FL_LAUNCHER_RUN_HOSTS_KEY_READ_H
#define FL_LAUNCHER_RUN_HOSTS_KEY_READ_H

#include "launcher/run/hosts/hosts.h"

/* Read hosts.key. FL_EINVAL, "PATH: what is wrong": others may read it, it is not a regular file,
 * or it holds no keys. */
fl_status fl_hosts_read_key(const char *path, fl_curve_keys *out) FL_MUST_CHECK;

/* The same from what ssh passes on, or a user types: `fd`, which may stay open behind the keys.
 * FL_EINVAL if it ends without keys; FL_EDEADLINE after wait_ms. */
fl_status fl_hosts_read_key_input(int fd, int64_t wait_ms, fl_curve_keys *out) FL_MUST_CHECK;

/* Read head.key, which has the secret key of the head, too. FL_EINVAL as above. */
fl_status fl_hosts_read_head_key(const char *path, fl_curve_keys *out,
                                 char head[FL_CURVE_KEY]) FL_MUST_CHECK;

/* As other processes find this file: absolute, but with its name as it is. What is mounted from a
 * Secret of Kubernetes are links into a folder that has another name in each pod. */
void fl_hosts_key_path(const char *path, char whole[PATH_MAX]);

#endif
