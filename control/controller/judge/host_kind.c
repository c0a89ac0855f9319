#include "control/controller/judge/host_kind.h"

#include "device/errors/log.h"

#include <string.h>

int fl_host_kind_find(const fl_costs_origin *costs, fl_device_kind devices,
                      const fl_machine_kind *own, const fl_machine_kind *kind, bool *known)
{
    const char *text = fl_machine_kind_of(kind, devices);
    *known = true;
    if (strcmp(text, fl_machine_kind_of(own, devices)) == 0) {
        return 0;
    }
    for (int i = 0; costs != NULL && i < costs->n_kinds; i++) {
        if (costs->kinds[i].kind != NULL && strcmp(costs->kinds[i].kind, text) == 0) {
            return i + 1;
        }
    }
    *known = false;
    return 0;
}

static bool is_stated(const fl_costs_origin *costs, const fl_cluster *cluster, const fl_host *host)
{
    int kind = cluster->kind_of[host->first];
    bool has_profile =
        costs != NULL && kind > 0 && kind <= costs->n_kinds && costs->kinds[kind - 1].kind == NULL;
    return has_profile || (costs != NULL && costs->has_speed != NULL &&
                           costs->has_speed[cluster->host_of[host->first]]);
}

void fl_host_kind_take(const fl_costs_origin *costs, fl_device_kind devices, const fl_host *host,
                       const fl_machine_kind *kind, fl_cluster *cluster)
{
    fl_machine_kind own;
    bool known;
    if (host->first + host->n > cluster->n_devices || is_stated(costs, cluster, host)) {
        return;
    }
    fl_machine_kind_read("", &own);
    int now = fl_host_kind_find(costs, devices, &own, kind, &known);
    if (now != cluster->kind_of[host->first]) {
        fl_log(known ? FL_LOG_INFO : FL_LOG_WARN, "host %s is of another kind than before, %s: %s",
               host->name, fl_machine_kind_of(kind, devices),
               known ? "plans use the profile of that kind for it"
                     : "the run has no profile of that kind, and plans use the head's for it");
    }
    for (int rank = host->first; rank < host->first + host->n; rank++) {
        cluster->kind_of[rank] = now;
    }
}
