#include "control/observe/metrics/metrics_text.h"

#include <math.h>

static double end_of(const fl_metrics_host *h)
{
    return h->end_time_s;
}

static double clock_of(const fl_metrics_host *h)
{
    return h->clock_offset_s;
}

static double round_trip_of(const fl_metrics_host *h)
{
    return h->round_trip_s;
}

/* Hosts of which it is not known are left out. */
static void each_host(fl__metrics_text *o, const fl_metrics *m, const char *name, const char *help,
                      double (*of)(const fl_metrics_host *))
{
    bool any = false;
    for (int i = 0; i < m->n_hosts; i++) {
        double value = of(&m->hosts[i]);
        if (isfinite(value) && !any) {
            fl__metrics_family(o, name, "gauge", help);
            any = true;
        }
        if (isfinite(value)) {
            fl__metrics_real(o, name, FL__METRICS_LABELS("host", m->hosts[i].name), value);
        }
    }
}

static void put_links(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const latency = "frostline_link_latency_seconds";
    static const char *const rate = "frostline_link_bytes_per_second";
    fl__metrics_family(o, latency, "gauge",
                       "Latency of a class of links between workers, as plans know it.");
    for (int i = 0; i < FL_METRICS_LINKS; i++) {
        fl__metrics_real(o, latency, FL__METRICS_LABELS("between", m->links[i].between),
                         m->links[i].latency_seconds);
    }
    fl__metrics_family(o, rate, "gauge",
                       "Bandwidth of a class of links between workers, as plans know it.");
    for (int i = 0; i < FL_METRICS_LINKS; i++) {
        fl__metrics_real(o, rate, FL__METRICS_LABELS("between", m->links[i].between),
                         m->links[i].bytes_per_second);
    }
}

/* Of a host that is left out: the one that it does not reach. */
static void put_apart(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const name = "frostline_host_apart";
    bool any = false;
    for (int i = 0; i < m->n_hosts; i++) {
        const fl_metrics_host *h = &m->hosts[i];
        if (h->apart_from == NULL) {
            continue;
        }
        if (!any) {
            fl__metrics_family(
                o, name, "gauge",
                "A host that the run does without because it and the host `from` do not reach "
                "each other.");
            any = true;
        }
        fl__metrics_integer(o, name, FL__METRICS_LABELS("host", h->name, "from", h->apart_from), 1);
    }
}

void fl__metrics_put_hosts(fl__metrics_text *o, const fl_metrics *m)
{
    static const char *const info = "frostline_host_info";
    static const char *const workers = "frostline_host_workers";
    if (m->n_hosts == 0) {
        return;
    }
    fl__metrics_family(o, info, "gauge", "A host's address and state.");
    for (int i = 0; i < m->n_hosts; i++) {
        const fl_metrics_host *h = &m->hosts[i];
        fl__metrics_integer(
            o, info, FL__METRICS_LABELS("host", h->name, "address", h->address, "state", h->state),
            1);
    }
    fl__metrics_family(o, workers, "gauge", "Workers of a host that are members of the run.");
    for (int i = 0; i < m->n_hosts; i++) {
        fl__metrics_integer(o, workers, FL__METRICS_LABELS("host", m->hosts[i].name),
                            m->hosts[i].n_workers);
    }
    put_apart(o, m);
    each_host(o, m, "frostline_host_end_time_seconds",
              "When a host was drained or lost, since 1970.", end_of);
    each_host(o, m, "frostline_host_clock_offset_seconds", "A host's time of day minus the head's.",
              clock_of);
    each_host(o, m, "frostline_host_round_trip_seconds",
              "A message from the head to a host's agent and back.", round_trip_of);
    put_links(o, m);
}
