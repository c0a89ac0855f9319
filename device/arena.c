#include "device/arena.h"

enum { ALIGNMENT = 64 };

void fl_arena_init(fl_arena *arena, void *base, size_t capacity_bytes, const char *what)
{
    *arena = (fl_arena){.base = base, .capacity_bytes = capacity_bytes, .what = what};
}

fl_status fl_arena_take(fl_arena *arena, size_t size_bytes, void **out)
{
    size_t left = arena->capacity_bytes - arena->used_bytes;
    size_t size = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (size < size_bytes || size > left) {
        return fl_fail(FL_EBUDGET, "%s: %zu bytes asked, %zu of %zu in use", arena->what,
                       size_bytes, arena->used_bytes, arena->capacity_bytes);
    }
    *out = arena->base + arena->used_bytes;
    arena->used_bytes += size;
    if (arena->used_bytes > arena->peak_bytes) {
        arena->peak_bytes = arena->used_bytes;
    }
    return FL_OK;
}
