/* The origin of the costs by which plans are chosen, for events.jsonl and status. */
#ifndef FL_CONTROL_STATE_HOSTS_COSTS_ORIGIN_H
#define FL_CONTROL_STATE_HOSTS_COSTS_ORIGIN_H

#include "control/state/hosts/hosts.h"
#include "pipe/cost/cluster.h"

#include <stdbool.h>

/* The origin of those of hosts of another kind. All borrowed. */
typedef struct fl_kind_origin {
    const char *host;     /* the first one of the kind */
    const char *kind;     /* fl_machine_kind_of; NULL: its profile was stated */
    const char *from;     /* "stated", "cached" or "measured" */
    const char *path;     /* of its profile; NULL: no file keeps it */
    const char *measured; /* when */
    double speed;         /* of the whole model, relative to the head's profile */
} fl_kind_origin;

typedef struct fl_costs_origin {
    const char *from;            /* "file" or "measured" */
    const char *path;            /* of the profile file; NULL: no file is kept */
    const char *measured, *note; /* when it was measured; what was wrong with the file, or NULL */
    int64_t live_steps;
    const fl_kind_origin *kinds; /* [n_kinds] */
    int n_kinds;
    const bool
        *has_speed; /* [FL_MAX_WORKERS] of each host: whether its speed was stated; or NULL */
} fl_costs_origin;

/* Where the costs of layers on the devices of this host are from: "stated", by its profile or its
 * speed, "cached" or "measured" for its kind, else "the head's". cluster, origin: may be NULL.
 * Pure. */
const char *fl_costs_origin_of_host(const fl_costs_origin *origin, const fl_cluster *cluster,
                                    const fl_host *host);

/* Where plans have the costs of this class of links from: "given" in the file of hosts, "measured",
 * or "assumed". Those that the file does not state were measured: between hosts at the start of a
 * run, others with the profile. Pure. */
const char *fl_costs_origin_of_link(const fl_cluster *cluster, const fl_profile *profile,
                                    fl_link_class class);

#endif
