/* The controller's end of the control link: a ROUTER socket in the run directory, to which every
 * worker connects. It sends commands and hands on the messages that arrive. It never waits.
 *
 *     [identity]["link"][frames]...   reports of a worker, and commands to it
 *     [identity]["store"][request]    the rendezvous store, and its answers
 *
 * Where workers of other hosts connect, counts come before the frames, and no message is lost with
 * a connection (control/link/resend.h). */
#ifndef FL_CONTROL_LINK_ROUTER_H
#define FL_CONTROL_LINK_ROUTER_H

#include "control/link/keys/zap_auth.h"
#include "control/link/resend.h"
#include "control/link/wire/wire.h"

#include <zmq.h>

enum {
    FL_ROUTER_PARTS_MAX = 8,
    FL_ROUTER_ENDPOINT_MAX = 64,
    FL_ROUTER_KEPT_MAX = 8 * 1024 * 1024, /* bytes of commands that a process has not taken */
};

/* For workers on other hosts. Those of this host then need the keys, too. */
typedef struct fl_router_far {
    const char *endpoint; /* "tcp://ADDRESS:PORT" */
    int *held_fd;         /* holds that port until the router binds it, and is closed then: -1
                             afterwards, and allowed; NULL: nothing does */
    const char *secret;   /* of this end */
    const char *client;   /* the public key of the workers */
} fl_router_far;

/* This end of the link to one process of a worker, until the next process of the rank. */
typedef struct fl_router_end {
    uint32_t incarnation; /* 0: none has been heard */
    bool has_lost;        /* a command, for want of memory or because the process takes none */
    fl_resend resend;
} fl_router_end;

typedef struct fl_router {
    void *zmq, *socket;
    fl_zap_auth *guard; /* NULL: all workers are on this host */
    int dir_fd;         /* of the run directory; borrowed */
    int n_workers;
    uint32_t listens[FL_MAX_WORKERS]; /* the incarnation that has sent HELLO and has not exited; 0:
                                         none */
    int64_t answered[FL_DUE_KINDS];   /* the last step for which an answer of the kind was sent */
    fl_router_end ends[FL_MAX_WORKERS]; /* if there is a guard */
} fl_router;

/* Bind RUN/link, readable by this user alone. far: where it listens on a network, too, for those
 * who have the key; NULL: nowhere. After a failure, close the router as well.
 * FL_EBUSY: another process has had the port of `far` for five seconds. */
fl_status fl_router_open(fl_router *router, int dir_fd, const char *run_dir, int n_workers,
                         const fl_router_far *far) FL_MUST_CHECK;
void fl_router_close(fl_router *router);

/* The endpoint for workers: through the inherited descriptor of the run directory, because the path
 * of a socket is limited to 107 bytes and that of a run directory may be longer. */
void fl_router_endpoint(int dir_fd, char text[FL_ROUTER_ENDPOINT_MAX]);

/* Readable when a connection asks to be admitted; NULL: none can. And answer it. Never waits. */
void *fl_router_guard(const fl_router *router);
void fl_router_watch(fl_router *router);

/* Start or stop sending commands to this worker. */
void fl_router_admit(fl_router *router, int rank, uint32_t incarnation);
void fl_router_drop(fl_router *router, int rank);

/* Make a frame that carries the generation of this plan. */
fl_wire_message fl_router_frame(const fl_plan *plan, fl_wire_type type);

/* Send a frame to one worker, to all, or to the standby workers. Workers that do not listen are
 * skipped. */
void fl_router_send_to(fl_router *router, int rank, const fl_wire_message *frame);
void fl_router_send_to_all(fl_router *router, const fl_wire_message *frame);
void fl_router_wake_standby(fl_router *router, const fl_plan *plan);

/* Send a command to the leader, and wake the standby workers so that they hear it. */
void fl_router_command(fl_router *router, const fl_plan *plan, const fl_command *command);

/* The workers need no further answer of this kind up to `step`. */
void fl_router_note_answer(fl_router *router, fl_due_kind kind, int64_t step);

/* Take what is in front of a message from this process of a worker. parts: the message, from the
 * part after the topic on. *first: the first one with frames to read; there may be none. Returns
 * FL_EFORMAT if these cannot be counts, or if a command to the process was lost for good: it cannot
 * go on. */
fl_status fl_router_take(fl_router *router, int rank, uint32_t incarnation, zmq_msg_t *parts,
                         int *first) FL_MUST_CHECK;

/* Send one message of three parts. False if the socket does not accept it now. */
bool fl_router_send(fl_router *router, const void *to, size_t to_bytes, const char *topic,
                    const void *bytes, size_t n);

/* parts [n_kept] of a message that had n_parts. */
typedef void fl_router_handler(void *context, zmq_msg_t *parts, int n_kept, int n_parts);

/* Read one message. Never waits; false when no message is waiting. */
bool fl_router_read(fl_router *router, fl_router_handler *handler, void *context);

#endif
