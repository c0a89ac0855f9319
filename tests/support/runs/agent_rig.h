/* An agent with its workers, which are real processes: what tests of agents share. Nothing here
 * waits for a time: every wait looks for what it wants until a deadline after which the test fails.
 */
#ifndef FL_TESTS_SUPPORT_RUNS_AGENT_RIG_H
#define FL_TESTS_SUPPORT_RUNS_AGENT_RIG_H

#include "control/agent/client/agent_client.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/nap.h"

#include <stdatomic.h>

enum { AGENT_RIG_WORKERS = 3, AGENT_RIG_WAIT_MS = 30000, AGENT_RIG_EXIT_CODE = 7 };

/* Between the test and its workers. */
typedef struct agent_shared {
    atomic_int n_begun[AGENT_RIG_WORKERS];
    atomic_int pid[AGENT_RIG_WORKERS]; /* of the process that began last */
    atomic_int leaves;                 /* a bit for each rank that may leave */
    atomic_int agent;                  /* its process, as its workers see it */
    atomic_int n_closed;               /* calls of `release` */
    atomic_int held;                   /* a process that reaps no child */
} agent_shared;

extern fl_worker_birth agent_rig_birth; /* of every worker */

typedef struct agent_rig {
    char dir[FOLDER_SIZE];
    agent_shared *shared;
    fl_signals signals;
    fl_flight *flight;
    fl_worker workers[AGENT_RIG_WORKERS];
    fl_agent_options options;
    fl_agent *agent;
} agent_rig;

/* For cmocka: *state is the rig. */
int agent_rig_set_up(void **state);
int agent_rig_tear_down(void **state);

/* Open the agent, and start all workers. */
void agent_rig_start(agent_rig *r);

bool agent_rig_has_begun(const agent_shared *s);
void agent_rig_assert_gone(const agent_rig *r);

/* Neither running nor waiting to be reaped; the test adopts what an agent leaves. */
bool agent_process_is_gone(pid_t pid);

/* The worker's log; free it. */
char *agent_rig_log(const agent_rig *r, int rank);

#define AWAIT(condition)                                                                           \
    for (int64_t until_us = fl_deadline_us(AGENT_RIG_WAIT_MS); !(condition); nap(1000)) {          \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

#endif
