/* libFuzzer over the idx decoder. The first byte chooses the rank and whether the rest is packed
 * before it is decoded: the fuzzer would not find a right gzip checksum by itself. What is not
 * packed here reaches the decoder as it is, so broken gzip data is tried as well. */
#include "data/idx.h"
#include "pack.h"

#include <stdlib.h>

enum { FILE_MAX = 1 << 16 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What every caller relies on: a result agrees with itself, and its bytes are there to read. */
static void check(const fl_idx *idx, int rank)
{
    size_t product = 1;
    unsigned sum = 0;
    for (int i = 0; i < rank; i++) {
        if (idx->dims[i] < 1) {
            abort();
        }
        product *= (size_t)idx->dims[i];
    }
    for (size_t i = 0; i < idx->size_bytes; i++) {
        sum += idx->bytes[i];
    }
    if (idx->rank != rank || idx->size_bytes != product || sum > 255 * idx->size_bytes) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t packed[FILE_MAX];
    if (size < 1 || size > FILE_MAX / 2) {
        return 0;
    }
    int rank = 1 + (data[0] & 3);
    const uint8_t *file = data + 1;
    size_t n = size - 1;
    if ((data[0] & 4) != 0) {
        n = pack(file, n, packed, sizeof packed);
        file = packed;
    }
    fl_idx_file opened;
    fl_idx idx = {0};
    if (fl_idx_open_memory("fuzz", file, n, rank, &opened) != FL_OK) {
        return 0;
    }
    if (fl_idx_load(&opened, &idx) == FL_OK) {
        check(&idx, rank);
    } else if (idx.bytes != NULL) {
        abort();
    }
    fl_idx_close(&opened);
    fl_idx_fini(&idx);
    return 0;
}
