/* Hosts that reach each other by the trials of their agents, while a connection between their
 * workers has no answer, as behind a firewall that lets other ports through; and a host whose own
 * workers do not reach each other, because its loopback is filtered. Workers report such
 * connections in their heartbeats (autodp/net/unanswered.h). */
#ifndef FL_CONTROL_CONTROLLER_WORKER_PAIRS_H
#define FL_CONTROL_CONTROLLER_WORKER_PAIRS_H

#include "control/state/hosts/host_sight.h"
#include "control/state/hosts/hosts.h"

#include <frostline/job.h>

typedef struct fl_controller fl_controller;

/* Add the pairs of hosts whose workers have had no answer for least_ms to *sight. True: there are
 * connections that may need a while until then. */
bool fl_worker_pairs_add(const fl_controller *controller, int64_t least_ms, int64_t now_us,
                         fl_host_sight *sight);

/* "port 20017 of host c (b tries: no answer in 2.0 s)", and which ports a firewall has to let
 * through; fewer if autodp.ports may be set, which autodp.security none does not allow. */
enum { FL_WORKER_PAIRS_TEXT = 320 };
void fl_worker_pairs_explain(const fl_hosts *hosts, fl_security security, const fl_host_pair *pair,
                             char text[FL_WORKER_PAIRS_TEXT]);

/* The same of a pair of a host with itself: what follows "its workers". Pure. */
void fl_worker_pairs_explain_own(const fl_host_pair *pair, char text[FL_WORKER_PAIRS_TEXT]);

#endif
