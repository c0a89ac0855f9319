/* What a run of net_hosts.h has written so far: steps, events, logs. */
#ifndef FL_TESTS_SUPPORT_HOSTS_NET_RUN_H
#define FL_TESTS_SUPPORT_HOSTS_NET_RUN_H

#include "support/hosts/net_hosts.h"

#include <stdbool.h>
#include <sys/types.h>

/* Lines of DIR/run/steps.jsonl. */
int net_hosts_n_steps(const net_hosts *h);

/* Whether DIR/log holds the text; how many events of DIR/run hold both texts. */
bool net_hosts_log_has(const net_hosts *h, const char *log, const char *text);
int net_hosts_n_events(const net_hosts *h, const char *event, const char *text);

/* Of n_layers in two stages, those on the device of the second host, by the first plan. */
int net_hosts_layers_of_second(const net_hosts *h, int n_layers);

/* The process that the worker had at the start of the run, or when it continued. */
pid_t net_hosts_worker_pid(const net_hosts *h, int rank);

/* The process that the latest event of this name gives for the worker. */
pid_t net_hosts_event_pid(const net_hosts *h, const char *name, int rank);

/* DIR/run has n_steps steps, DIR/alone `compared` or more; their losses differ by 1e-5 at most in
 * the first `compared`; its ledger proves every sample, and its model is there. */
void net_hosts_check(const net_hosts *h, int n_steps, int compared);

#endif
