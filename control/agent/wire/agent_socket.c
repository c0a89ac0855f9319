#include "control/agent/wire/agent_socket.h"

#include <errno.h>
#include <sys/socket.h>

bool fl_agent_socket_send(int socket, const fl_agent_frame *frame)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    size_t n = fl_agent_wire_put(frame, bytes);
    return send(socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

fl_agent_got fl_agent_socket_read(int socket, fl_agent_frame *out, size_t *n)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX + 1]; /* a longer message shows as one byte too many */
    ssize_t got = recv(socket, bytes, sizeof bytes, MSG_DONTWAIT);
    *n = got > 0 ? (size_t)got : 0;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return FL_AGENT_GOT_NOTHING;
    }
    if (got <= 0) {
        return FL_AGENT_GOT_END;
    }
    return fl_agent_wire_get(bytes, *n, out) == FL_OK ? FL_AGENT_GOT_FRAME : FL_AGENT_GOT_JUNK;
}
