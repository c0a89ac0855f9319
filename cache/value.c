#include "cache/value.h"

#ifdef __x86_64__
#include <xxh_x86dispatch.h> /* the widest vectors that the processor has */
#else
#include <xxhash.h>
#endif

uint64_t fl_checksum(const void *bytes, size_t size_bytes, uint64_t seed)
{
    return XXH3_64bits_withSeed(bytes, size_bytes, seed);
}
