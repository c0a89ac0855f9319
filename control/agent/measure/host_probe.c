#include "control/agent/measure/host_probe.h"

#include "autodp/net/listen.h"
#include "autodp/net/open/net_open.h"
#include "autodp/net/store/store.h"
#include "autodp/tls/tls.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

/* ---- who meets whom ---- */

int fl_host_probe_rounds(int n)
{
    return n % 2 == 0 ? n - 1 : n;
}

/* Of an odd number of places, two meet when their sum is the round; the one that would meet itself
 * meets the last one, if n is even. */
int fl_host_probe_peer(int n, int index, int round)
{
    int odd = fl_host_probe_rounds(n);
    int last = n % 2 == 0 ? n - 1 : -1;
    if (index == last) {
        return round % 2 == 0 ? round / 2 : (round + odd) / 2;
    }
    int peer = (round - index + odd) % odd;
    return peer == index ? last : peer;
}

int64_t fl_host_probe_ms(int rounds, int64_t pair_ms)
{
    int64_t ms = FL_HOST_PROBE_START_MS + rounds * (pair_ms + 3 * (int64_t)FL_HOST_PROBE_OPEN_MS);
    return ms < FL_HOST_PROBE_MS_MAX ? ms : FL_HOST_PROBE_MS_MAX;
}

/* ---- a pair ---- */

typedef struct host_prober {
    const fl_host_probe_order *o;
    const fl_net_transport *transport; /* NULL: Gloo, in plain */
    fl_net_transport tls;
    fl_kv kv;
    int64_t since_us;
} host_prober;

/* Both have come to the pair of this round: those before may have taken the other one longer. */
static fl_status meet(const host_prober *p, int round, fl_host_link *pair)
{
    char own[64], others[64];
    void *data = NULL;
    size_t n;
    int me = p->o->index, a = pair->a, b = pair->b;
    int64_t ms = fl_host_probe_ms(round + 1, p->o->pair_ms);
    int64_t until_us = p->since_us + ms * 1000;
    snprintf(own, sizeof own, "meet/%llx/%d-%d/%d", (unsigned long long)p->o->number, a, b, me);
    snprintf(others, sizeof others, "meet/%llx/%d-%d/%d", (unsigned long long)p->o->number, a, b,
             me == a ? b : a);
    FL_TRY(p->kv.set(p->kv.self, own, until_us, "x", 1));
    fl_status status = p->kv.get(p->kv.self, others, until_us, &data, &n);
    fl_free(data);
    if (status == FL_EDEADLINE) {
        pair->stage = FL_HOST_LINK_UNMET;
        return fl_fail(status, "it did not come in %lld s", (long long)ms / 1000);
    }
    return status;
}

/* Otherwise the pair would look like one behind a firewall. */
static fl_status check_ports(const fl_host_probe_order *o)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *v4 = (struct sockaddr_in *)&a;
    if (o->ports[0] == 0 || inet_pton(AF_INET, o->address, &v4->sin_addr) != 1) {
        return FL_OK;
    }
    v4->sin_family = AF_INET;
    int fd = fl_net_listen(&a, sizeof *v4, o->ports, 1);
    if (fd < 0 && errno == EADDRINUSE) {
        return fl_fail(FL_EBUSY,
                       "other processes use all ports of %s from %u to %u (autodp.ports), and no "
                       "worker could listen there",
                       o->address, o->ports[0], o->ports[1]);
    }
    if (fd >= 0) {
        close(fd);
    }
    return FL_OK;
}

static fl_status measure_pair(const host_prober *p, int round, fl_host_link *pair)
{
    char name[64];
    int me = p->o->index == pair->a ? 0 : 1;
    fl_net *net = NULL;
    snprintf(name, sizeof name, "links/%llx/%d-%d", (unsigned long long)p->o->number, pair->a,
             pair->b);
    fl_status status = check_ports(p->o);
    if (status != FL_OK) {
        pair->stage = FL_HOST_LINK_NO_PORT;
        return status;
    }
    FL_TRY(meet(p, round, pair));
    const fl_net_options options = {.rank = me,
                                    .size = 2,
                                    .name = name,
                                    .kv = &p->kv,
                                    .host = p->o->address,
                                    .sockets_only = true,
                                    .open_timeout_ms = FL_HOST_PROBE_OPEN_MS,
                                    .wait_timeout_ms = FL_HOST_PROBE_OPEN_MS,
                                    .transport = p->transport};
    pair->stage = FL_HOST_LINK_UNCONNECTED;
    status = fl_net_open(&options, &net);
    if (status == FL_EDEADLINE) {
        return fl_fail(status, "no connection in %d s", FL_HOST_PROBE_OPEN_MS / 1000);
    }
    FL_TRY(status);
    pair->stage = FL_HOST_LINK_OTHER;
    status = fl_far_link_measure(net, me, p->o->pair_ms, FL_HOST_PROBE_OPEN_MS, &pair->link);
    fl_net_close(&net);
    return status;
}

/* ---- all of them ---- */

static void probe_pairs(const host_prober *p, fl_host_probe_tell *tell, void *context)
{
    const fl_host_probe_order *o = p->o;
    for (int round = 0; round < fl_host_probe_rounds(o->n); round++) {
        int peer = fl_host_probe_peer(o->n, o->index, round);
        if (peer < 0 || o->absent[peer]) {
            continue;
        }
        fl_host_link result = {.a = o->index < peer ? o->index : peer,
                               .b = o->index < peer ? peer : o->index,
                               .order = o->number};
        fl_status status = measure_pair(p, round, &result);
        result.reached = status == FL_OK;
        snprintf(result.why, sizeof result.why, "%s", status == FL_OK ? "" : fl_errmsg());
        if (o->index == result.a || !result.reached) {
            tell(context, &result);
        }
    }
}

static fl_status open_and_probe(host_prober *p, void *zmq, const fl_curve_keys *keys,
                                fl_host_probe_tell *tell, void *context)
{
    fl_store_client *client = NULL;
    if (!p->o->plain) {
        FL_TRY(fl_tls_transport(keys->secret, &p->tls));
        memcpy(p->tls.ports, p->o->ports, sizeof p->tls.ports);
        p->transport = &p->tls;
    }
    FL_TRY(fl_store_connect(zmq, p->o->links, keys, &client));
    p->kv = fl_store_kv(client);
    probe_pairs(p, tell, context);
    fl_store_disconnect(&client);
    return FL_OK;
}

void fl_host_probe(const fl_host_probe_order *order, const fl_curve_keys *keys,
                   fl_host_probe_tell *tell, void *context)
{
    fl_log_level_set(FL_LOG_WARN); /* nets of a moment */
    host_prober p = {.o = order, .since_us = fl_now_us()};
    void *zmq = zmq_ctx_new();
    fl_status status = zmq == NULL ? fl_fail(FL_EIO, "%s", zmq_strerror(zmq_errno()))
                                   : open_and_probe(&p, zmq, keys, tell, context);
    for (int peer = 0; status != FL_OK && peer < order->n; peer++) {
        fl_host_link result = {.a = order->index < peer ? order->index : peer,
                               .b = order->index < peer ? peer : order->index,
                               .order = order->number};
        snprintf(result.why, sizeof result.why, "%s", fl_errmsg());
        if (peer != order->index && !order->absent[peer]) {
            tell(context, &result);
        }
    }
    if (zmq != NULL) {
        zmq_ctx_term(zmq);
    }
}

bool fl_host_probe_failed(int wait_status, char why[FL_HOST_PROBE_END])
{
    const char *process = "the process that measures its links";
    if (WIFSIGNALED(wait_status)) {
        snprintf(why, FL_HOST_PROBE_END, "%s was killed by signal %d", process,
                 WTERMSIG(wait_status));
    } else {
        snprintf(why, FL_HOST_PROBE_END, "%s ended with exit code %d", process,
                 WEXITSTATUS(wait_status));
    }
    return wait_status != 0;
}
