/* A stack of bytes carved from one allocation: nothing is freed singly. */
#ifndef FL_DEVICE_ARENA_H
#define FL_DEVICE_ARENA_H

#include <frostline/status.h>

#include <stddef.h>

typedef struct fl_arena {
    unsigned char *base; /* borrowed from its allocator */
    size_t capacity_bytes;
    size_t used_bytes;
    size_t peak_bytes; /* most that was ever used */
    const char *what;  /* for messages; borrowed */
} fl_arena;

void fl_arena_init(fl_arena *arena, void *base, size_t capacity_bytes, const char *what);

/* 64-byte aligned, not cleared. FL_EBUDGET with the numbers when it does not fit. */
fl_status fl_arena_take(fl_arena *arena, size_t size_bytes, void **out) FL_MUST_CHECK;

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
