#include "launcher/run/plan/islands.h"

#include "device/errors/log.h"
#include "device/machine/islands.h"
#include "device/system/alloc.h"

bool fl_run_islands_cluster(const fl_device_survey *devices, const fl_profile *profile,
                            int n_workers, fl_cluster *out)
{
    fl_islands islands;
    fl_islands_find(devices, &islands);
    if (islands.n < 2 || n_workers > devices->n || profile->far_bytes_per_us <= 0.0 ||
        profile->far_reduce_bytes_per_us <= 0.0) {
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
    char text[FL_ISLANDS_TEXT];
    const fl_profile *f = p->profile;
    fl_islands_find(&p->devices, &islands);
    fl_log(FL_LOG_INFO,
           "GPUs: %s: a message takes %.1f us and moves %.0f MB/s there, %.1f us and %.0f MB/s "
           "between others",
           fl_islands_text(&islands, p->devices.n, text), f->link_us, f->link_bytes_per_us,
           f->far_us, f->far_bytes_per_us);
}

fl_status fl_run_islands_use(fl_preparation *p)
{
    fl_cluster *cluster = NULL;
    if (p->cluster != NULL || p->hosts != NULL || p->n_ranks != p->n_workers) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *cluster, (void **)&cluster));
    if (!fl_run_islands_cluster(&p->devices, p->profile, p->n_workers, cluster)) {
        fl_free(cluster);
        return FL_OK;
    }
    p->cluster = p->islands = cluster;
    tell_islands(p);
    return FL_OK;
}
