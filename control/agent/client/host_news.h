/* What the gate reports of hosts, in the controller's records. */
#ifndef FL_CONTROL_AGENT_CLIENT_HOST_NEWS_H
#define FL_CONTROL_AGENT_CLIENT_HOST_NEWS_H

#include "control/agent/wire/agent_wire.h"
#include "control/state/hosts/host_record.h"
#include "control/state/hosts/host_sight.h"
#include "control/state/hosts/hosts.h"
#include "control/state/worker.h"

/* Take a frame HOST into hosts, of which the run may have n_workers ranks, and records [n_workers].
 * A host that has joined and is none of them is added. One about no first rank of another host than
 * the head is dropped: false. hosts NULL: this run has one host, and every such frame is dropped.
 */
bool fl_host_news_take(fl_hosts *hosts, fl_host_record *records, int n_workers,
                       const fl_agent_frame *frame);

/* The process of this worker has ended for the run. If its host is lost, note that as the reason,
 * and since when the host had not answered. */
void fl_host_news_of_worker(const fl_hosts *hosts, const fl_host_record *records,
                            fl_worker *worker);

/* Take a frame REACHED into sight. One that answers another question, or names hosts that the run
 * does not have, is dropped. hosts or sight NULL: every such frame is. */
void fl_host_news_of_sight(const fl_hosts *hosts, fl_host_sight *sight,
                           const fl_agent_frame *frame);

#endif
