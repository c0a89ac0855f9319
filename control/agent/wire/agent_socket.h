/* Frames over the socket pair between the controller and an agent, one frame a message. Nothing
 * here waits. */
#ifndef FL_CONTROL_AGENT_WIRE_AGENT_SOCKET_H
#define FL_CONTROL_AGENT_WIRE_AGENT_SOCKET_H

#include "control/agent/wire/agent_wire.h"

typedef enum fl_agent_got {
    FL_AGENT_GOT_NOTHING, /* none has come */
    FL_AGENT_GOT_FRAME,
    FL_AGENT_GOT_JUNK, /* bytes that are no frame; fl_errmsg has the reason */
    FL_AGENT_GOT_END,  /* the other end is gone */
} fl_agent_got;

/* False: the socket takes no frame now, or the other end is gone. */
bool fl_agent_socket_send(int socket, const fl_agent_frame *frame);

/* The next frame. *n: its bytes, also of junk. */
fl_agent_got fl_agent_socket_read(int socket, fl_agent_frame *out, size_t *n) FL_MUST_CHECK;

#endif
