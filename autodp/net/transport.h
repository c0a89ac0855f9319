/* A transport of a net: the table through which net.c calls it, and what all nets have. */
#ifndef FL_AUTODP_NET_TRANSPORT_H
#define FL_AUTODP_NET_TRANSPORT_H

#include "autodp/net/net.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each function does what the function of the same name in net.h says. close and buffer_destroy get
 * an object that exists; net.c checks the options of open, the peer of send and recv, and handles
 * the abort set. look: as in abort_set.h, NULL where members are on one host. */
struct fl_net_ops {
    fl_status (*open)(const fl_net_options *options, fl_net **out);
    void (*close)(fl_net *net);
    void (*abort)(fl_net *net, fl_status why);
    fl_status (*state)(fl_net *net);
    fl_status (*set_expendable)(fl_net *net, int peer, bool spare);
    bool (*lost)(fl_net *net, int peer);
    fl_status (*expect)(fl_net *net, int peer);
    fl_status (*late)(fl_net *net, int peer, int64_t waited_ms);
    fl_status (*buffer_create)(fl_net *net, void *data, size_t size_bytes, fl_net_buffer **out);
    void (*buffer_destroy)(fl_net_buffer *b);
    fl_status (*send)(fl_net_buffer *b, int peer, uint64_t tag, size_t offset, size_t size_bytes);
    fl_status (*recv)(fl_net_buffer *b, int peer, uint64_t tag, size_t offset, size_t size_bytes);
    fl_status (*wait_send)(fl_net_buffer *b, int64_t deadline_us);
    fl_status (*wait_recv)(fl_net_buffer *b, int64_t deadline_us);
    void (*look)(fl_net *net, fl_net_unanswered *worst);
    bool connects_late;
};

/* The first member of a transport's own net. */
struct fl_net {
    const fl_net_ops *ops;
    int rank, size;
    int64_t wait_timeout_ms;
    bool waits_unlimited;    /* an abort alone ends a wait */
    fl_abort_set *abort_set; /* NULL: none */
    fl_abortable abortable;
    char name[64];
};

/* The first member of a transport's own buffer. */
struct fl_net_buffer {
    fl_net *net;
};

/* Fill in all of *net, and join the abort set; from then on, another thread may abort the net. On
 * failure *net is in no abort set. */
fl_status fl__net_begin(fl_net *net, const fl_net_ops *ops,
                        const fl_net_options *options) FL_MUST_CHECK;

/* Leave the abort set: no thread aborts the net from here on. */
void fl__net_leave_abort_set(fl_net *net);

extern const fl_net_ops fl__gloo_net_ops, fl__shm_net_ops;

#ifdef __cplusplus
}
#endif
#endif
