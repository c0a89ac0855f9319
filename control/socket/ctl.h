/* The control plane of a run: the state that the ctl_*.c files share, and only they. The controller
 * itself calls only the functions of ctl_socket.h.
 *
 *     client ── JSON ──> ROUTER control.sock ①  ──> ctl_request.c ②  ──> a command's handler ③
 *            <── reply, at once or when it has taken effect ④ ──┘             │
 *     subscribers <── PUB events.sock ⑤ <── each line of events.jsonl         v
 *                                                        a command to the workers, or a plan
 *
 *     ctl_open.c      the sockets open and close
 *     ctl_socket.c    ① and ④; it never waits for a client
 *     ctl_events.c    ⑤
 *     ctl_table.c     the commands and their arguments
 *     ctl_status.c    status
 *     ctl_setting.c   pause, resume, set, stop
 *     ctl_plans.c     plan
 *     ctl_trace.c     trace, flight
 *     ctl_checkpoint.c
 *                     checkpoint
 *     ctl_hosts.c     drain of a host; hosts and links in status
 *     ctl_change.c    scale, freeze, thaw, pin, unpin, drain, set pipe.m */
#ifndef FL_CONTROL_SOCKET_CTL_H
#define FL_CONTROL_SOCKET_CTL_H

#include "control/link/keys/door.h"
#include "control/link/keys/zap_auth.h"
#include "control/socket/ctl_names.h"
#include "control/socket/ctl_replies.h"
#include "control/socket/ctl_socket.h"

enum { FL_CTL_PENDING = 32, FL_CTL_HELD = 128 };

/* What an unanswered request waits for. */
typedef enum fl_ctl_wait {
    FL_CTL_WAIT_NONE,
    FL_CTL_WAIT_TURN,       /* its turn to be sent to the workers: one at a time */
    FL_CTL_WAIT_SETTING,    /* the workers' report that it has taken effect */
    FL_CTL_WAIT_STOP,       /* the last step */
    FL_CTL_WAIT_PLAN,       /* the end of its transition */
    FL_CTL_WAIT_HOST,       /* the end of the drain of the host that the ticket names */
    FL_CTL_WAIT_CHECKPOINT, /* the end of the checkpoint that the ticket names */
    FL_CTL_WAIT_IDLE,       /* the run's first step, or the end of another transition */
} fl_ctl_wait;

/* One request until its reply. */
struct fl_ctl_call {
    fl_ctl_client client;
    void *socket;   /* the socket on which it arrived */
    bool delimited; /* the client sends an empty part first, as a REQ socket does */
    fl_ctl_request request;
    fl_json *result;    /* open while the handler runs: it adds its fields */
    fl_ctl_error error; /* not FL_CTL_OK: refused, and the fields are dropped */
    char message[FL_CTL_MESSAGE_MAX];
    fl_ctl_wait wait; /* not NONE: the reply follows later */
    fl_setting setting;
    uint32_t generation; /* the generation of the requested plan */
    int64_t ticket;      /* of the requested checkpoint; the index of the requested host */
    int64_t asked_us;    /* when the drain of that host was requested */
};

/* An event for subscribers. */
typedef struct fl_ctl_event {
    char name[32];
    char *text; /* [n] its line of events.jsonl, without the newline */
    size_t n;
    int64_t number;
} fl_ctl_event;

struct fl_ctl {
    /* set from fl_ctl_uses */
    const fl_run_facts *run;
    fl_run_stats *stats;
    fl_elastic *elastic;         /* changed only through fl_elastic_* functions */
    fl_checkpoints *checkpoints; /* changed only through fl_checkpoints_* functions */
    fl_router *router;
    fl_event_log *log;
    fl_tracer *tracer;
    fl_flight_dump *flight_dump;
    const fl_run_view *(*look)(void *context);
    void (*stop)(void *context, const char *who);
    bool (*grow)(void *context, int n);
    bool (*drain_host)(void *context, int host);
    void *context;

    void *zmq;
    void *requests, *events; /* the sockets in the run directory */
    fl_door *door;           /* keeps their clients from taking descriptors that the run needs */
    fl_zap_auth *guard;      /* access check of network clients; NULL: no network socket */
    void *far_requests, *far_events;
    fl_ctl_replies *replies;
    fl_json reply;
    fl_json status;  /* cached status reply: valid for one turn of the loop, until a request changes
                        something */
    int64_t rest_us; /* when requests are read again */
    int64_t sequence;               /* number of published events */
    int64_t release_us;             /* until then, events are held; 0: they are not */
    fl_ctl_event held[FL_CTL_HELD]; /* [n_held], with text of their own */
    int n_held;
    fl_ctl_counts counts;
    int64_t last_serial;                 /* of the settings */
    fl_ctl_call pending[FL_CTL_PENDING]; /* [n_pending], the oldest first */
    int n_pending;
    bool paused;
    int64_t paused_us; /* when the pause began */
};

/* ---- ctl_socket.c, for handlers ---- */

/* Refuse the request; the last call determines the reply. */
void fl_ctl_refuse(fl_ctl_call *call, fl_ctl_error error, const char *format, ...) FL_PRINTF(3, 4);

/* These processes end: another controller of the run takes requests (FL_CTL_RECOVERING), or none
 * does (FL_CTL_OVER, with the text `over`). */
void fl_ctl_refuse_ending(const fl_ctl *ctl, fl_ctl_call *call, const char *over);

/* ---- the handlers ---- */

void fl_ctl_status(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_plan(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_pause(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_resume(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_set(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_scale(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_freeze(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_thaw(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_pin(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_unpin(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_drain(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_drain_host(fl_ctl *ctl, fl_ctl_call *call, const char *name);
void fl_ctl_set_m(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_stop(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_trace(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_flight(fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_checkpoint(fl_ctl *ctl, fl_ctl_call *call);

/* ---- for ctl_socket.c ---- */

/* Send the next waiting setting, unless one is in progress. */
void fl_ctl_send_setting(fl_ctl *ctl);

/* Whether the requested transition has ended. If it did not commit, the call is refused. */
bool fl_ctl_plan_has_ended(const fl_ctl *ctl, fl_ctl_call *call);

/* Whether the requested checkpoint is durable, or has failed. In that case the call is refused. */
bool fl_ctl_checkpoint_has_ended(const fl_ctl *ctl, fl_ctl_call *call);

/* Whether the requested drain of a host has ended. If the host has not left by it, the call is
 * refused. */
bool fl_ctl_host_has_ended(const fl_ctl *ctl, fl_ctl_call *call);

/* Add the fields of a deferred reply. */
void fl_ctl_host_result(const fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_checkpoint_result(const fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_setting_result(const fl_ctl *ctl, fl_ctl_call *call,
                           const fl_setting_done_report *report);
void fl_ctl_plan_result(const fl_ctl *ctl, fl_ctl_call *call);
void fl_ctl_pin_result(const fl_ctl *ctl, fl_ctl_call *call);

/* ---- ctl_events.c, for ctl_socket.c ---- */

/* Hold the first events: the run has gone back. */
void fl_ctl_events_open(fl_ctl *ctl);

/* Publish the events that are held, if it is time. */
void fl_ctl_events_release(fl_ctl *ctl, int64_t now_us);

/* ---- ctl_hosts.c, for ctl_status.c ---- */

/* "hosts" and "links" of a run on several hosts; nothing for another one. */
void fl_ctl_host_fields(const fl_run_view *view, fl_json *j);

/* ---- ctl_change.c, for ctl_hosts.c ---- */

/* The plan that runs, as the reply to a change names it. */
void fl_ctl_plan_fields(const fl_ctl *ctl, fl_json *j);

/* ---- ctl_socket.c, for ctl_setting.c ---- */

/* Answer pending[i] and drop it. report: the report that it waited for; NULL: none. */
void fl_ctl_settle(fl_ctl *ctl, int i, const fl_setting_done_report *report);

#endif
