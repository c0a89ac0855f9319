/* The machines of a run as values: which device is in which host and socket, what each device has,
 * and what messages cost over each class of link. */
#ifndef FL_PIPE_COST_CLUSTER_H
#define FL_PIPE_COST_CLUSTER_H

#include <frostline/plan.h>

/* The way between two devices. */
typedef enum fl_link_class {
    FL_LINK_SOCKET = 0, /* within a socket: processors or GPUs that share memory most directly */
    FL_LINK_HOST = 1,   /* within a host, between sockets */
    FL_LINK_HOSTS = 2,  /* between hosts */
    FL_N_LINKS = 3
} fl_link_class;

/* What a link costs. A message of n bytes takes latency_us + n / bytes_per_us. Between hosts the
 * rate is that of a host's network interface in one direction: its devices share it. */
typedef struct fl_link_cost {
    double latency_us;
    double bytes_per_us;
    double reduce_bytes_per_us; /* all-reduce between two, payload bytes per time */
} fl_link_cost;

enum { FL_KINDS_MAX = 8 };

/* Device d is the worker of rank d. About 28 KiB. */
typedef struct fl_cluster {
    int n_devices, n_hosts, n_sockets;
    int host_of[FL_MAX_WORKERS];          /* 0 .. n_hosts - 1 */
    int socket_of[FL_MAX_WORKERS];        /* 0 .. n_sockets - 1; each is in one host */
    int64_t memory_bytes[FL_MAX_WORKERS]; /* budget; 0: devices.memory of the job */
    double speed[FL_MAX_WORKERS];         /* relative to its kind's profile: 2 is twice as fast */
    int kind_of[FL_MAX_WORKERS]; /* 0: the plan's profile is of this kind of device; i: kind[i - 1]
                                  */
    int n_kinds;
    const fl_profile *kind[FL_KINDS_MAX]; /* [n_kinds] borrowed: costs of layers there */
    double
        kind_speed[FL_KINDS_MAX]; /* [n_kinds] of the whole model, relative to the plan's profile */
    fl_link_cost link[FL_N_LINKS]; /* rates that are 0: as the profile has them */
} fl_cluster;

/* Devices that are alike: n_hosts hosts of `devices` each, one socket a host, speed 1, the job's
 * memory, and links as the profile has them. n_hosts * devices <= FL_MAX_WORKERS. Pure. */
void fl_cluster_init(fl_cluster *cluster, int n_hosts, int devices);

/* Whether counts and numbers are in range, and devices of a socket share a host. FL_EINVAL and the
 * first thing that is wrong. */
fl_status fl_cluster_check(const fl_cluster *cluster) FL_MUST_CHECK;

/* The class of the link between two devices; of a device to itself, FL_LINK_SOCKET. Pure. */
fl_link_class fl_cluster_link_class(const fl_cluster *cluster, int a, int b);

/* What that class is between: "devices" (of a socket), "sockets" (of a host), "hosts". Pure. */
const char *fl_link_class_text(fl_link_class class);

/* What that class costs, with the profile's costs for what the cluster does not state: between
 * sockets, those between islands if the profile has them, else those within one; between hosts, 50
 * us and 1 GiB/s if the profile has none either. Pure. */
fl_link_cost fl_cluster_link(const fl_cluster *cluster, const fl_profile *profile,
                             fl_link_class class);

/* Add a kind of device by its profile, which is of the same model as the plan's. Returns what
 * kind_of has for its devices, or 0 when there are FL_KINDS_MAX others. Pure. */
int fl_cluster_add_kind(fl_cluster *cluster, const fl_profile *plans, const fl_profile *profile);

/* How fast a device computes the whole model, relative to the plan's profile. Pure. */
double fl_cluster_speed(const fl_cluster *cluster, int device);

/* The budget of a device, bytes. cluster NULL: the job's. Pure. */
int64_t fl_cluster_memory(const fl_cluster *cluster, const fl_job *job, int device);

/* Whether two devices have the same kind, speed and budget. Pure. */
bool fl_cluster_is_alike(const fl_cluster *cluster, int a, int b);

/* The n devices of [from->n_devices] in `kept`, in this order, as a cluster of their own: device i
 * of *out is kept[i]. Hosts and sockets keep their numbers. Pure. */
void fl_cluster_take(const fl_cluster *from, const int *kept, int n, fl_cluster *out);

#endif
