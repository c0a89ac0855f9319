#include "autodp/tls/frame.h"

#include <stdbool.h>

static void put(unsigned char *at, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

static uint64_t get(const unsigned char *at, int n_bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++) {
        value |= (uint64_t)at[i] << (8 * i);
    }
    return value;
}

void fl__tls_frame_put(const fl_net_frame *frame, unsigned char head[FL__TLS_HEAD_BYTES])
{
    put(head, frame->kind, 4);
    put(head + 4, 0, 4);
    put(head + 8, frame->tag, 8);
    put(head + 16, frame->size_bytes, 8);
}

static bool is_sound(const fl_net_frame *frame)
{
    switch (frame->kind) {
    case FL__TLS_HELLO:
        return frame->tag == FL__TLS_VERSION && frame->size_bytes == 0;
    case FL__TLS_DATA:
    case FL__TLS_CREDIT:
        return frame->size_bytes <= fl__tls_message_max;
    case FL__TLS_RENEW:
    case FL__TLS_BYE:
        return frame->tag == 0 && frame->size_bytes == 0;
    }
    return false;
}

fl_status fl__tls_frame_get(const unsigned char head[FL__TLS_HEAD_BYTES], fl_net_frame *out)
{
    *out = (fl_net_frame){.kind = (fl__tls_kind)get(head, 4),
                          .tag = get(head + 8, 8),
                          .size_bytes = get(head + 16, 8)};
    if (get(head + 4, 4) != 0 || !is_sound(out)) {
        return fl_fail(FL_EFORMAT, "a frame of kind %u with tag %llx and %llu bytes",
                       (unsigned)out->kind, (unsigned long long)out->tag,
                       (unsigned long long)out->size_bytes);
    }
    return FL_OK;
}
