/* Pieces of one range of device memory. The range is never touched here: what is free and what is
 * taken stands in host memory.
 *
 * A piece comes from the smallest hole that is large enough, at its beginning; of two that are
 * alike, from the lower. A piece that is given back and the holes beside it become one hole. Pieces
 * begin at multiples of 256 bytes, as the CUDA runtime's own do. */
#ifndef FL_DEVICE_CUDA_ARENA_H
#define FL_DEVICE_CUDA_ARENA_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>

enum { FL__CUDA_ALIGNMENT = 256 };

typedef struct fl__cuda_piece {
    size_t begin, size_bytes; /* multiples of FL__CUDA_ALIGNMENT, but the end of the range */
    bool taken;
} fl__cuda_piece;

/* All zero: a range without a byte. Threads: one at a time. */
typedef struct fl__cuda_arena {
    unsigned char *base;
    size_t size_bytes;
    fl__cuda_piece *pieces; /* [n], in order of their places; every byte is in one of them */
    size_t n, room;
} fl__cuda_arena;

/* base: aligned, owned by the caller. FL_ENOMEM */
fl_status fl__cuda_arena_init(fl__cuda_arena *a, void *base, size_t size_bytes) FL_MUST_CHECK;
void fl__cuda_arena_end(fl__cuda_arena *a);

/* *out NULL: no hole is large enough. FL_ENOMEM: no host memory to note it in */
fl_status fl__cuda_arena_take(fl__cuda_arena *a, size_t size_bytes, void **out) FL_MUST_CHECK;

/* Whether `memory` is a piece of this arena, which is a hole from now on. */
bool fl__cuda_arena_give(fl__cuda_arena *a, const void *memory);

size_t fl__cuda_arena_largest_hole(const fl__cuda_arena *a);

#endif
