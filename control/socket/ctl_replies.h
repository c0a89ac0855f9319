/* Remembers recent replies, so that a request sent twice is answered twice but executed once. A
 * client is known by its ZeroMQ identity. Each client has its own few slots, so one client does not
 * quickly displace another's replies, and the total is bounded. */
#ifndef FL_CONTROL_SOCKET_CTL_REPLIES_H
#define FL_CONTROL_SOCKET_CTL_REPLIES_H

#include "control/socket/ctl_request.h"

enum {
    FL_CTL_CLIENT_MAX = 255, /* bytes of an identity */
    FL_CTL_CLIENTS = 16,     /* clients remembered; the one silent for longest is dropped */
    FL_CTL_REPLIES = 8,      /* replies remembered of each client; the oldest is dropped */
    FL_CTL_REPLY_MAX = 8192, /* bytes; a longer reply is not remembered: only queries have one */
};

typedef struct fl_ctl_client {
    unsigned char bytes[FL_CTL_CLIENT_MAX];
    size_t n;
} fl_ctl_client;

typedef struct fl_ctl_replies fl_ctl_replies;

fl_status fl_ctl_replies_create(fl_ctl_replies **out) FL_MUST_CHECK;
void fl_ctl_replies_destroy(fl_ctl_replies **replies);

/* The reply to this client's earlier request with this id; NULL: none, or forgotten. *same: whether
 * that request had the same bytes. Borrowed until the next keep. */
const char *fl_ctl_replies_find(fl_ctl_replies *replies, const fl_ctl_client *client,
                                const fl_ctl_request *request, bool *same);

/* Keep the text of a reply, zero-terminated. Without memory for it, the reply is not remembered. */
void fl_ctl_replies_keep(fl_ctl_replies *replies, const fl_ctl_client *client, const char *id,
                         uint64_t fingerprint, const char *text, size_t size_bytes);

#endif
