/* One host's part in measuring the links between the hosts of a run, before its plan is chosen:
 *
 *     head (host_survey.h) ── order ──> each host ── a net with one other host at a time ── ... ──>
 *          <── result of each pair ──  the host of the lower index in it, and whoever failed
 *
 * The nets are those of a run, so only hosts that have its keys take part: by TLS, or in plain
 * where the run's own are. */
#ifndef FL_CONTROL_AGENT_MEASURE_HOST_PROBE_H
#define FL_CONTROL_AGENT_MEASURE_HOST_PROBE_H

#include "control/state/hosts/host_links.h"
#include "control/state/hosts/hosts.h"

enum {
    FL_HOST_PROBE_OPEN_MS = 5000,   /* for two hosts to connect */
    FL_HOST_PROBE_START_MS = 10000, /* for processes to start */
    FL_HOST_PROBE_MS_MAX = 3600 * 1000,
};

typedef struct fl_host_probe_order {
    int n, index;                      /* hosts, as the run counts them; which one this is */
    bool absent[FL_MAX_WORKERS];       /* [n] they take no part */
    char address[FL_HOST_TEXT];        /* where this host listens */
    char links[FL_HOSTS_ENDPOINT_MAX]; /* where they find each other */
    bool plain;
    uint64_t number;    /* of this survey */
    int64_t pair_ms;    /* to measure a pair */
    int64_t all_ms;     /* for all of it: 1 .. FL_HOST_PROBE_MS_MAX (fl_host_probe_ms) */
    int64_t silence_ms; /* after which the head counts as lost; > 0 */
    uint16_t ports[2];  /* as in fl_hosts */
} fl_host_probe_order;

typedef void fl_host_probe_tell(void *context, const fl_host_link *result);

/* Measure all pairs of this host, one after the other, so that each host is in one pair at a time.
 * Has threads until it returns: call it in a process of its own. */
void fl_host_probe(const fl_host_probe_order *order, const fl_curve_keys *keys,
                   fl_host_probe_tell *tell, void *context);

/* Whether the process that called fl_host_probe has ended otherwise than by exit code 0, and how.
 */
enum { FL_HOST_PROBE_END = 96 };
bool fl_host_probe_failed(int wait_status, char why[FL_HOST_PROBE_END]);

/* The other host of this one in a round of a tournament of n, 0 .. fl_host_probe_rounds(n) - 1; -1:
 * it has none. Each pair meets in exactly one round. Pure. */
int fl_host_probe_peer(int n, int index, int round);
int fl_host_probe_rounds(int n);

/* How long the first `rounds` rounds take on each host at most, where no pair is reached. Pure. */
int64_t fl_host_probe_ms(int rounds, int64_t pair_ms);

#endif
