/* A stack of bytes carved from one allocation: nothing is freed singly. */
#ifndef FL_DEVICE_SYSTEM_ARENA_H
#define FL_DEVICE_SYSTEM_ARENA_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* For tests of code that takes memory: what was taken, and guard bytes behind each piece. A piece
 * is filled with FL_POISON, so that reading it before it was written gives NaN. */
enum { FL_ARENA_GUARD_BYTES = 64, FL_ARENA_PIECES_MAX = 64, FL_GUARD_BYTE = 0xA5 };
#define FL_POISON UINT32_C(0x7FD0F1A5) /* as a float, a NaN that no operation makes */

typedef struct fl_arena_piece {
    unsigned char *at;
    size_t size_bytes, whole_bytes; /* asked for; with the guard */
} fl_arena_piece;

typedef struct fl_arena_guard {
    int n; /* pieces beyond FL_ARENA_PIECES_MAX are not watched */
    fl_arena_piece piece[FL_ARENA_PIECES_MAX];
} fl_arena_guard;

typedef struct fl_arena {
    unsigned char *base; /* borrowed from its allocator */
    size_t capacity_bytes;
    size_t used_bytes;
    size_t peak_bytes;     /* most that was ever used */
    const char *what;      /* for messages; borrowed */
    fl_arena_guard *guard; /* NULL: none; borrowed */
} fl_arena;

void fl_arena_init(fl_arena *arena, void *base, size_t capacity_bytes, const char *what);

/* 64-byte aligned, not cleared. FL_EBUDGET with the numbers when it does not fit. */
fl_status fl_arena_take(fl_arena *arena, size_t size_bytes, void **out) FL_MUST_CHECK;

/* The piece behind whose end a byte changed, and how far behind (*off, from 0); NULL: none. Pieces
 * that were released are looked at, too, until guard->n is set to 0. */
const fl_arena_piece *fl_arena_guard_find(const fl_arena_guard *guard, size_t *off);

/* A place to return to: everything taken since is given back. */
static inline size_t fl_arena_mark(const fl_arena *arena)
{
    return arena->used_bytes;
}
static inline void fl_arena_release(fl_arena *arena, size_t mark)
{
    arena->used_bytes = mark;
}

#endif
