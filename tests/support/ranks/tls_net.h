/* Members of a net over TLS, and the messages that they exchange. */
#ifndef FL_TESTS_SUPPORT_RANKS_TLS_NET_H
#define FL_TESTS_SUPPORT_RANKS_TLS_NET_H

#include "autodp/net/open/net_open.h"
#include "autodp/tls/tls.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "support/ranks/ranks.h"

#include <string.h>

enum { PATIENCE_MS = 120000, TAG = 7 };

static const char tls_key[] = "what only members know";

static inline int64_t soon(void)
{
    return fl_deadline_us(PATIENCE_MS);
}

static inline fl_net *open_net(const rank_env *env, const char *name, int size)
{
    fl_net_transport transport;
    fl_net *net = NULL;
    RANK_OK(fl_tls_transport(tls_key, &transport));
    const fl_net_options options = {.rank = env->rank,
                                    .size = size,
                                    .name = name,
                                    .kv = env->kv,
                                    .open_timeout_ms = PATIENCE_MS,
                                    .wait_timeout_ms = PATIENCE_MS,
                                    .transport = &transport};
    RANK_OK(fl_net_open(&options, &net));
    return net;
}

/* Memory for messages of one member in each direction. */
typedef struct mailbox {
    unsigned char *out, *in;
    size_t most_bytes;
    fl_net_buffer *sending, *receiving;
} mailbox;

static inline mailbox open_mailbox(fl_net *net, size_t most_bytes)
{
    mailbox m = {.most_bytes = most_bytes};
    RANK_OK(fl_alloc(most_bytes, (void **)&m.out));
    RANK_OK(fl_alloc(most_bytes, (void **)&m.in));
    RANK_OK(fl_net_buffer_create(net, m.out, most_bytes, &m.sending));
    RANK_OK(fl_net_buffer_create(net, m.in, most_bytes, &m.receiving));
    return m;
}

static inline void close_mailbox(mailbox *m)
{
    fl_net_buffer_destroy(&m->sending);
    fl_net_buffer_destroy(&m->receiving);
    fl_free(m->out);
    fl_free(m->in);
}

static inline unsigned char byte_of(int rank, int round, size_t i)
{
    return (unsigned char)((size_t)(rank * 31 + round * 7) + i * 13);
}

static inline void write_message(mailbox *m, int me, int round, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        m->out[i] = byte_of(me, round, i);
    }
}

static inline void check_message(const mailbox *m, int peer, int round, size_t size_bytes)
{
    for (size_t i = 0; i < size_bytes; i++) {
        RANK_CHECK(m->in[i] == byte_of(peer, round, i));
    }
}

/* Both send and receive a message; all of it is checked. */
static inline void exchange(mailbox *m, int me, int peer, int round, size_t size_bytes)
{
    write_message(m, me, round, size_bytes);
    RANK_OK(fl_net_recv(m->receiving, peer, TAG, 0, m->most_bytes));
    RANK_OK(fl_net_send(m->sending, peer, TAG, 0, size_bytes));
    RANK_OK(fl_net_wait_recv(m->receiving, soon()));
    RANK_OK(fl_net_wait_send(m->sending, soon()));
    check_message(m, peer, round, size_bytes);
}

static inline void say(const rank_env *env, const char *what)
{
    RANK_OK(env->kv->set(env->kv->self, what, soon(), "", 1));
}

static inline void await(const rank_env *env, const char *what, void *to, size_t size_bytes)
{
    void *data = NULL;
    size_t found_bytes = 0;
    RANK_OK(env->kv->get(env->kv->self, what, soon(), &data, &found_bytes));
    RANK_CHECK(found_bytes == size_bytes);
    memcpy(to, data, size_bytes);
    fl_free(data);
}

#endif
