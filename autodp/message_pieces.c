#include "autodp/message_pieces.h"

#include "autodp/net/tag.h"
#include "device/system/clock.h"

enum { PIECE_BYTES = 256 * 1024 };

static fl_status move_piece(fl_net_buffer *b, int peer, bool sending, uint64_t tag, size_t at,
                            size_t size_bytes, int64_t piece_ms)
{
    FL_TRY(sending ? fl_net_send(b, peer, tag, at, size_bytes)
                   : fl_net_recv(b, peer, tag, at, size_bytes));
    return sending ? fl_net_wait_send(b, fl_deadline_us(piece_ms))
                   : fl_net_wait_recv(b, fl_deadline_us(piece_ms));
}

fl_status fl_message_pieces(fl_message_group *group, int peer, bool sending, uint32_t id,
                            void *data, size_t size_bytes, int64_t piece_ms)
{
    fl_net_buffer *b = NULL;
    int member = fl__message_index(group, peer);
    uint64_t tag = fl_tag(FL_TAG_PIECES, id);
    if (member < 0) {
        return fl_fail(FL_EINTERNAL, "bytes for rank %d, which is not a member", peer);
    }
    FL_TRY(fl_net_buffer_create(fl__message_net(group), data, size_bytes, &b));
    fl_status status = FL_OK;
    for (size_t at = 0; at < size_bytes && status == FL_OK; at += PIECE_BYTES) {
        size_t left = size_bytes - at;
        status = move_piece(b, member, sending, tag, at, left < PIECE_BYTES ? left : PIECE_BYTES,
                            piece_ms);
    }
    fl_net_buffer_destroy(&b);
    return status;
}
