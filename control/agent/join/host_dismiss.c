#include "control/agent/join/host_dismiss.h"

#include "control/agent/join/host_socket.h"
#include "device/system/clock.h"

#include <stdio.h>
#include <zmq.h>

enum { DISMISS_MS = 2000, ENOUGH_MS = 4000, TURN_MS = 50 };

/* Whether its agent asks to join: that of one that is left out until it reaches another one does.
 */
static bool is_expected(const fl_host *host)
{
    return !host->absent || host->apart_from != 0;
}

/* Of those that are expected; -1: none, or the head. */
static int find_host(const fl_hosts *hosts, const char *name)
{
    int i = fl_hosts_find(hosts, name);
    return i > 0 && is_expected(&hosts->host[i]) ? i : -1;
}

/* The host that has asked now, or -1. */
static int answer_one(const fl_host_socket *s, const fl_hosts *hosts, const fl_host_message *answer)
{
    unsigned char bytes[FL_HOST_MESSAGE_MAX];
    fl_host_peer from;
    fl_host_message asked;
    size_t n;
    if (!fl_host_socket_read(s, &from, bytes, &n) || fl_host_wire_get(bytes, n, &asked) != FL_OK ||
        asked.type != FL_HOST_JOIN) {
        return -1;
    }
    return fl_host_socket_send(s, &from, answer) ? find_host(hosts, asked.join.name) : -1;
}

static int count_expected(const fl_hosts *hosts)
{
    int n = 0;
    for (int i = 1; i < hosts->n; i++) {
        n += is_expected(&hosts->host[i]);
    }
    return n;
}

/* Only a failure is told with its reason. */
static fl_host_message last_message(fl_agent_ending ending, const char *why)
{
    fl_host_message m = {.type = ending == FL_AGENT_ENDS_STOPPED ? FL_HOST_STOP
                                 : ending == FL_AGENT_ENDS_QUIT  ? FL_HOST_QUIT
                                                                 : FL_HOST_LEAVE};
    if (ending == FL_AGENT_ENDS_FAILED) {
        snprintf(m.text, sizeof m.text, "%s", why[0] == '\0' ? "it cannot go back" : why);
    }
    return m;
}

int64_t fl_hosts_dismiss_ms(int64_t waited_ms)
{
    int64_t left_ms = ENOUGH_MS - waited_ms;
    return left_ms < 0 ? 0 : left_ms < DISMISS_MS ? left_ms : DISMISS_MS;
}

void fl_hosts_dismiss(const fl_hosts *hosts, fl_agent_ending ending, const char *why,
                      int64_t waited_ms)
{
    const fl_host_message last = last_message(ending, why);
    bool told[FL_MAX_WORKERS] = {false};
    int64_t most_ms = fl_hosts_dismiss_ms(waited_ms);
    int n_left = most_ms > 0 ? count_expected(hosts) : 0;
    int64_t until_us = fl_deadline_us(most_ms);
    fl_host_socket s;
    if (n_left == 0 || fl_host_socket_open(hosts, most_ms, &s) != FL_OK) {
        if (n_left > 0) {
            fl_host_socket_close(&s);
        }
        return;
    }
    while (n_left > 0 && fl_left_ms(until_us) > 0) {
        zmq_pollitem_t items[] = {{fl_zap_auth_socket(s.guard), 0, ZMQ_POLLIN, 0},
                                  {s.socket, 0, ZMQ_POLLIN, 0}};
        zmq_poll(items, 2, TURN_MS);
        fl_zap_auth_watch(s.guard);
        int i = answer_one(&s, hosts, &last);
        n_left -= i >= 0 && !told[i];
        if (i >= 0) {
            told[i] = true;
        }
    }
    fl_host_socket_close(&s);
}
