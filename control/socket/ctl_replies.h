/* What was answered lately, so that a request sent twice is answered twice and done once. A client
 * is known by its ZeroMQ identity; each has a few of its own, so none drives another's out quickly,
 * and all together stay within bounds. */
#ifndef FL_CONTROL_SOCKET_CTL_REPLIES_H
#define FL_CONTROL_SOCKET_CTL_REPLIES_H

#include "control/socket/ctl_request.h"

enum {
    FL_CTL_CLIENT_MAX = 255, /* bytes of an identity */
    FL_CTL_CLIENTS = 16,     /* remembered; the one silent for longest gives way */
    FL_CTL_REPLIES = 8,      /* remembered of each; the oldest gives way */
    FL_CTL_REPLY_MAX = 8192, /* bytes; a longer one is not remembered, as only queries have such */
};

typedef struct fl_ctl_client {
    unsigned char bytes[FL_CTL_CLIENT_MAX];
    size_t n;
} fl_ctl_client;

typedef struct fl_ctl_replies fl_ctl_replies;

fl_status fl_ctl_replies_create(fl_ctl_replies **out) FL_MUST_CHECK;
void fl_ctl_replies_destroy(fl_ctl_replies **replies);

/* What this client was answered under this id; NULL: nothing, or forgotten. *same: whether the
 * request was the very same. Borrowed until the next keep. */
const char *fl_ctl_replies_find(fl_ctl_replies *replies, const fl_ctl_client *client,
                                const fl_ctl_request *request, bool *same);

/* Keep the text of a reply, ended by 0. Without memory for it, it is not remembered. */
void fl_ctl_replies_keep(fl_ctl_replies *replies, const fl_ctl_client *client, const char *id,
                         uint64_t fingerprint, const char *text, size_t size_bytes);

#endif
