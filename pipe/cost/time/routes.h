/* What a plan's messages and all-reduces cost on the devices that it uses. Pure. */
#ifndef FL_PIPE_COST_TIME_ROUTES_H
#define FL_PIPE_COST_TIME_ROUTES_H

#include "pipe/cost/cluster.h"

/* The devices that sum one gradient: a ring within each host, then one ring between the hosts, in
 * which each host sends the bytes once. */
typedef struct fl_ring {
    int n_within; /* devices of the host that has most */
    int n_hosts;
    fl_link_cost within, between;
} fl_ring;

/* A ring of n devices that are all in one place. */
fl_ring fl_ring_of_one(fl_link_cost link, int n);

/* The time of one all-reduce, and the part of it in which bytes go between hosts, us. */
double fl_ring_us(const fl_ring *ring, double size_bytes);
double fl_ring_crossing_us(const fl_ring *ring, double size_bytes);

/* Where the pipelines of a plan run. n_on is zeros between calls. About 13 KiB. */
typedef struct fl_routes {
    const fl_cluster *cluster; /* borrowed; NULL: all are alike, in one place */
    int K, R;
    int device_of[FL_MAX_WORKERS];       /* [r * K + k] */
    fl_link_cost link[FL_N_LINKS];       /* [0] is all there is without a cluster */
    unsigned char class[FL_MAX_WORKERS]; /* [r * K + k] of the link from stage k to k + 1 */
    int n_sharing[FL_MAX_WORKERS];       /* messages that share its network interface */
    int n_on[FL_MAX_WORKERS];            /* scratch, by host */
} fl_routes;

/* K * R places on devices; NULL: device i has place i. */
void fl_routes_init(fl_routes *routes, const fl_cluster *cluster, const fl_profile *profile, int K,
                    int R, const int *device_of);

/* The speed of the device there, relative to its kind; and its kind. */
double fl_routes_speed(const fl_routes *routes, int replica, int stage);
int fl_routes_kind(const fl_routes *routes, int replica, int stage);

/* A message from this stage of this replica to the next one, or back, us. Replicas work in step, so
 * messages of one boundary between hosts are under way at the same time and share the interface. */
double fl_routes_message_us(const fl_routes *routes, int replica, int stage, double size_bytes);

/* Whether two replicas' pipelines take the same time. */
bool fl_routes_is_same(const fl_routes *routes, int a, int b);

/* The ring of all owners of these stages. */
fl_ring fl_routes_ring(fl_routes *routes, const int *stages, int n_stages);

/* For how long the busiest network interface sends in a step, in either direction, when each
 * message from stage k to k + 1 has size_bytes[k] [K - 1], and M of them go each way; 0: nothing
 * crosses. */
double fl_routes_crossing_us(const fl_routes *routes, int M, const double *size_bytes);

/* The owners of a stage send for `busy_us` between hosts, from begin_us on: a host's network
 * interface sends one stage's sums after the other's.
 * free_us [n_hosts] when each interface has sent what came before; brought up to date
 * Returns when the last of them has sent. */
double fl_routes_queue(fl_routes *routes, int stage, double begin_us, double busy_us,
                       double *free_us);

/* One small all-reduce over all workers that ends a step: up and down a tree, twice. */
double fl_routes_commit_us(fl_routes *routes);

#endif
