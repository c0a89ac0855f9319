/* The control plane of a run: the functions that the controller's loop calls. */
#ifndef FL_CONTROL_SOCKET_CTL_SOCKET_H
#define FL_CONTROL_SOCKET_CTL_SOCKET_H

#include "control/checkpoint/checkpoints.h"
#include "control/elastic/elastic.h"
#include "control/observe/flight_dump.h"
#include "control/observe/trace/tracer.h"
#include "control/state/run_view.h"

#include <zmq.h>

typedef struct fl_ctl fl_ctl;

/* What requests read and change; all borrowed. */
typedef struct fl_ctl_uses {
    const fl_run_facts *run;
    fl_run_stats *stats;
    fl_elastic *elastic;
    fl_checkpoints *checkpoints;
    fl_router *router;
    fl_event_log *log;
    fl_tracer *tracer;
    fl_flight_dump *flight_dump;
    const fl_run_view *(*look)(void *context);    /* fill the view again and return it */
    void (*stop)(void *context, const char *who); /* end the run after the step in flight */
    bool (*grow)(void *context, int n); /* have n more workers join; false (fl_errmsg): it cannot */
    bool (*drain_host)(void *context, int host); /* begin to; false (fl_errmsg): it cannot be */
    void *context;
} fl_ctl_uses;

/* Bind control.sock and events.sock in the run directory, for this user alone. After a failure,
 * close *out as well. */
fl_status fl_ctl_open(const fl_ctl_uses *uses, fl_ctl **out) FL_MUST_CHECK;

/* *ctl becomes NULL; NULL is allowed. */
void fl_ctl_close(fl_ctl **out);

/* Answer the requests that have arrived. Never waits; called in every turn of the loop. */
void fl_ctl_watch(fl_ctl *ctl);

/* Fill items with the descriptors that the loop polls; returns their number. */
enum { FL_CTL_POLL_MAX = 3 };
int fl_ctl_poll(const fl_ctl *ctl, zmq_pollitem_t items[FL_CTL_POLL_MAX]);

/* The longest time that the loop may sleep, at most turn_ms: requests may be waiting for their
 * turn. */
int fl_ctl_turn_ms(const fl_ctl *ctl, int turn_ms);

/* Publish an event to all subscribers; for fl_event_log_listen, with ctl as the context. */
void fl_ctl_publish(void *context, const char *event, const fl_json *line);

/* The workers have applied the setting that this report names. */
void fl_ctl_setting_done(fl_ctl *ctl, const fl_setting_done_report *report);

/* The workers have regrouped at `step`. A setting that none of them had applied is sent again. */
void fl_ctl_regrouped(fl_ctl *ctl, const fl_run_position *position, int64_t step);
bool fl_ctl_paused(const fl_ctl *ctl);

fl_ctl_counts fl_ctl_count(const fl_ctl *ctl);

#endif
