#include "device/system/arena.h"

#include <string.h>

enum { ALIGNMENT = 64 };

void fl_arena_init(fl_arena *arena, void *base, size_t capacity_bytes, const char *what)
{
    *arena = (fl_arena){.base = base, .capacity_bytes = capacity_bytes, .what = what};
}

static void watch_piece(fl_arena_guard *guard, unsigned char *at, size_t size_bytes,
                        size_t whole_bytes)
{
    static const uint32_t poison = FL_POISON;
    for (size_t i = 0; i < size_bytes; i++) {
        at[i] = ((const unsigned char *)&poison)[i % sizeof poison];
    }
    memset(at + size_bytes, FL_GUARD_BYTE, whole_bytes - size_bytes);
    if (guard->n < FL_ARENA_PIECES_MAX) {
        guard->piece[guard->n++] = (fl_arena_piece){at, size_bytes, whole_bytes};
    }
}

const fl_arena_piece *fl_arena_guard_find(const fl_arena_guard *guard, size_t *off)
{
    for (int i = 0; i < guard->n; i++) {
        const fl_arena_piece *p = &guard->piece[i];
        for (size_t at = p->size_bytes; at < p->whole_bytes; at++) {
            if (p->at[at] != FL_GUARD_BYTE) {
                *off = at - p->size_bytes;
                return p;
            }
        }
    }
    return NULL;
}

fl_status fl_arena_take(fl_arena *arena, size_t size_bytes, void **out)
{
    size_t left = arena->capacity_bytes - arena->used_bytes;
    size_t guard_bytes = arena->guard == NULL ? 0 : FL_ARENA_GUARD_BYTES;
    size_t size = (size_bytes + guard_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size < size_bytes || size > left) {
        return fl_fail(FL_EBUDGET, "%s: %zu bytes asked, %zu of %zu in use", arena->what,
                       size_bytes, arena->used_bytes, arena->capacity_bytes);
    }
    *out = arena->base + arena->used_bytes;
    if (arena->guard != NULL) {
        watch_piece(arena->guard, *out, size_bytes, size);
    }
    arena->used_bytes += size;
    if (arena->used_bytes > arena->peak_bytes) {
        arena->peak_bytes = arena->used_bytes;
    }
    return FL_OK;
}
