/* How values lie in the store, with a checksum: fp32 as they are, or bf16 (device/cpu/bf16.h). */
#ifndef FL_CACHE_VALUE_H
#define FL_CACHE_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of stored bytes; `seed` binds it to what they are for. Pure. */
uint64_t fl_checksum(const void *bytes, size_t size_bytes, uint64_t seed);

#endif
