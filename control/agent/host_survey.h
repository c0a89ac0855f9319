/* The head's part in measuring the links between the hosts of a run, before the gate opens:
 *
 *     ① agents join, as they join the gate, whether ssh or a user starts them
 *
 *     ② once all are there, or time is up, each gets an order (host_probe.h), and so does a process
 *       of this host
 *
 *     ③ a store, at the address of the workers' links, lets pairs find each other
 *
 *     ④ results come; agents that ssh started are told to end, others ask to join the gate next */
#ifndef FL_CONTROL_AGENT_HOST_SURVEY_H
#define FL_CONTROL_AGENT_HOST_SURVEY_H

#include "control/agent/host_probe.h"
#include "control/state/host_record.h"

typedef struct fl_host_survey_options {
    const fl_hosts *hosts; /* absent ones take no part */
    const char *run_dir;   /* with hosts.key, absolute; with hosts->apart it may be "" */
    int64_t join_ms;       /* to wait for hosts */
    bool plain;            /* as the run's own links between hosts are */
    bool partial;          /* measure those that have joined */
    bool dismiss;          /* agents end: nothing follows */
    bool quiet;            /* nothing is said, and what agents say is not shown */
} fl_host_survey_options;

typedef struct fl_host_survey {
    int n; /* hosts */
    struct {
        bool joined;
        char why[FL_HOST_WHY_MAX + 1]; /* not joined */
    } host[FL_MAX_WORKERS];
    int n_pairs;
    fl_host_link pair[FL_MAX_WORKERS * (FL_MAX_WORKERS - 1) / 2]; /* [n_pairs] */
} fl_host_survey;

/* Measure. The caller has no threads; there are none afterwards.
 * stopped   out: the signal that ended it with FL_ESTOPPED, SIGINT or SIGTERM, both of which are
 *           blocked from then on: the process ends; else 0
 * Returns   FL_EPEER, with what to do, if a host does not join or a pair is not reached, and it was
 *           not partial; FL_EIO if the endpoints of the hosts cannot be bound */
fl_status fl_host_survey_run(const fl_host_survey_options *options, fl_host_survey *out,
                             int *stopped) FL_MUST_CHECK;

/* The worst of all pairs that were reached; false: none was. Pure. */
bool fl_host_survey_worst(const fl_host_survey *found, fl_link_cost *out);

#endif
