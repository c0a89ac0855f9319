/* A connection to another worker on which nothing comes back, although the other end's system would
 * answer whatever its process does: packets are lost on the way, or a firewall drops them, that of
 * the host itself where both workers are on one. */
#ifndef FL_AUTODP_NET_UNANSWERED_H
#define FL_AUTODP_NET_UNANSWERED_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeros: every connection is answered. */
typedef struct fl_net_unanswered {
    uint32_t address; /* of the other end: 0x0a000001 is 10.0.0.1 */
    uint16_t port;    /* at which the other end listens */
    bool connected;   /* it was open; else this end still tries to connect */
    int32_t error;    /* the errno of the last attempt to connect; 0: no answer came */
    int64_t for_ms;   /* until the last attempt that had time for an answer */
} fl_net_unanswered;

/* Keep the one that has waited longer. Pure. */
static inline void fl_net_unanswered_add(fl_net_unanswered *worst, const fl_net_unanswered *other)
{
    if (other->address != 0 && other->for_ms > worst->for_ms) {
        *worst = *other;
    }
}

#ifdef __cplusplus
}
#endif
#endif
