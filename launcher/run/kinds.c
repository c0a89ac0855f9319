#include "launcher/run/kinds.h"

#include "device/alloc.h"
#include "device/failure.h"

#include <string.h>

/* The kind of this profile, which another host may have named, too; or 0. */
static int find_kind(const fl_run_kinds *k, const char *path)
{
    for (int i = 0; i < k->cluster.n_kinds; i++) {
        if (strcmp(k->origin[i].path, path) == 0) {
            return i + 1;
        }
    }
    return 0;
}

/* *kind: of the profile in this file. */
static fl_status read_kind(const fl_preparation *p, int host, fl_run_kinds *k, int *kind)
{
    const fl_cluster_file *file = p->cluster_file;
    int n = k->cluster.n_kinds;
    *kind = find_kind(k, file->profile[host]);
    if (*kind > 0) {
        return FL_OK;
    }
    if (n == FL_KINDS_MAX) {
        return fl_fail(FL_EINVAL, "host %s: profile: found more than %d kinds, allowed: %d",
                       file->name[host], FL_KINDS_MAX, FL_KINDS_MAX);
    }
    fl_status status =
        fl_profile_read(file->profile[host], NULL, p->model, &k->profile[n], &k->about[n]);
    if (status != FL_OK) {
        return fl_fail(FL_EINVAL, "host %s: profile: %s", file->name[host], fl_errmsg());
    }
    *kind = fl_cluster_add_kind(&k->cluster, p->profile, &k->profile[n]);
    k->origin[n] = (fl_kind_origin){.host = file->name[host],
                                    .path = file->profile[host],
                                    .measured = k->about[n].measured,
                                    .speed = k->cluster.kind_speed[n]};
    return FL_OK;
}

static fl_status read_kinds(const fl_preparation *p, fl_run_kinds *k)
{
    const fl_cluster_file *file = p->cluster_file;
    int kind[FL_MAX_WORKERS] = {0};
    k->cluster = file->cluster;
    for (int i = 0; i < k->cluster.n_hosts; i++) {
        if (file->profile[i][0] != '\0') {
            FL_TRY(read_kind(p, i, k, &kind[i]));
        }
    }
    for (int d = 0; d < k->cluster.n_devices; d++) {
        k->cluster.kind_of[d] = kind[k->cluster.host_of[d]];
    }
    return FL_OK;
}

static bool has_profiles(const fl_cluster_file *file)
{
    bool any = false;
    for (int i = 0; file != NULL && i < file->cluster.n_hosts; i++) {
        any = any || file->profile[i][0] != '\0';
    }
    return any;
}

fl_status fl_run_kinds_use(fl_preparation *p)
{
    fl_run_kinds *k = NULL;
    if (!has_profiles(p->cluster_file)) {
        return FL_OK;
    }
    FL_TRY(fl_alloc(sizeof *k, (void **)&k));
    fl_status status = read_kinds(p, k);
    if (status != FL_OK) {
        fl_free(k);
        return status;
    }
    p->kinds = k;
    p->cluster = &k->cluster;
    p->costs->origin.kinds = k->origin;
    p->costs->origin.n_kinds = k->cluster.n_kinds;
    return FL_OK;
}
