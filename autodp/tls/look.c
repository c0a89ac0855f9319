/* Which connection of a net has no answer from the other end's system. That answers whatever its
 * process does, so a worker that is busy or stopped does not show here. */
#include "autodp/tls/state.h"

#include "device/system/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

/* What this host lacks is no fault of the way to the other one. A connection that is refused has
 * reached it, or a firewall: control/agent/reach.h tells them apart. */
static bool is_of_this_host(int error)
{
    return error == EADDRNOTAVAIL || error == EMFILE || error == ENFILE || error == ENOBUFS ||
           error == ENOMEM || error == ECONNREFUSED;
}

enum { ANSWER_US = 300 * 1000 /* for the answer to an attempt to come */ };

/* For how long since_us has nothing been answered, as far as the kernel has asked: the pauses
 * between its attempts grow, and the way may be free again in the last one. */
static int64_t asked_in_vain_ms(fl__tls_asked *asked, const struct tcp_info *info, int64_t since_us,
                                int64_t now_us)
{
    if (asked->n_tries != info->tcpi_retransmits) {
        asked->n_tries = info->tcpi_retransmits;
        asked->tried_us = asked->looked_us;
        asked->noticed_us = now_us;
    }
    asked->looked_us = now_us;
    if (now_us - asked->noticed_us >= ANSWER_US && asked->tried_us > since_us) {
        asked->in_vain_ms = (asked->tried_us - since_us) / 1000;
    }
    return asked->in_vain_ms;
}

/* Data was sent, and no acknowledgement has come since. A receiver that takes no data still
 * acknowledges what asks whether it does. */
static int64_t unacknowledged_ms(fl__tls_out *out, int64_t now_us)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    bool waits = getsockopt(out->stream.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
                 info.tcpi_unacked > 0 && info.tcpi_retransmits > 0;
    if (!waits) {
        out->unacknowledged_us = 0;
        out->asked = (fl__tls_asked){.looked_us = now_us};
        return 0;
    }
    out->unacknowledged_us = out->unacknowledged_us == 0 ? now_us : out->unacknowledged_us;
    int64_t heard_us = now_us - (int64_t)info.tcpi_last_ack_recv * 1000;
    int64_t since_us = heard_us > out->unacknowledged_us ? heard_us : out->unacknowledged_us;
    return asked_in_vain_ms(&out->asked, &info, since_us, now_us);
}

/* An attempt that has failed was the last one; one that has no answer yet is repeated. */
static int64_t unconnected_ms(fl__tls_out *out, int64_t now_us)
{
    struct tcp_info info;
    socklen_t size = sizeof info;
    bool waits = out->state == FL__TLS_CONNECTING &&
                 getsockopt(out->stream.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0;
    if (waits) {
        return asked_in_vain_ms(&out->asked, &info, out->since_us, now_us);
    }
    out->asked = (fl__tls_asked){
        .looked_us = now_us, .n_tries = -1, .in_vain_ms = (now_us - out->since_us) / 1000};
    return out->asked.in_vain_ms;
}

/* The mutex is held. */
static fl_net_unanswered look_at(fl__tls_peer *p, int64_t now_us)
{
    fl__tls_out *out = &p->out;
    const struct sockaddr_in *a = (const struct sockaddr_in *)&p->address;
    fl_net_unanswered found = {0};
    bool tries = out->state == FL__TLS_CONNECTING || out->state == FL__TLS_RETRYING;
    bool is_open = out->state >= FL__TLS_SHAKING && out->state <= FL__TLS_OPEN;
    if (tries && out->since_us != 0 && !is_of_this_host(out->error)) {
        found.for_ms = unconnected_ms(out, now_us);
        found.error = out->error;
    } else if (is_open && out->stream.fd >= 0) {
        found.for_ms = unacknowledged_ms(out, now_us);
        found.connected = true;
    }
    if (found.for_ms > 0) {
        found.address = ntohl(a->sin_addr.s_addr);
        found.port = ntohs(a->sin_port);
    }
    return found;
}

void fl__tls_look(fl_net *base, fl_net_unanswered *worst)
{
    fl__tls_net *net = fl__tls_of(base);
    int64_t now_us = fl_now_us();
    pthread_mutex_lock(&net->mutex);
    for (int i = 0; net->peers != NULL && i < net->base.size; i++) {
        fl__tls_peer *p = &net->peers[i];
        if (p->address.ss_family == AF_INET && !p->left && !p->lost) {
            fl_net_unanswered found = look_at(p, now_us);
            fl_net_unanswered_add(worst, &found);
        }
    }
    pthread_mutex_unlock(&net->mutex);
}
