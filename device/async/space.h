/* A range of addresses that allocations are cut from, and the bytes behind it.
 *
 * Hidden space: callers get addresses that nobody can touch; the bytes lie in a second mapping, at
 * a constant distance. Open space: both are the same mapping. Only the pages of living allocations
 * can be touched at all, an untouchable page follows each, and an address is used again as late as
 * possible: a read beyond the end or after the end of a life faults.
 * Threads: the caller's lock. */
#ifndef FL_DEVICE_ASYNC_SPACE_H
#define FL_DEVICE_ASYNC_SPACE_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>

/* page: where its pages begin, behind the space's begin; its memory ends with its last page. */
typedef struct fl__space_block {
    size_t page, size_bytes;
} fl__space_block;

typedef struct fl__space {
    unsigned char *handed; /* what callers get */
    unsigned char *bytes;  /* the memory itself */
    size_t range_bytes;
    size_t page_bytes;
    size_t cursor;           /* where the search for the next gap begins */
    fl__space_block *blocks; /* the living ones, in order */
    int n_blocks, capacity;
    size_t used_bytes; /* their sizes */
} fl__space;

/* FL_ENOMEM: no addresses. All zero is a space that fl__space_fini accepts. */
fl_status fl__space_init(fl__space *s, size_t range_bytes, bool hidden) FL_MUST_CHECK;
void fl__space_fini(fl__space *s);

/* Cleared, 64-byte aligned; no page is held before it is touched. FL_ENOMEM */
fl_status fl__space_take(fl__space *s, size_t size_bytes, void **out) FL_MUST_CHECK;

/* False, and nothing happens, if `memory` is not a living allocation of this size. */
bool fl__space_give(fl__space *s, void *memory, size_t size_bytes);

/* The living allocation that contains [memory, memory + size_bytes), or NULL. */
const fl__space_block *fl__space_find(const fl__space *s, const void *memory, size_t size_bytes);

static inline bool fl__space_contains(const fl__space *s, const void *address)
{
    const unsigned char *a = address;
    return s->handed != NULL && a >= s->handed && a < s->handed + s->range_bytes;
}

/* The bytes behind an address that a caller has. */
static inline void *fl__space_bytes(const fl__space *s, const void *handed)
{
    return s->bytes + ((const unsigned char *)handed - s->handed);
}

#endif
