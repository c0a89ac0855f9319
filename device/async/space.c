#include "device/async/space.h"

#include "device/system/alloc.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGNMENT = 64 };

static fl_status map_range(size_t range_bytes, unsigned char **out)
{
    void *range =
        mmap(NULL, range_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "%zu bytes of addresses: %s", range_bytes, strerror(errno));
    }
    *out = range;
    return FL_OK;
}

fl_status fl__space_init(fl__space *s, size_t range_bytes, bool hidden)
{
    *s = (fl__space){.range_bytes = range_bytes, .page_bytes = (size_t)sysconf(_SC_PAGESIZE)};
    FL_TRY(map_range(range_bytes, &s->handed));
    s->bytes = s->handed;
    fl_status status = hidden ? map_range(range_bytes, &s->bytes) : FL_OK;
    if (status != FL_OK) {
        fl__space_fini(s);
    }
    return status;
}

void fl__space_fini(fl__space *s)
{
    if (s->handed != NULL) {
        munmap(s->handed, s->range_bytes);
        if (s->bytes != s->handed) {
            munmap(s->bytes, s->range_bytes);
        }
    }
    fl_free(s->blocks);
    *s = (fl__space){0};
}

static size_t pages_of(const fl__space *s, size_t size_bytes)
{
    size_t n = (size_bytes + s->page_bytes - 1) / s->page_bytes;
    return (n == 0 ? 1 : n) * s->page_bytes;
}

/* Where an allocation begins within its pages: as far back as its alignment allows. */
static size_t place_of(const fl__space *s, const fl__space_block *b)
{
    size_t rounded = (b->size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return b->page + pages_of(s, b->size_bytes) - (rounded == 0 ? ALIGNMENT : rounded);
}

/* The first gap of size_bytes that begins at `from` or later, and the block before which it lies.
 */
static bool find_gap(const fl__space *s, size_t from, size_t size_bytes, size_t *page, int *before)
{
    size_t begin = from;
    for (int i = 0; i <= s->n_blocks; i++) {
        size_t end = i < s->n_blocks ? s->blocks[i].page : s->range_bytes;
        if (end >= begin && end - begin >= size_bytes) {
            *page = begin;
            *before = i;
            return true;
        }
        if (i < s->n_blocks) {
            size_t behind = end + pages_of(s, s->blocks[i].size_bytes) + s->page_bytes;
            begin = behind > begin ? behind : begin;
        }
    }
    return false;
}

static fl_status grow(fl__space *s)
{
    if (s->n_blocks < s->capacity) {
        return FL_OK;
    }
    int capacity = s->capacity == 0 ? 16 : 2 * s->capacity;
    FL_TRY(fl_realloc((void **)&s->blocks, (size_t)s->capacity * sizeof *s->blocks,
                      (size_t)capacity * sizeof *s->blocks));
    s->capacity = capacity;
    return FL_OK;
}

fl_status fl__space_take(fl__space *s, size_t size_bytes, void **out)
{
    size_t page = 0;
    int at = 0;
    FL_TRY(grow(s));
    bool fits = size_bytes <= s->range_bytes / 2;
    size_t pages = fits ? pages_of(s, size_bytes) : 0, with_guard = pages + s->page_bytes;
    fits = fits && (find_gap(s, s->cursor, with_guard, &page, &at) ||
                    find_gap(s, 0, with_guard, &page, &at));
    if (!fits || mprotect(s->bytes + page, pages, PROT_READ | PROT_WRITE) != 0) {
        return fl_fail(FL_ENOMEM, "%zu bytes in a range of %zu, %zu in use", size_bytes,
                       s->range_bytes, s->used_bytes);
    }
    memmove(s->blocks + at + 1, s->blocks + at, (size_t)(s->n_blocks - at) * sizeof *s->blocks);
    s->blocks[at] = (fl__space_block){page, size_bytes};
    s->n_blocks++;
    s->used_bytes += size_bytes;
    s->cursor = page + with_guard;
    *out = s->handed + place_of(s, &s->blocks[at]);
    return FL_OK;
}

bool fl__space_give(fl__space *s, void *memory, size_t size_bytes)
{
    const fl__space_block *b = fl__space_find(s, memory, size_bytes);
    if (b == NULL || s->handed + place_of(s, b) != memory || b->size_bytes != size_bytes) {
        return false;
    }
    size_t pages = pages_of(s, size_bytes);
    int at = (int)(b - s->blocks);
    (void)madvise(s->bytes + b->page, pages, MADV_DONTNEED); /* zeros, if touched again */
    (void)mprotect(s->bytes + b->page, pages, PROT_NONE);
    memmove(s->blocks + at, s->blocks + at + 1, (size_t)(s->n_blocks - at - 1) * sizeof *s->blocks);
    s->n_blocks--;
    s->used_bytes -= size_bytes;
    return true;
}

const fl__space_block *fl__space_find(const fl__space *s, const void *memory, size_t size_bytes)
{
    if (!fl__space_contains(s, memory)) {
        return NULL;
    }
    size_t at = (size_t)((const unsigned char *)memory - s->handed);
    int low = 0, high = s->n_blocks; /* the last block that begins at `at` or before is low - 1 */
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->blocks[middle].page <= at) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    if (low == 0) {
        return NULL;
    }
    const fl__space_block *b = &s->blocks[low - 1];
    size_t begin = place_of(s, b), end = begin + b->size_bytes;
    /* An allocation of no bytes has an address, too. */
    bool inside = at >= begin && at <= end && size_bytes <= end - at;
    return inside ? b : NULL;
}
