/* How members find each other. The store has a few requests of each, and not one for each pair:
 *
 *   1. each member publishes where it listens
 *   2. member 0 collects the addresses of all, and publishes the table
 *   3. member 0 connects to all, and publishes that they are there
 *
 * So a member that dies, whether it talks or not, is missed by member 0 at once. When member 0 then
 * leaves its broken net, all others miss it. */
#include "autodp/tls/state.h"

#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/thread.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

enum { SLICE_MS = 100, KEY_MAX = 160 }; /* an abort is noticed at the latest after a slice */

/* What is published of a member. */
typedef struct card {
    uint16_t family, port; /* network order */
    unsigned char address[16];
} card;

static card make_card(const struct sockaddr_storage *address)
{
    card c = {.family = address->ss_family};
    if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)address;
        c.port = a->sin6_port;
        memcpy(c.address, &a->sin6_addr, sizeof a->sin6_addr);
    } else {
        const struct sockaddr_in *a = (const struct sockaddr_in *)address;
        c.port = a->sin_port;
        memcpy(c.address, &a->sin_addr, sizeof a->sin_addr);
    }
    return c;
}

static fl_status read_card(const card *c, int peer, struct sockaddr_storage *out)
{
    *out = (struct sockaddr_storage){.ss_family = c->family};
    if (c->family == AF_INET6) {
        struct sockaddr_in6 *a = (struct sockaddr_in6 *)out;
        a->sin6_port = c->port;
        memcpy(&a->sin6_addr, c->address, sizeof a->sin6_addr);
    } else if (c->family == AF_INET) {
        struct sockaddr_in *a = (struct sockaddr_in *)out;
        a->sin_port = c->port;
        memcpy(&a->sin_addr, c->address, sizeof a->sin_addr);
    } else {
        return fl_fail(FL_EFORMAT, "address of member %d is of family %u", peer, c->family);
    }
    return FL_OK;
}

/* ---- the store, ended early by an abort ---- */

typedef struct asking {
    fl__tls_net *net;
    const fl_net_options *o;
    int64_t deadline_us;
} asking;

/* Whether a request that has no answer yet goes on. */
static fl_status go_on(const asking *a, const char *waits_for)
{
    fl_status state = (fl_status)atomic_load(&a->net->state);
    if (state != FL_OK) {
        return fl_fail(state, "%s", waits_for);
    }
    return fl_now_us() < a->deadline_us ? FL_OK
                                        : fl_fail(FL_EDEADLINE, "%s: no answer in time", waits_for);
}

static int64_t slice_us(const asking *a)
{
    int64_t slice = fl_deadline_us(SLICE_MS);
    return slice < a->deadline_us ? slice : a->deadline_us;
}

static fl_status publish(const asking *a, const char *which, const void *data, size_t size_bytes)
{
    char key[KEY_MAX];
    snprintf(key, sizeof key, "%s/%s", a->o->name, which);
    for (;;) {
        fl_status status = a->o->kv->set(a->o->kv->self, key, slice_us(a), data, size_bytes);
        if (status != FL_EDEADLINE) {
            return status;
        }
        FL_TRY(go_on(a, "publishing this member's address"));
    }
}

static fl_status look_up(const asking *a, const char *which, void *out, size_t size_bytes)
{
    char key[KEY_MAX], waits_for[64];
    snprintf(key, sizeof key, "%s/%s", a->o->name, which);
    snprintf(waits_for, sizeof waits_for, "waiting for %s of the members", which);
    for (;;) {
        void *data = NULL;
        size_t found_bytes = 0;
        fl_status status = a->o->kv->get(a->o->kv->self, key, slice_us(a), &data, &found_bytes);
        if (status == FL_OK) {
            if (found_bytes == size_bytes) {
                memcpy(out, data, size_bytes);
            } else {
                status = fl_fail(FL_EFORMAT, "'%s' of the members has %zu bytes, expected %zu",
                                 which, found_bytes, size_bytes);
            }
            fl_free(data);
            return status;
        }
        if (status != FL_EDEADLINE) {
            return fl_within(status, "'%s' of the members", which);
        }
        FL_TRY(go_on(a, waits_for));
    }
}

static fl_status collect(const asking *a, card *cards)
{
    char which[16];
    for (int peer = 1; peer < a->o->size; peer++) {
        snprintf(which, sizeof which, "%d", peer);
        FL_TRY(look_up(a, which, &cards[peer], sizeof *cards));
    }
    return publish(a, "all", cards, (size_t)a->o->size * sizeof *cards);
}

static fl_status exchange(const asking *a, card *cards)
{
    char which[16];
    struct sockaddr_storage mine;
    fl__tls_gate_address(a->net, &mine);
    cards[a->o->rank] = make_card(&mine);
    snprintf(which, sizeof which, "%d", a->o->rank);
    FL_TRY(publish(a, which, &cards[a->o->rank], sizeof *cards));
    FL_TRY(a->o->rank == 0 ? collect(a, cards)
                           : look_up(a, "all", cards, (size_t)a->o->size * sizeof *cards));
    fl_status status = FL_OK;
    pthread_mutex_lock(&a->net->mutex);
    for (int peer = 0; peer < a->o->size && status == FL_OK; peer++) {
        status = read_card(&cards[peer], peer, &a->net->peers[peer].address);
    }
    pthread_mutex_unlock(&a->net->mutex);
    return status;
}

/* ---- (3) ---- */

/* A member that is not connected yet; NULL: all are. The mutex is held. */
static const fl__tls_peer *find_absent(const fl__tls_net *net)
{
    for (int peer = 1; peer < net->base.size; peer++) {
        if (net->peers[peer].out.state != FL__TLS_OPEN) {
            return &net->peers[peer];
        }
    }
    return NULL;
}

static fl_status connect_all(const asking *a)
{
    fl__tls_net *net = a->net;
    const fl__tls_peer *absent = NULL;
    bool in_time = true;
    pthread_mutex_lock(&net->mutex);
    for (int peer = 1; peer < net->base.size; peer++) {
        fl__tls_demand(net, &net->peers[peer]);
    }
    while (in_time && atomic_load(&net->state) == FL_OK && (absent = find_absent(net)) != NULL) {
        in_time = fl_condition_wait_until(&net->idle, &net->mutex, a->deadline_us);
    }
    pthread_mutex_unlock(&net->mutex);
    FL_TRY(fl_net_state(&net->base));
    return absent == NULL ? FL_OK : fl_fail(FL_EDEADLINE, "member %d did not arrive", absent->rank);
}

static fl_status meet(const asking *a)
{
    char there = 1;
    if (a->o->rank == 0) {
        FL_TRY(connect_all(a));
        return publish(a, "open", &there, sizeof there);
    }
    return look_up(a, "open", &there, sizeof there);
}

fl_status fl__tls_rendezvous(fl__tls_net *net, const fl_net_options *options)
{
    const asking a = {net, options, fl_deadline_us(options->open_timeout_ms)};
    card *cards = NULL;
    FL_TRY(fl_alloc_array((size_t)options->size, sizeof *cards, (void **)&cards));
    fl_status status = exchange(&a, cards);
    fl_free(cards);
    FL_TRY(status);
    FL_TRY(fl__tls_loop_start(net));
    return meet(&a);
}
