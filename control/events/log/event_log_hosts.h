/* The events of hosts: hosts.measured, host.joined, host.draining, host.drained, host.lost,
 * host.refused. */
#ifndef FL_CONTROL_EVENTS_LOG_EVENT_LOG_HOSTS_H
#define FL_CONTROL_EVENTS_LOG_EVENT_LOG_HOSTS_H

#include "control/events/log/event_log.h"
#include "control/state/hosts/host_record.h"
#include "control/state/hosts/hosts.h"
#include "control/state/lasting.h"

/* The host has this state.
 * at     since when; NULL: since now
 * apart  the host that it does not reach, and is lost for; NULL: none
 * told   what else the event has */
void fl_event_log_host(fl_event_log *log, const fl_run_moment *at, const fl_host *host,
                       const fl_host_record *record, const fl_host *apart,
                       const fl_host_told *told);

/* The links between hosts, if this start of the run has measured them. */
void fl_event_log_links(fl_event_log *log, const fl_controller_options *options);

#endif
