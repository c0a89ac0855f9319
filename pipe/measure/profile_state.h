/* What the files of a profile share: profile.c has the steps, profile_wait.c the wait for children.
 */
#ifndef FL_PIPE_MEASURE_PROFILE_STATE_H
#define FL_PIPE_MEASURE_PROFILE_STATE_H

#include "pipe/measure/probe.h"
#include "pipe/measure/probe_nccl.h"
#include "pipe/measure/profile.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

enum { FL__PROFILE_CHILDREN = 16 /* at most */ };

/* The memory that all children share. */
typedef struct fl__profile_segment {
    fl_probe_store store;
    fl_probe probe[FL__PROFILE_CHILDREN];
} fl__profile_segment;

typedef struct fl__profiler {
    const fl_model *model;
    const fl_dataset *dataset;
    const fl_job *job;
    const fl_device_survey *devices;
    fl_probe_nccl_watch nccl;
    int64_t timeout_ms;
    int n_workers, n_children;
    int n_measuring;                /* children that measure more than the link */
    int near[2], far[2];            /* as in fl_probe_options */
    int seat[FL__PROFILE_CHILDREN]; /* the worker whose device each child measures */
    int cpus[CPU_SETSIZE], n_cpus;
    fl__profile_segment *segment;
    pid_t pid[FL__PROFILE_CHILDREN];          /* 0: none, or gone */
    int end[FL__PROFILE_CHILDREN];            /* closes when the child ends; -1: none */
    int64_t stopped_us[FL__PROFILE_CHILDREN]; /* since when the child is stopped; 0: it runs */
    int n_calls[FL__PROFILE_CHILDREN];        /* as last seen, */
    int64_t called_us[FL__PROFILE_CHILDREN];  /* and since when */
    int64_t looked_us;                        /* when the children were last looked at */
    int64_t moved_us; /* when a link was last seen to move something, or else the start */
    int signals;      /* SIGINT, SIGTERM and SIGHUP to the caller can be read here */
    bool terminated;  /* SIGTERM was one of them */
    sigset_t mask_before;
} fl__profiler;

/* 3 Wait for all children to end, by a deadline; a child that is stopped, or a signal to the
 * caller, ends that sooner. */
fl_status fl__profile_wait_all(fl__profiler *p) FL_MUST_CHECK;

/* End every child, also if the failure of one child ended the wait. */
void fl__profile_end_all(fl__profiler *p);

#endif
