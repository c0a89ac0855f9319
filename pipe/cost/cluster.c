#include "pipe/cost/cluster.h"

#include "device/errors/failure.h"

#include <math.h>

void fl_cluster_init(fl_cluster *c, int n_hosts, int devices)
{
    *c = (fl_cluster){.n_devices = n_hosts * devices, .n_hosts = n_hosts, .n_sockets = n_hosts};
    for (int d = 0; d < c->n_devices; d++) {
        c->host_of[d] = c->socket_of[d] = d / devices;
        c->speed[d] = 1.0;
    }
}

fl_link_class fl_cluster_link_class(const fl_cluster *c, int a, int b)
{
    if (c->host_of[a] != c->host_of[b]) {
        return FL_LINK_HOSTS;
    }
    return c->socket_of[a] == c->socket_of[b] ? FL_LINK_SOCKET : FL_LINK_HOST;
}

const char *fl_link_class_text(fl_link_class class)
{
    static const char *const text[FL_N_LINKS] = {"devices", "sockets", "hosts"};
    return text[class];
}

static bool has_far(const fl_profile *profile)
{
    return profile->far_bytes_per_us > 0.0 && profile->far_reduce_bytes_per_us > 0.0;
}

static fl_link_cost link_within(const fl_profile *profile, fl_link_class class)
{
    return class == FL_LINK_HOST && has_far(profile)
               ? (fl_link_cost){.latency_us = profile->far_us,
                                .bytes_per_us = profile->far_bytes_per_us,
                                .reduce_bytes_per_us = profile->far_reduce_bytes_per_us}
               : (fl_link_cost){.latency_us = profile->link_us,
                                .bytes_per_us = profile->link_bytes_per_us,
                                .reduce_bytes_per_us = profile->reduce_bytes_per_us};
}

/* Until a run has measured it. */
static fl_link_cost link_between_hosts(const fl_profile *profile)
{
    static const double RATE = 1024.0 * 1024 * 1024 * 1e-6; /* of 1 GiB/s, bytes per us */
    return profile->hosts_bytes_per_us > 0.0 && profile->hosts_reduce_bytes_per_us > 0.0
               ? (fl_link_cost){.latency_us = profile->hosts_us,
                                .bytes_per_us = profile->hosts_bytes_per_us,
                                .reduce_bytes_per_us = profile->hosts_reduce_bytes_per_us}
               : (fl_link_cost){
                     .latency_us = 50, .bytes_per_us = RATE, .reduce_bytes_per_us = RATE};
}

fl_link_cost fl_cluster_link(const fl_cluster *c, const fl_profile *profile, fl_link_class class)
{
    fl_link_cost link = c->link[class];
    if (link.bytes_per_us == 0.0 && class == FL_LINK_HOSTS) {
        return link_between_hosts(profile);
    }
    const fl_link_cost measured = link_within(profile, class);
    if (link.bytes_per_us == 0.0) {
        link.latency_us = measured.latency_us;
        link.bytes_per_us = measured.bytes_per_us;
    }
    if (link.reduce_bytes_per_us == 0.0) {
        link.reduce_bytes_per_us = measured.reduce_bytes_per_us;
    }
    return link;
}

int64_t fl_cluster_memory(const fl_cluster *c, const fl_job *job, int device)
{
    bool has_own = c != NULL && c->memory_bytes[device] > 0;
    return has_own ? c->memory_bytes[device] : job->devices.memory_bytes;
}

bool fl_cluster_is_alike(const fl_cluster *c, int a, int b)
{
    return c->memory_bytes[a] == c->memory_bytes[b] && c->speed[a] == c->speed[b] &&
           c->kind_of[a] == c->kind_of[b];
}

/* Forward and backward of one sample. */
static double model_us(const fl_profile *p)
{
    double us = p->loss_us;
    for (int i = 0; i < p->n_layers; i++) {
        us += p->layer[i].fwd_us + p->layer[i].fwd_token_us + p->layer[i].bwd_us +
              p->layer[i].bwd_token_us;
    }
    return us;
}

int fl_cluster_add_kind(fl_cluster *c, const fl_profile *plans, const fl_profile *profile)
{
    double us = model_us(profile);
    if (c->n_kinds == FL_KINDS_MAX) {
        return 0;
    }
    c->kind[c->n_kinds] = profile;
    c->kind_speed[c->n_kinds] = us > 0.0 ? model_us(plans) / us : 1.0;
    return ++c->n_kinds;
}

double fl_cluster_speed(const fl_cluster *c, int device)
{
    int kind = c->kind_of[device];
    return c->speed[device] * (kind == 0 ? 1.0 : c->kind_speed[kind - 1]);
}

void fl_cluster_take(const fl_cluster *from, const int *kept, int n, fl_cluster *out)
{
    *out = (fl_cluster){.n_devices = n, .n_hosts = from->n_hosts, .n_sockets = from->n_sockets};
    for (int i = 0; i < FL_N_LINKS; i++) {
        out->link[i] = from->link[i];
    }
    for (int i = 0; i < n; i++) {
        out->host_of[i] = from->host_of[kept[i]];
        out->socket_of[i] = from->socket_of[kept[i]];
        out->memory_bytes[i] = from->memory_bytes[kept[i]];
        out->speed[i] = from->speed[kept[i]];
        out->kind_of[i] = from->kind_of[kept[i]];
    }
    out->n_kinds = from->n_kinds;
    for (int i = 0; i < from->n_kinds; i++) {
        out->kind[i] = from->kind[i];
        out->kind_speed[i] = from->kind_speed[i];
    }
}

/* ---- whether it is valid ---- */

static bool is_positive(double x)
{
    return isfinite(x) && x > 0.0;
}

static fl_status check_link(const fl_cluster *c, fl_link_class class)
{
    static const char *const names[] = {"within a socket", "within a host", "between hosts"};
    const fl_link_cost *l = &c->link[class];
    bool is_absent = l->bytes_per_us == 0.0 && l->reduce_bytes_per_us == 0.0;
    if (is_absent) {
        return FL_OK;
    }
    if (!isfinite(l->latency_us) || l->latency_us < 0.0 || !is_positive(l->bytes_per_us) ||
        !is_positive(l->reduce_bytes_per_us)) {
        return fl_fail(FL_EINVAL,
                       "a link %s of %g us latency, %g and %g bytes per us; allowed: a latency of "
                       "0 or more and rates above 0",
                       names[class], l->latency_us, l->bytes_per_us, l->reduce_bytes_per_us);
    }
    return FL_OK;
}

static fl_status check_device(const fl_cluster *c, int d, int *host_of_socket)
{
    int host = c->host_of[d], socket = c->socket_of[d];
    if (host < 0 || host >= c->n_hosts || socket < 0 || socket >= c->n_sockets) {
        return fl_fail(FL_EINVAL,
                       "device %d is in host %d and socket %d; allowed: 0 .. %d and 0 .. %d", d,
                       host, socket, c->n_hosts - 1, c->n_sockets - 1);
    }
    if (host_of_socket[socket] >= 0 && host_of_socket[socket] != host) {
        return fl_fail(FL_EINVAL, "socket %d has device %d in host %d, and others in host %d",
                       socket, d, host, host_of_socket[socket]);
    }
    host_of_socket[socket] = host;
    if (!is_positive(c->speed[d]) || c->memory_bytes[d] < 0) {
        return fl_fail(FL_EINVAL,
                       "device %d has speed %g and %lld bytes; allowed: a speed above 0, and 0 "
                       "bytes or more",
                       d, c->speed[d], (long long)c->memory_bytes[d]);
    }
    if (c->kind_of[d] < 0 || c->kind_of[d] > c->n_kinds) {
        return fl_fail(FL_EINVAL, "device %d is of kind %d; allowed: 0 .. %d", d, c->kind_of[d],
                       c->n_kinds);
    }
    return FL_OK;
}

fl_status fl_cluster_check(const fl_cluster *c)
{
    int host_of_socket[FL_MAX_WORKERS];
    if (c->n_devices < 1 || c->n_devices > FL_MAX_WORKERS || c->n_hosts < 1 ||
        c->n_hosts > FL_MAX_WORKERS || c->n_sockets < 1 || c->n_sockets > FL_MAX_WORKERS) {
        return fl_fail(FL_EINVAL, "%d devices in %d sockets of %d hosts; allowed: 1 .. %d each",
                       c->n_devices, c->n_sockets, c->n_hosts, FL_MAX_WORKERS);
    }
    for (int i = 0; i < c->n_sockets; i++) {
        host_of_socket[i] = -1;
    }
    for (int d = 0; d < c->n_devices; d++) {
        FL_TRY(check_device(c, d, host_of_socket));
    }
    for (int i = 0; i < FL_N_LINKS; i++) {
        FL_TRY(check_link(c, (fl_link_class)i));
    }
    return FL_OK;
}
