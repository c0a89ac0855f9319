#include "control/state/hosts/costs_origin.h"

const char *fl_costs_origin_of_host(const fl_costs_origin *origin, const fl_cluster *cluster,
                                    const fl_host *host)
{
    bool known = origin != NULL && cluster != NULL && host->first < cluster->n_devices;
    int kind = known ? cluster->kind_of[host->first] : 0;
    if (kind > 0 && kind <= origin->n_kinds) {
        return origin->kinds[kind - 1].from;
    }
    bool is_stated =
        known && origin->has_speed != NULL && origin->has_speed[cluster->host_of[host->first]];
    return is_stated ? "stated" : "the head's";
}

const char *fl_costs_origin_of_link(const fl_cluster *cluster, const fl_profile *profile,
                                    fl_link_class class)
{
    bool unknown = class == FL_LINK_HOSTS && profile->hosts_bytes_per_us == 0.0;
    return cluster->link[class].bytes_per_us > 0.0 ? "given" : unknown ? "assumed" : "measured";
}
