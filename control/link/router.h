/* The controller's end of the control link: a ROUTER in the run directory, to which every worker
 * connects. It sends orders and hands on what comes, without waiting for anybody.
 *
 *     [identity]["link"][frames]...   a worker's reports, and orders to it
 *     [identity]["store"][request]    the rendezvous store, and its answers */
#ifndef FL_CONTROL_LINK_ROUTER_H
#define FL_CONTROL_LINK_ROUTER_H

#include "control/link/wire.h"

#include <zmq.h>

enum { FL_ROUTER_PARTS_MAX = 8, FL_ROUTER_ENDPOINT_MAX = 64 };

typedef struct fl_router {
    void *zmq, *socket;
    int dir_fd; /* of the run directory; borrowed */
    int n_workers;
    bool listens[FL_MAX_WORKERS]; /* said HELLO, and has not exited */
} fl_router;

/* Bind RUN/link, readable by this user alone. On failure the router is to be closed as well. */
fl_status fl_router_open(fl_router *router, int dir_fd, const char *run_dir,
                         int n_workers) FL_MUST_CHECK;
void fl_router_close(fl_router *router);

/* Where workers connect: through the inherited descriptor of the run directory, since the path of a
 * socket may have 107 bytes only and that of a run directory may be longer. */
void fl_router_endpoint(int dir_fd, char text[FL_ROUTER_ENDPOINT_MAX]);

/* Remove the socket's file: all workers are connected, and no file stays behind when the controller
 * is killed. */
void fl_router_hide(fl_router *router);

/* Orders for this worker are sent from now on, or no longer. */
void fl_router_admit(fl_router *router, int rank);
void fl_router_drop(fl_router *router, int rank);

/* An order in the generation of this plan. */
fl_wire_message fl_router_order(const fl_plan *plan, fl_wire_type type);

/* Send an order to one worker, to all, or to those that stand by. Workers that do not listen are
 * passed over. */
void fl_router_tell(fl_router *router, int rank, const fl_wire_message *order);
void fl_router_tell_all(fl_router *router, const fl_wire_message *order);
void fl_router_wake_standby(fl_router *router, const fl_plan *plan);

/* Send a command to the leader, and wake the workers that stand by to hear it. */
void fl_router_command(fl_router *router, const fl_plan *plan, const fl_command *command);

/* Send one message of three parts. False if it cannot be sent now. */
bool fl_router_send(fl_router *router, const void *to, size_t to_bytes, const char *topic,
                    const void *bytes, size_t n);

/* parts [n_kept], of a message that had n_parts. */
typedef void fl_router_handler(void *context, zmq_msg_t *parts, int n_kept, int n_parts);

/* Read one message, without waiting. False when there is none. */
bool fl_router_read(fl_router *router, fl_router_handler *handler, void *context);

#endif
