/* The agent's process, as the relay sees it: ② and ⑤ of control/agent/relay/relay.c. */
#include "control/agent/relay/relay_child.h"
#include "control/agent/relay/relay_state.h"
#include "control/agent/wire/agent_socket.h"
#include "device/errors/log.h"
#include "device/system/child.h"
#include "device/system/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REAP_MS = 2000 }; /* for a killed process to be gone */

fl_status fl__relay_fork_agent(fl__relay *r, const sigset_t *before)
{
    int sockets[2];
    pid_t self = getpid();
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) {
        return fl_fail(FL_EIO, "cannot make a socket for the agent: %s", strerror(errno));
    }
    r->socket = sockets[0];
    r->job_fd = memfd_create("job", MFD_CLOEXEC);
    r->job_bytes = 0;
    fflush(NULL);
    r->agent = fork();
    if (r->agent == 0) {
        close(sockets[0]);
        close(r->signal_fd);
        fl_reach_door_close(&r->door);
        fl__relay_child(r->o, r->job_fd, sockets[1], self, before);
    }
    int error = errno;
    close(sockets[1]);
    return r->agent > 0 && r->job_fd >= 0
               ? FL_OK
               : fl_fail(FL_EIO, "cannot start the agent: %s", strerror(error));
}

/* False: it cannot be ended, and is left behind. */
static bool reap_agent(fl__relay *r, int *how)
{
    bool ended = fl_child_reap(r->agent, REAP_MS, how);
    if (!ended) {
        fl_log(FL_LOG_WARN, "process %d, the parent of this host's workers, " FL_CHILD_LEFT,
               (int)r->agent, REAP_MS);
    }
    r->agent = -1;
    return ended;
}

void fl__relay_kill_agent(fl__relay *r)
{
    if (r->agent > 0) {
        kill(r->agent, SIGKILL); /* the kernel ends its workers */
        (void)reap_agent(r, NULL);
    }
}

/* To the agent's process, as it came. */
bool fl__relay_tell_agent(const fl__relay *r, const fl_host_message *message)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    size_t n = fl_host_wire_put(message, bytes);
    return send(r->socket, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* What the agent's process has measured before the host joins goes to the head as it is. What comes
 * later is of no use: the run has begun without it. */
static bool pass_measured(const fl__relay *r, const unsigned char *bytes, size_t n)
{
    fl_host_message m;
    bool is_one =
        fl_host_wire_get(bytes, n, &m) == FL_OK &&
        (m.type == FL_HOST_PROBED || m.type == FL_HOST_PROFILE || m.type == FL_HOST_UNMEASURED);
    if (is_one && !r->joined) {
        fl__relay_send(r, &m);
    }
    return is_one;
}

/* ---- ⑤ ---- */

/* The head may have lost this host while this process stood still, and the welcome be an old one:
 * what the run has removed since is no fault of this host. The head answers ALIVE with LOST then.
 */
static void ask_head(fl__relay *r)
{
    r->doubted = true;
    close(r->socket); /* the agent's process ends without a word */
    r->socket = -1;
    (void)reap_agent(r, &r->refused_how);
    fl__relay_send(r, &(fl_host_message){.type = FL_HOST_ALIVE});
    r->alive_us = fl_now_us();
}

/* Otherwise that process tells the user. */
static void take_refusal(fl__relay *r, const fl_agent_frame *frame)
{
    memcpy(r->why, frame->text, sizeof r->why);
    if (r->over) {
        return;
    }
    if (fl__relay_stood(r)) {
        ask_head(r);
    } else {
        (void)fl_agent_socket_send(r->socket, frame);
    }
}

/* A head that has lost this host has sent it PINGs until then, which may come only now; the first
 * and the last of them lie less than the time apart after which it loses a host. */
void fl__relay_note_ping(fl__relay *r, int64_t sent_ns)
{
    int64_t lost_ns = r->silence_ms / FL_HOST_PATIENCE * 1000000;
    r->first_ns = r->first_ns == 0 && r->doubted ? sent_ns : r->first_ns;
    r->confirmed = r->doubted && sent_ns - r->first_ns > lost_ns;
}

/* False: the agent has ended, or closes. */
bool fl__relay_read_agent(fl__relay *r)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    for (int i = 0; i < FL__RELAY_MESSAGES_A_TURN && !r->doubted; i++) {
        ssize_t n = recv(r->socket, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return true;
        }
        if (n < 0 && errno == ECONNRESET) {
            continue; /* it has ended with frames unread, once; what it said lies behind */
        }
        if (n <= 0) {
            return false;
        }
        fl_agent_frame frame;
        if (pass_measured(r, bytes, (size_t)n)) {
            continue;
        }
        if (fl_agent_wire_get(bytes, (size_t)n, &frame) == FL_OK && frame.type == FL_AGENT_REFUSE) {
            take_refusal(r, &frame);
            continue;
        }
        fl_host_message message = {.type = FL_HOST_FRAME,
                                   .frame = {.bytes = bytes, .n = (size_t)n}};
        fl__relay_send(r, &message);
    }
    return !r->doubted || (!r->over && !r->confirmed);
}

fl_status fl__relay_note_agent_end(fl__relay *r, fl_relay_end *end)
{
    int how = r->refused_how;
    char text[FL_HOST_TEXT_MAX];
    bool ended = r->doubted || reap_agent(r, &how);
    if (r->over) {
        fl__relay_send_text(r, FL_HOST_LEAVE, "");
        return FL_OK;
    }
    end->exit_code = WIFEXITED(how) ? WEXITSTATUS(how) : 0;
    if (r->why[0] != '\0') {
        snprintf(text, sizeof text, "%s", r->why);
    } else if (!ended) {
        snprintf(text, sizeof text, "its agent does not answer and does not end");
    } else if (WIFSIGNALED(how)) {
        snprintf(text, sizeof text, "its agent was killed by signal %d", WTERMSIG(how));
    } else {
        snprintf(text, sizeof text, "its agent ended with exit code %d; its terminal says why",
                 end->exit_code);
    }
    end->told = r->why[0] != '\0' && !r->doubted;
    bool is_unfit = r->why[0] != '\0' && end->exit_code == FL_HOST_EXIT_UNFIT;
    fl__relay_send_text(r, is_unfit ? FL_HOST_UNFIT : FL_HOST_LEAVE, text);
    return fl_fail(FL_EFAILED, "%s", text);
}
