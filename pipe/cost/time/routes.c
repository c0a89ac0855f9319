#include "pipe/cost/time/routes.h"

#include <math.h>
#include <string.h>

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* ---- rings ---- */

fl_ring fl_ring_of_one(fl_link_cost link, int n)
{
    return (fl_ring){.n_within = n, .n_hosts = 1, .within = link, .between = link};
}

/* A ring of n sends 2 (n - 1) / n of the bytes from each, in 2 (n - 1) messages. The link's rate is
 * that of two, for which the factor is 1. */
static double ring_us(const fl_link_cost *link, int n, double size_bytes)
{
    return 2.0 * (n - 1) * link->latency_us +
           2.0 * (n - 1) / n * size_bytes / link->reduce_bytes_per_us;
}

double fl_ring_crossing_us(const fl_ring *ring, double size_bytes)
{
    return ring->n_hosts == 1 ? 0.0 : ring_us(&ring->between, ring->n_hosts, size_bytes);
}

double fl_ring_us(const fl_ring *ring, double size_bytes)
{
    double within = ring->n_within == 1 ? 0.0 : ring_us(&ring->within, ring->n_within, size_bytes);
    return within + fl_ring_crossing_us(ring, size_bytes);
}

/* ---- pipelines ---- */

static int host_of(const fl_routes *r, int place)
{
    return r->cluster->host_of[r->device_of[place]];
}

/* Messages of one boundary that touch the busier of its two hosts. */
static void count_sharing(fl_routes *r, int stage)
{
    for (int at = stage; at < r->K * r->R; at += r->K) {
        if (r->class[at] == FL_LINK_HOSTS) {
            r->n_on[host_of(r, at)]++;
            r->n_on[host_of(r, at + 1)]++;
        }
    }
    for (int at = stage; at < r->K * r->R; at += r->K) {
        r->n_sharing[at] = larger(r->n_on[host_of(r, at)], r->n_on[host_of(r, at + 1)]);
    }
    for (int at = stage; at < r->K * r->R; at += r->K) {
        r->n_on[host_of(r, at)] = r->n_on[host_of(r, at + 1)] = 0;
    }
}

void fl_routes_init(fl_routes *r, const fl_cluster *cluster, const fl_profile *profile, int K,
                    int R, const int *device_of)
{
    r->cluster = cluster;
    r->K = K;
    r->R = R;
    r->link[0] =
        (fl_link_cost){profile->link_us, profile->link_bytes_per_us, profile->reduce_bytes_per_us};
    if (cluster == NULL) {
        return;
    }
    memset(r->n_on, 0, (size_t)cluster->n_hosts * sizeof *r->n_on);
    for (int i = 0; i < FL_N_LINKS; i++) {
        r->link[i] = fl_cluster_link(cluster, profile, (fl_link_class)i);
    }
    for (int i = 0; i < K * R; i++) {
        r->device_of[i] = device_of == NULL ? i : device_of[i];
    }
    for (int i = 0; i + 1 < K * R; i++) {
        r->class[i] =
            (unsigned char)fl_cluster_link_class(cluster, r->device_of[i], r->device_of[i + 1]);
    }
    for (int k = 0; k + 1 < K; k++) {
        count_sharing(r, k);
    }
}

double fl_routes_speed(const fl_routes *r, int replica, int stage)
{
    return r->cluster == NULL ? 1.0 : r->cluster->speed[r->device_of[replica * r->K + stage]];
}

int fl_routes_kind(const fl_routes *r, int replica, int stage)
{
    return r->cluster == NULL ? 0 : r->cluster->kind_of[r->device_of[replica * r->K + stage]];
}

double fl_routes_message_us(const fl_routes *r, int replica, int stage, double size_bytes)
{
    int at = replica * r->K + stage;
    int class = r->cluster == NULL ? 0 : r->class[at];
    int n_sharing = class == FL_LINK_HOSTS ? r->n_sharing[at] : 1;
    const fl_link_cost *link = &r->link[class];
    return link->latency_us +
           (size_bytes > 0.0 ? n_sharing * size_bytes / link->bytes_per_us : 0.0);
}

bool fl_routes_is_same(const fl_routes *r, int a, int b)
{
    for (int k = 0; k < r->K && r->cluster != NULL; k++) {
        int x = a * r->K + k, y = b * r->K + k;
        bool is_last = k + 1 == r->K;
        if (fl_routes_speed(r, a, k) != fl_routes_speed(r, b, k) ||
            fl_routes_kind(r, a, k) != fl_routes_kind(r, b, k) ||
            (!is_last && (r->class[x] != r->class[y] ||
                          (r->class[x] == FL_LINK_HOSTS && r->n_sharing[x] != r->n_sharing[y])))) {
            return false;
        }
    }
    return true;
}

/* ---- all-reduces ---- */

/* The devices of some stages, by host. */
typedef struct census {
    int n_hosts, n_most;  /* on the host that has most */
    bool leaves_a_socket; /* some host has them in more than one */
} census;

static census count_hosts(fl_routes *r, const int *stages, int n_stages)
{
    int socket_of_host[FL_MAX_WORKERS];
    census c = {0};
    for (int i = 0; i < n_stages; i++) {
        for (int at = stages[i]; at < r->K * r->R; at += r->K) {
            int host = host_of(r, at), socket = r->cluster->socket_of[r->device_of[at]];
            bool is_first = r->n_on[host]++ == 0;
            c.n_hosts += is_first;
            c.n_most = larger(c.n_most, r->n_on[host]);
            c.leaves_a_socket |= !is_first && socket_of_host[host] != socket;
            socket_of_host[host] = socket;
        }
    }
    for (int i = 0; i < n_stages; i++) {
        for (int at = stages[i]; at < r->K * r->R; at += r->K) {
            r->n_on[host_of(r, at)] = 0;
        }
    }
    return c;
}

fl_ring fl_routes_ring(fl_routes *r, const int *stages, int n_stages)
{
    if (r->cluster == NULL) {
        return fl_ring_of_one(r->link[0], n_stages * r->R);
    }
    census c = count_hosts(r, stages, n_stages);
    return (fl_ring){.n_within = c.n_most,
                     .n_hosts = c.n_hosts,
                     .within = r->link[c.leaves_a_socket ? FL_LINK_HOST : FL_LINK_SOCKET],
                     .between = r->link[FL_LINK_HOSTS]};
}

double fl_routes_crossing_us(const fl_routes *r, int M, const double *size_bytes)
{
    double sent[FL_MAX_WORKERS], most = 0.0;
    if (r->cluster == NULL || r->cluster->n_hosts == 1) {
        return 0.0;
    }
    memset(sent, 0, (size_t)r->cluster->n_hosts * sizeof *sent);
    for (int at = 0; at < r->K * r->R; at++) {
        int k = at % r->K;
        if (k + 1 < r->K && r->class[at] == FL_LINK_HOSTS) {
            double *below = &sent[host_of(r, at)], *above = &sent[host_of(r, at + 1)];
            *below += M * size_bytes[k];
            *above += M * size_bytes[k];
            double more = *below > *above ? *below : *above;
            most = more > most ? more : most;
        }
    }
    return most / r->link[FL_LINK_HOSTS].bytes_per_us;
}

double fl_routes_queue(fl_routes *r, int stage, double begin_us, double busy_us, double *free_us)
{
    double last = 0.0;
    for (int at = stage; at < r->K * r->R; at += r->K) {
        int host = host_of(r, at);
        if (r->n_on[host]++ == 0) { /* its other owners have added theirs before */
            double from = free_us[host] > begin_us ? free_us[host] : begin_us;
            free_us[host] = from + busy_us;
            last = free_us[host] > last ? free_us[host] : last;
        }
    }
    for (int at = stage; at < r->K * r->R; at += r->K) {
        r->n_on[host_of(r, at)] = 0;
    }
    return last;
}

static double tree_us(const fl_link_cost *link, int n)
{
    return n == 1 ? 0.0 : 2.0 * ceil(log2(n)) * link->latency_us;
}

double fl_routes_commit_us(fl_routes *r)
{
    int stages[FL_MAX_STAGES];
    for (int k = 0; k < r->K; k++) {
        stages[k] = k;
    }
    fl_ring all = fl_routes_ring(r, stages, r->K);
    return tree_us(&all.within, all.n_within) +
           (all.n_hosts == 1 ? 0.0 : tree_us(&all.between, all.n_hosts));
}
