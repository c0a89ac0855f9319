/* The control plane of a run, as the controller's loop uses it. */
#ifndef FL_CONTROL_SOCKET_CTL_SOCKET_H
#define FL_CONTROL_SOCKET_CTL_SOCKET_H

#include "control/events/json.h"
#include "control/link/link.h"
#include "control/state/run_view.h"

#include <zmq.h>

typedef struct fl_controller fl_controller;

typedef struct fl_ctl fl_ctl;

/* Bind control.sock and events.sock in the run directory, for this user alone. */
fl_status fl_ctl_open(fl_controller *controller) FL_MUST_CHECK;
void fl_ctl_close(fl_controller *controller);

/* Answer what has come, without waiting; called every turn of the loop. */
void fl_ctl_watch(fl_controller *controller);

/* What the loop's poll listens to: items out; returns how many. */
enum { FL_CTL_POLL_MAX = 3 };
int fl_ctl_poll(const fl_controller *controller, zmq_pollitem_t items[FL_CTL_POLL_MAX]);

/* The longest that the loop may sleep, at most turn_ms: requests may be waiting for their turn. */
int fl_ctl_turn_ms(const fl_controller *controller, int turn_ms);

/* Publish an event to all subscribers; for fl_event_log_listen, with ctl as the context. */
void fl_ctl_publish(void *ctl, const char *event, const fl_json *line);

/* The workers have done what they were told. */
void fl_ctl_setting_done(fl_controller *controller, const fl_setting_done_report *report);
bool fl_ctl_paused(const fl_controller *controller);

fl_ctl_counts fl_ctl_count(const fl_controller *controller);

#endif
