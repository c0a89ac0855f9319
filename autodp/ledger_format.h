/* The byte format of a ledger, as ledger.h describes it: shared by the writer and the reader. */
#ifndef FL_AUTODP_LEDGER_FORMAT_H
#define FL_AUTODP_LEDGER_FORMAT_H

#include <stdint.h>

enum {
    FL__LEDGER_VERSION = 2,
    FL__LEDGER_HEADER_BYTES = 8 + 4 + 4 + 8 + 8 + 8,
    FL__LEDGER_HEAD_BYTES = 8 + 8 + 4 + 4 + 4 + 4, /* of a record, with its check */
    FL__LEDGER_HASH_BYTES = 8
};

#define FL__LEDGER_MAGIC "FLLEDGER"
#define FL__LEDGER_END UINT32_MAX /* the replica of the end record */
#define FL__LEDGER_MAX_SAMPLES (INT64_C(1) << 32)

static inline void fl__put32(uint8_t *to, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void fl__put64(uint8_t *to, uint64_t value)
{
    fl__put32(to, (uint32_t)value);
    fl__put32(to + 4, (uint32_t)(value >> 32));
}

static inline uint32_t fl__get32(const uint8_t *from)
{
    return (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
           (uint32_t)from[3] << 24;
}

static inline uint64_t fl__get64(const uint8_t *from)
{
    return fl__get32(from) | (uint64_t)fl__get32(from + 4) << 32;
}

#endif
