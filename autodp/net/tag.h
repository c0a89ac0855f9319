/* Tags of the messages of one net: a kind, and which one of that kind. */
#ifndef FL_AUTODP_NET_TAG_H
#define FL_AUTODP_NET_TAG_H

#include <stdint.h>

typedef enum fl_tag_kind {
    FL_TAG_CHANNEL = 1,
    FL_TAG_BUCKET,
    FL_TAG_GROUP_ALL_REDUCE,
    FL_TAG_MESSAGE_BROADCAST,
    FL_TAG_MESSAGE_ALL_GATHER,
    FL_TAG_TRANSFER,
    FL_TAG_TRANSFER_READ, /* back to the sender: a piece was read */
    FL_TAG_TRANSFER_CARD,
    FL_TAG_TRANSFER_ANSWER,
    FL_TAG_NCCL_CHANNEL, /* the id of a communicator */
    FL_TAG_NCCL_BUCKET,
    FL_TAG_NCCL_PARENT,
    FL_TAG_NCCL_STATE,
    FL_TAG_PIECES, /* in the background of the message group */
} fl_tag_kind;

static inline uint64_t fl_tag(fl_tag_kind kind, uint32_t id)
{
    return (uint64_t)kind << 56 | id;
}

#endif
