#include "launcher/run/plan/islands.h"

#include "device/errors/log.h"
#include "device/machine/islands.h"
#include "device/system/alloc.h"
#include "device/text/size_text.h"

static bool has_far(const fl_profile *profile)
{
    return profile->far_bytes_per_us > 0.0 && profile->far_reduce_bytes_per_us > 0.0;
}

bool fl_run_islands_cluster(const fl_device_survey *devices, const fl_profile *profile,
                            int n_workers, fl_cluster *out)
{
    fl_islands islands;
    fl_islands_find(devices, &islands);
    if (islands.n < 2 || n_workers > fl_islands_n_devices(devices) || !has_far(profile)) {
        return false;
    }
    fl_cluster_init(out, 1, n_workers);
    out->n_sockets = islands.n;
    for (int i = 0; i < n_workers; i++) {
        out->socket_of[i] = islands.of[i];
    }
    out->link[FL_LINK_HOST] =
        (fl_link_cost){.latency_us = profile->far_us,
                       .bytes_per_us = profile->far_bytes_per_us,
                       .reduce_bytes_per_us = profile->far_reduce_bytes_per_us};
    return true;
}

static void tell_islands(const fl_preparation *p)
{
    fl_islands islands;
    char text[FL_ISLANDS_TEXT], rate[2][FL_SIZE_TEXT_MAX];
    const fl_profile *f = p->profile;
    fl_islands_find(&p->devices, &islands);
    fl_log(FL_LOG_INFO,
           "%s: %s: a message takes %.1f us and moves %s/s there, %.1f us and %s/s between others",
           p->devices.n > 0 ? "GPUs" : "workers",
           fl_islands_text(&islands, fl_islands_n_devices(&p->devices), text), f->link_us,
           fl_size_text(f->link_bytes_per_us * 1e6, rate[0]), f->far_us,
           fl_size_text(f->far_bytes_per_us * 1e6, rate[1]));
}

bool fl_run_islands_split(const fl_device_survey *devices, const fl_profile *profile, int n_here,
                          fl_cluster *cluster)
{
    fl_islands islands;
    fl_islands_find(devices, &islands);
    if (islands.n < 2 || devices->n > 0 || n_here != devices->n_seats || !has_far(profile)) {
        return false;
    }
    for (int d = 0; d < n_here; d++) {
        if (islands.of[d] > 0) { /* the first one keeps the number of the host's */
            cluster->socket_of[d] = cluster->n_sockets + islands.of[d] - 1;
        }
    }
    cluster->n_sockets += islands.n - 1;
    return true;
}

static bool make_cluster(const fl_preparation *p, fl_cluster *out)
{
    if (p->hosts == NULL) {
        return fl_run_islands_cluster(&p->devices, p->profile, p->n_workers, out);
    }
    *out = *p->cluster;
    return fl_run_islands_split(&p->devices, p->profile, p->hosts->host[0].n, out);
}

/* Whether what the machine shows is asked for. */
static bool is_wanted(const fl_preparation *p)
{
    if (p->islands != NULL) {
        return false;
    }
    return p->hosts == NULL
               ? p->cluster == NULL && p->n_ranks == p->n_workers
               : p->cluster != NULL && p->cluster_file != NULL && !p->cluster_file->has_sockets[0];
}

fl_status fl_run_islands_use(fl_preparation *p)
{
    fl_cluster *cluster = NULL;
    if (!is_wanted(p)) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *cluster, (void **)&cluster));
    if (!make_cluster(p, cluster)) {
        fl_free(cluster);
        return FL_OK;
    }
    p->cluster = p->islands = cluster;
    tell_islands(p);
    return FL_OK;
}
