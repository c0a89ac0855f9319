/* gzip for fuzz targets: a fuzzer would not find the right checksum of packed data by itself. */
#ifndef FL_TESTS_FUZZ_PACK_H
#define FL_TESTS_FUZZ_PACK_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

/* Pack `size` bytes into `out`, which has room for `out_max`. Returns the size; 0: no room. */
static inline size_t pack(const uint8_t *data, size_t size, uint8_t *out, size_t out_max)
{
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        abort();
    }
    z.next_in = (z_const Bytef *)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)out_max;
    int status = deflate(&z, Z_FINISH);
    size_t n = status == Z_STREAM_END ? z.total_out : 0;
    deflateEnd(&z);
    return n;
}

#endif
