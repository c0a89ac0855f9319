#include "device/cuda/arena.h"

#include "device/system/alloc.h"

#include <string.h>

fl_status fl__cuda_arena_init(fl__cuda_arena *a, void *base, size_t size_bytes)
{
    *a = (fl__cuda_arena){.base = base, .size_bytes = size_bytes};
    FL_TRY(fl_alloc_room((void **)&a->pieces, 0, 1, sizeof *a->pieces, &a->room));
    a->pieces[a->n++] = (fl__cuda_piece){.size_bytes = size_bytes};
    return FL_OK;
}

void fl__cuda_arena_end(fl__cuda_arena *a)
{
    fl_free(a->pieces);
    *a = (fl__cuda_arena){0};
}

/* The hole that a piece of size_bytes comes from; n: none. */
static size_t find_hole(const fl__cuda_arena *a, size_t size_bytes)
{
    size_t best = a->n;
    for (size_t i = 0; i < a->n; i++) {
        const fl__cuda_piece *p = &a->pieces[i];
        if (!p->taken && p->size_bytes >= size_bytes &&
            (best == a->n || p->size_bytes < a->pieces[best].size_bytes)) {
            best = i;
        }
    }
    return best;
}

/* Leave the hole `at` with size_bytes, and put what lies behind into a hole of its own. */
static void split_hole(fl__cuda_arena *a, size_t at, size_t size_bytes)
{
    fl__cuda_piece *p = &a->pieces[at];
    memmove(p + 2, p + 1, (a->n - at - 1) * sizeof *p);
    p[1] =
        (fl__cuda_piece){.begin = p->begin + size_bytes, .size_bytes = p->size_bytes - size_bytes};
    p->size_bytes = size_bytes;
    a->n++;
}

fl_status fl__cuda_arena_take(fl__cuda_arena *a, size_t size_bytes, void **out)
{
    *out = NULL;
    if (size_bytes > a->size_bytes) {
        return FL_OK;
    }
    size_t at = find_hole(a, size_bytes == 0 ? 1 : size_bytes), unit = FL__CUDA_ALIGNMENT;
    if (at == a->n) {
        return FL_OK;
    }
    size_t whole = ((size_bytes == 0 ? 1 : size_bytes) + unit - 1) / unit * unit;
    if (whole < a->pieces[at].size_bytes) {
        FL_TRY(fl_alloc_room((void **)&a->pieces, a->n, 1, sizeof *a->pieces, &a->room));
        split_hole(a, at, whole);
    }
    a->pieces[at].taken = true;
    *out = a->base + a->pieces[at].begin;
    return FL_OK;
}

/* The piece that begins at a place; n: none. */
static size_t find_piece(const fl__cuda_arena *a, size_t begin)
{
    size_t low = 0, high = a->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (a->pieces[middle].begin < begin) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < a->n && a->pieces[low].begin == begin && a->pieces[low].taken ? low : a->n;
}

/* Add the hole behind piece `at` to it. */
static void join_next(fl__cuda_arena *a, size_t at)
{
    fl__cuda_piece *p = &a->pieces[at];
    p->size_bytes += p[1].size_bytes;
    memmove(p + 1, p + 2, (a->n - at - 2) * sizeof *p);
    a->n--;
}

bool fl__cuda_arena_give(fl__cuda_arena *a, const void *memory)
{
    const unsigned char *bytes = memory;
    if (a->n == 0 || bytes < a->base || bytes >= a->base + a->size_bytes) {
        return false;
    }
    size_t at = find_piece(a, (size_t)(bytes - a->base));
    if (at == a->n) {
        return false;
    }
    a->pieces[at].taken = false;
    if (at + 1 < a->n && !a->pieces[at + 1].taken) {
        join_next(a, at);
    }
    if (at > 0 && !a->pieces[at - 1].taken) {
        join_next(a, at - 1);
    }
    return true;
}

size_t fl__cuda_arena_largest_hole(const fl__cuda_arena *a)
{
    size_t largest = 0;
    for (size_t i = 0; i < a->n; i++) {
        const fl__cuda_piece *p = &a->pieces[i];
        largest = !p->taken && p->size_bytes > largest ? p->size_bytes : largest;
    }
    return largest;
}
