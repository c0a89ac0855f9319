/* What was measured of the links between the hosts of a run. */
#ifndef FL_CONTROL_STATE_HOSTS_HOST_LINKS_H
#define FL_CONTROL_STATE_HOSTS_HOST_LINKS_H

#include "pipe/measure/far_link.h"

enum { FL_HOST_LINK_WHY = 191 };

/* How far a pair has come that was not reached. */
typedef enum fl_host_link_stage {
    FL_HOST_LINK_OTHER = 0,   /* nothing is known of a connection, or it was made, and failed */
    FL_HOST_LINK_UNCONNECTED, /* a connection was tried, and failed */
    FL_HOST_LINK_UNMET,       /* none was tried: the other host's process did not come */
    FL_HOST_LINK_NO_PORT,     /* none was tried: all ports at which a host may listen are in use */
} fl_host_link_stage;

typedef struct fl_host_link {
    int a, b;       /* indices of the hosts, a < b */
    uint64_t order; /* the number of the order to measure (fl_host_probe_order) */
    bool reached;
    fl_far_link link;               /* of a to b; reached */
    fl_host_link_stage stage;       /* not reached; else FL_HOST_LINK_OTHER */
    char why[FL_HOST_LINK_WHY + 1]; /* not reached */
} fl_host_link;

#endif
