#include "control/state/hosts/host_sight.h"

#include <stdio.h>

void fl_host_sight_add(fl_host_sight *sight, int a, int b, uint16_t port, const char *why)
{
    for (int i = 0; i < sight->n; i++) {
        const fl_host_pair *p = &sight->pair[i];
        if ((p->a == a && p->b == b) || (p->a == b && p->b == a)) {
            return;
        }
    }
    if (sight->n < FL_HOST_PAIRS_MAX) {
        fl_host_pair *p = &sight->pair[sight->n++];
        *p = (fl_host_pair){.a = a, .b = b, .port = port};
        snprintf(p->why, sizeof p->why, "%s", why);
    }
}

static int count_pairs(const fl_host_sight *sight, int host)
{
    int n = 0;
    for (int i = 0; i < sight->n; i++) {
        n += sight->pair[i].a == host || sight->pair[i].b == host;
    }
    return n;
}

/* Whether the run is better without `a` than without `b`. */
static bool is_better(const fl_host_loss *a, const fl_host_loss *b)
{
    if (a->keeps_all != b->keeps_all) {
        return a->keeps_all;
    }
    if (a->has_plan != b->has_plan) {
        return a->has_plan;
    }
    if (a->has_plan && (a->step_us < b->step_us || b->step_us < a->step_us)) {
        return a->step_us < b->step_us;
    }
    return a->n_devices <= b->n_devices;
}

int fl_host_sight_choose(const fl_host_sight *sight, const fl_host_loss *without, int n_hosts)
{
    int best = -1, most = 0;
    for (int host = 1; host < n_hosts; host++) {
        int n = count_pairs(sight, host);
        if (n > most || (n > 0 && n == most && is_better(&without[host], &without[best]))) {
            best = host;
            most = n;
        }
    }
    return best;
}

void fl_host_sight_drop(fl_host_sight *sight, int host)
{
    int n = 0;
    for (int i = 0; i < sight->n; i++) {
        if (sight->pair[i].a != host && sight->pair[i].b != host) {
            sight->pair[n++] = sight->pair[i];
        }
    }
    sight->n = n;
}
