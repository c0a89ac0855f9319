/* The head's part in measuring hosts and the links between them, before the gate opens:
 *
 *     ① agents join, as they join the gate, whether ssh or a user starts them
 *
 *     ② hosts of other kinds measure what layers cost there, at the same time (host_measure.h)
 *
 *     ③ once all are there, or time is up, each gets an order (host_probe.h), and so does a process
 *       of this host
 *
 *     ④ a store, at the address of the workers' links, lets pairs find each other
 *
 *     ⑤ results come; agents ask to join the gate next, or are told to end. Until the gate opens,
 * the ports are held, so that they see that the head lives */
#ifndef FL_CONTROL_AGENT_SURVEY_HOST_SURVEY_H
#define FL_CONTROL_AGENT_SURVEY_HOST_SURVEY_H

#include "control/agent/measure/host_measure.h"
#include "control/agent/measure/host_probe.h"
#include "control/state/hosts/host_record.h"
#include "device/machine/machine_kind.h"

/* What layers cost on hosts of other kinds. */
typedef struct fl_host_measuring {
    const char *job; /* [job_bytes] text of the job */
    size_t job_bytes;
    const char *cwd; /* to which its paths are relative */
    int64_t all_ms;  /* for a host to measure, 1 .. FL_HOST_MEASURE_MS_MAX */
    int own_fd;      /* readable once this host has measured its own; -1: it need not */
    const void *own; /* for check_own: why this host's own measurement has failed; FL_OK: it goes
                        on, or has succeeded. NULL: nothing is measured here */
    fl_status (*check_own)(const void *own);
    void *context;
    /* Once hosts have joined, for each of them in turn: whether it is to measure. */
    bool (*wants)(void *context, int host, const fl_machine_kind *kind);
    /* What a host that was to measure has sent, [n] not checked; NULL: nothing, because of why. */
    void (*take)(void *context, int host, const char *text, size_t n, const char *why);
} fl_host_measuring;

typedef struct fl_host_survey_options {
    const fl_hosts *hosts; /* absent ones take no part */
    int n_ranks;           /* that the run may have: a host that it does not know needs some */
    const char *run_dir;   /* with hosts.key, absolute; with hosts->apart it may be "" */
    int64_t join_ms;       /* to wait for hosts */
    bool links;            /* measure them */
    const fl_host_measuring *measuring; /* NULL: what layers cost is not asked */
    bool plain;                         /* as the run's own links between hosts are */
    bool partial;                       /* measure those that have joined */
    bool dismiss;                       /* agents end: nothing follows */
    struct fl_host_starter *starters;   /* out [hosts->n]: of agents that ssh started and that stay,
                                           after FL_OK; without dismiss */
    struct fl_held_ports *held_ports;   /* in and out: taken over, and held again after FL_OK
                                           (held_port.h); NULL: not wanted. Without dismiss */
    bool recorded; /* clients find in run_dir for whom it waits, and may end that wait there */
    bool quiet;    /* nothing is said, and what agents say is not shown */
} fl_host_survey_options;

typedef struct fl_host_survey {
    int n; /* hosts */
    struct {
        bool joined;
        bool unfit;                    /* it has not joined because it cannot take part, */
        bool silent;                   /* or because nothing of its agent has reached the head */
        char why[FL_HOST_WHY_MAX + 1]; /* not joined */
    } host[FL_MAX_WORKERS];
    int n_pairs;
    fl_host_link pair[FL_MAX_WORKERS * (FL_MAX_WORKERS - 1) / 2]; /* [n_pairs] */
    uint16_t ports[2]; /* at which they have listened, as in fl_hosts */
} fl_host_survey;

/* Measure. The caller has no threads; there are none afterwards.
 * stopped   out: the signal that ended it with FL_ESTOPPED, one of fl_signals_stops, which are
 *           blocked from then on: the process ends; else 0
 * Returns   FL_EINVAL if a host cannot take part, as with another version, and it was not partial;
 *           FL_EPEER, with what to do, if a host does not join or a pair is not reached, and it was
 *           not partial; FL_EDEADLINE if this host has not measured its own costs in twice the time
 *           of the others; FL_EIO if the endpoints of the hosts cannot be bound */
fl_status fl_host_survey_run(const fl_host_survey_options *options, fl_host_survey *out,
                             int *stopped) FL_MUST_CHECK;

/* The worst of all pairs that were reached; false: none was. Pure. */
bool fl_host_survey_worst(const fl_host_survey *found, fl_link_cost *out);

#endif
