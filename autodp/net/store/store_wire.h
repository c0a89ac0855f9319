/* The messages of the rendezvous store: little-endian, laid out as the structs of both ends.
 *
 *   request   magic u32 | op u32 | id u64 | key_bytes u32 | value_bytes u32 | key | value
 *   reply     magic u32 | status i32 | id u64 | value_bytes u32 | 0 u32 | value
 *
 * The client chooses the id; the reply repeats it. The store takes two requests with one id for the
 * same one, which its client has sent again: clients count from random numbers. A message has
 * exactly the length that its header gives. */
#ifndef FL_AUTODP_NET_STORE_STORE_WIRE_H
#define FL_AUTODP_NET_STORE_STORE_WIRE_H

#include <stdint.h>

enum {
    FL_STORE_REQUEST_MAGIC = 0x31534c46, /* FLS1 */
    FL_STORE_REPLY_MAGIC = 0x31524c46,   /* FLR1 */
    FL_STORE_KEY_MAX = 256,
    FL_STORE_VALUE_MAX = 1 << 20,
    FL_STORE_KEYS_MAX = 65536,
    FL_STORE_PARKED_MAX = 4096,
    FL_STORE_IDENTITY_MAX = 255, /* ZeroMQ's own limit */
};

typedef enum fl_store_op { FL_STORE_SET = 1, FL_STORE_GET = 2 } fl_store_op;

typedef struct fl_store_request {
    uint32_t magic, op;
    uint64_t id;
    uint32_t key_bytes, value_bytes;
} fl_store_request;

typedef struct fl_store_answer {
    uint32_t magic;
    int32_t status;
    uint64_t id;
    uint32_t value_bytes, zero;
} fl_store_answer;

_Static_assert(sizeof(fl_store_request) == 24 && sizeof(fl_store_answer) == 24,
               "the wire's structs have no holes");

#endif
