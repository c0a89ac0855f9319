/* What was measured of the links between the hosts of a run. */
#ifndef FL_CONTROL_STATE_HOST_LINKS_H
#define FL_CONTROL_STATE_HOST_LINKS_H

#include "pipe/measure/far_link.h"

enum { FL_HOST_LINK_WHY = 191 };

typedef struct fl_host_link {
    int a, b; /* indices of the hosts, a < b */
    bool reached;
    fl_far_link link;               /* of a to b; reached */
    char why[FL_HOST_LINK_WHY + 1]; /* not reached */
} fl_host_link;

#endif
