/* Tags of the messages of one net: a kind, and which one of that kind. */
#ifndef FL_AUTODP_TAG_H
#define FL_AUTODP_TAG_H

#include <stdint.h>

typedef enum fl_tag_kind {
    FL_TAG_CHANNEL = 1,
    FL_TAG_BUCKET,
    FL_TAG_SUM,
    FL_TAG_BROADCAST,
    FL_TAG_TELL,
    FL_TAG_GATHER,
    FL_TAG_TRANSFER,
} fl_tag_kind;

static inline uint64_t fl_tag(fl_tag_kind kind, uint32_t id)
{
    return (uint64_t)kind << 56 | id;
}

#endif
