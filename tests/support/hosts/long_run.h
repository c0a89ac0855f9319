/* A run of net_hosts.h on hosts a and b, which lasts until it is stopped: a loss comes in the
 * middle of the training, however fast steps are. */
#ifndef FL_TESTS_SUPPORT_HOSTS_LONG_RUN_H
#define FL_TESTS_SUPPORT_HOSTS_LONG_RUN_H

#include "support/hosts/net_hosts.h"
#include "support/hosts/net_run.h"

#define REPLICAS "--set pipe.k=1 --set autodp.r=2 --set pipe.m=1"
#define STAGES "--set pipe.k=2 --set autodp.r=1 --set pipe.m=2"

enum { LONG_RUN_STOPPED = 5 }; /* the exit code of its head */

/* Two hosts of one device each, for a test's state; the teardown is net_hosts_tear_down. */
int long_run_set_up(void **state);

/* Start REPLICAS, and wait for some steps. */
void long_run_start(net_hosts *h);

/* The same with another plan, REPLICAS or STAGES with more, and options of the agent. */
void long_run_start_with(net_hosts *h, const char *plan, const char *of_agent);

/* The same with another fault.detect. */
void long_run_start_of(net_hosts *h, const char *plan, const char *of_agent, int detect_ms);

/* How often the run has lost the worker of host b. */
int long_run_n_lost(const net_hosts *h);

/* Ask the head to stop, once the run has trained some more steps. */
void long_run_stop_head(const net_hosts *h);

/* The same, and wait for the ends of both programs: of the agent with this code. */
void long_run_stop(net_hosts *h, int agent_code);

/* net_hosts_check with the first steps of a run of one worker. */
void long_run_check(const net_hosts *h);

#endif
