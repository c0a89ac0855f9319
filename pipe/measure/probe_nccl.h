/* The parent's side of a measurement over NCCL. A run can do without NCCL, so a child that fails,
 * hangs or dies there has measured everything else all the same. */
#ifndef FL_PIPE_MEASURE_PROBE_NCCL_H
#define FL_PIPE_MEASURE_PROBE_NCCL_H

#include "pipe/measure/probe.h"

#include <frostline/job.h>

#include <sys/types.h>

typedef struct fl_probe_nccl_watch {
    fl_nccl_trial *trial; /* of this host; refused where NCCL fails */
    int64_t limit_ms;     /* of the whole measurement */
    int64_t since_us;     /* when the first child was seen in it; 0: none was */
    int weight;           /* of `failure`: that of a child whose peer has failed weighs least */
    char failure[FL_NCCL_REASON_BYTES]; /* "": none */
} fl_probe_nccl_watch;

/* The limit of each wait of a child, given that of the whole profile. */
int64_t fl_probe_nccl_call_ms(int64_t timeout_ms);

bool fl_probe_is_in_nccl(const fl_probe *probe);

/* A child that still measures; it is killed once the limit has passed. */
void fl_probe_nccl_look(fl_probe_nccl_watch *watch, pid_t child, int64_t now_us);

/* A child that has ended in this phase; wait_status: as waitpid gives it. */
void fl_probe_nccl_judge(fl_probe_nccl_watch *watch, const fl_probe *probe, int wait_status);

/* All have ended: refuse NCCL if one has failed. With autodp.transport nccl, FL_ENOTSUP. */
fl_status fl_probe_nccl_settle(fl_probe_nccl_watch *watch, const fl_job *job) FL_MUST_CHECK;

#endif
