/* What one end of a link over a network keeps, so that a connection that is reset loses no message.
 * ZeroMQ connects again, but does not send again what was on its way.
 *
 * Each end numbers its messages from 1, and keeps them until the other end has taken them. An end
 * takes messages in their order, each once. Each message, a heartbeat too, begins with how many
 * were sent before it. An end that has taken fewer knows that it lacks some, and tells the other
 * end, which goes back to the first that was not taken (go-back-N). An end must therefore send
 * something from time to time: else its last message may be lost unseen. No clock decides when an
 * end goes back: it does so again only when something that it has sent since has arrived, and a
 * message is still missing.
 *
 * Threads: one at a time. */
#ifndef FL_CONTROL_LINK_RESEND_H
#define FL_CONTROL_LINK_RESEND_H

#include "control/link/wire/wire.h"

typedef struct fl_resend {
    unsigned char *kept; /* [n_bytes] of `capacity`: messages, each behind its size; not yet taken
                            by the other end; the oldest first */
    size_t n_bytes, capacity;
    size_t due_at;   /* where the first message that the transport has to get begins */
    int64_t n_made;  /* messages */
    int64_t n_sent;  /* those before due_at, and those that the other end has taken */
    int64_t n_given; /* those that the other end has taken */
    int64_t n_taken; /* the other end's, taken by this one */
    uint32_t n_back; /* how often this end went back */
    uint32_t lacks;  /* the other end's round in which one is missing; 0: none is */
} fl_resend;

/* Zeros are an end that has neither sent nor taken a message. */
void fl_resend_fini(fl_resend *resend);

/* Keep a copy of a message, to be sent after the others. Allocates only when more is kept than ever
 * before. */
fl_status fl_resend_keep(fl_resend *resend, const void *bytes, size_t size_bytes) FL_MUST_CHECK;

/* The next message to send, borrowed until one is kept or heard; NULL: none. And: the transport has
 * it. */
const unsigned char *fl_resend_due(const fl_resend *resend, size_t *size_bytes);
void fl_resend_sent(fl_resend *resend);

/* What is in front of a message. numbered: of the one that is due; else of one that is sent once.
 */
fl_wire_counts fl_resend_counts(const fl_resend *resend, bool numbered);

/* What was in front of a message from the other end. *take: its numbered part is the next one, or
 * it has none. Returns FL_EFORMAT for one that cannot be. */
fl_status fl_resend_heard(fl_resend *resend, const fl_wire_counts *counts,
                          bool *take) FL_MUST_CHECK;

#endif
