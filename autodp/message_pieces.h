/* Host memory that goes to another member of the message group beside its commands: in pieces, so
 * that a command for the same member waits for one piece at most. */
#ifndef FL_AUTODP_MESSAGE_PIECES_H
#define FL_AUTODP_MESSAGE_PIECES_H

#include "autodp/message.h"

/* Send data [size_bytes], or receive it. peer: a rank. Both ends call it, with one id for each
 * transfer that is under way between them. FL_EDEADLINE if a piece takes longer than piece_ms,
 * FL_EPEER, or the reason of an abort: what was received is undefined then. Threads: any, beside
 * one that uses the group; not while it is closed. */
fl_status fl_message_pieces(fl_message_group *group, int peer, bool sending, uint32_t id,
                            void *data, size_t size_bytes, int64_t piece_ms) FL_MUST_CHECK;

#endif
