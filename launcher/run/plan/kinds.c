#include "launcher/run/plan/kinds.h"

#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "launcher/run/plan/found_kinds.h"

#include <string.h>
#include <unistd.h>

/* A kind so far from the head's has another cause: something was wrong when it was measured. */
static const double SPEED_RATIO_MAX = 1e4;

/* ---- stated ---- */

/* The kind of this profile, which another host may have named, too; or 0. */
static int find_kind(const fl_run_kinds *k, const char *path)
{
    for (int i = 0; i < k->cluster.n_kinds; i++) {
        if (k->origin[i].path != NULL && strcmp(k->origin[i].path, path) == 0) {
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
        return fl_cluster_file_refuse(file, host, "profile",
                                      "found more than %d kinds of hosts, allowed: %d",
                                      FL_KINDS_MAX, FL_KINDS_MAX);
    }
    fl_status status =
        fl_profile_read(file->profile[host], NULL, p->model, &k->profile[n], &k->about[n]);
    if (status != FL_OK) {
        return fl_cluster_file_refuse(
            file, host, "profile",
            "%s; allowed: a profile of this model, as pipe.profile keeps it on a host of this kind",
            fl_errmsg());
    }
    *kind = fl_cluster_add_kind(&k->cluster, p->profile, &k->profile[n]);
    k->origin[n] = (fl_kind_origin){.host = file->name[host],
                                    .from = "stated",
                                    .path = file->profile[host],
                                    .measured = k->about[n].measured,
                                    .speed = k->cluster.kind_speed[n]};
    return FL_OK;
}

/* ---- found ---- */

/* The kind of this found one; 0: the head's profile counts for it. */
static int add_found(const fl_preparation *p, const fl_found_kind *found, fl_run_kinds *k)
{
    int n = k->cluster.n_kinds;
    if (found->from == NULL || n == FL_KINDS_MAX) {
        return 0;
    }
    k->profile[n] = found->profile;
    k->about[n] = found->about;
    int kind = fl_cluster_add_kind(&k->cluster, p->profile, &k->profile[n]);
    double speed = k->cluster.kind_speed[n];
    if (!(speed > 1.0 / SPEED_RATIO_MAX && speed < SPEED_RATIO_MAX)) {
        k->cluster.n_kinds = n;
        if (found->path[0] != '\0') {
            (void)unlink(found->path); /* the next run measures it again */
        }
        fl_log(FL_LOG_WARN,
               "host %s: its profile makes it %.3g times as fast as the head; plans use the head's "
               "profile for it",
               found->host, speed);
        return 0;
    }
    k->origin[n] = (fl_kind_origin){.host = found->host,
                                    .kind = found->kind,
                                    .from = found->from,
                                    .path = found->path[0] == '\0' ? NULL : found->path,
                                    .measured = k->about[n].measured,
                                    .speed = speed};
    return kind;
}

static void add_all_found(const fl_preparation *p, fl_run_kinds *k, int kind[FL_MAX_WORKERS])
{
    const fl_found_kinds *f = p->found;
    int place[FL_KINDS_MAX] = {0};
    for (int i = 0; f != NULL && i < f->n; i++) {
        place[i] = add_found(p, &f->of[i], k);
    }
    for (int i = 0; f != NULL && i < k->cluster.n_hosts; i++) {
        kind[i] = f->kind_of[i] > 0 ? place[f->kind_of[i] - 1] : kind[i];
    }
}

/* ---- all ---- */

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
    add_all_found(p, k, kind);
    for (int d = 0; d < k->cluster.n_devices; d++) {
        k->cluster.kind_of[d] = kind[k->cluster.host_of[d]];
    }
    return FL_OK;
}

static bool has_profiles(const fl_preparation *p)
{
    const fl_cluster_file *file = p->cluster_file;
    bool any = file != NULL && p->found != NULL && p->found->n > 0;
    for (int i = 0; file != NULL && i < file->cluster.n_hosts; i++) {
        any = any || file->profile[i][0] != '\0';
    }
    return any;
}

void fl_run_kinds_drop(fl_preparation *p)
{
    if (p->kinds != NULL) {
        p->cluster = &p->cluster_file->cluster;
        p->costs->origin.kinds = NULL;
        p->costs->origin.n_kinds = 0;
        fl_free(p->kinds);
        p->kinds = NULL;
    }
}

fl_status fl_run_kinds_use(fl_preparation *p)
{
    fl_run_kinds *k = NULL;
    fl_run_kinds_drop(p);
    p->costs->origin.has_speed = p->cluster_file == NULL ? NULL : p->cluster_file->has_speed;
    if (!has_profiles(p)) {
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
