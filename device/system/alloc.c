#include "device/system/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ALIGNMENT = 64, PAGE = 4096, LARGE = 128 * 1024, FIRST_ROOM_BYTES = 1024 };

static atomic_uint_fast64_t n_allocations;
static atomic_uint_fast64_t fail_at; /* the allocation with this number fails; 0: none */

static fl_status aligned(size_t size_bytes, void **out)
{
    uint64_t number = atomic_fetch_add(&n_allocations, 1) + 1;
    size_t size = size_bytes == 0 ? 1 : size_bytes;
    if (number == atomic_load(&fail_at)) {
        return fl_fail(FL_ENOMEM, "allocation of %zu bytes failed (on request)", size_bytes);
    }
    if (size > SIZE_MAX - ALIGNMENT) {
        return fl_fail(FL_ENOMEM, "allocation of %zu bytes is too large", size_bytes);
    }
    void *memory = aligned_alloc(ALIGNMENT, (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (memory == NULL) {
        return fl_fail(FL_ENOMEM, "allocation of %zu bytes failed", size_bytes);
    }
    *out = memory;
    return FL_OK;
}

fl_status fl_alloc(size_t size_bytes, void **out)
{
    void *memory = NULL;
    FL_TRY(aligned(size_bytes, &memory));
    memset(memory, 0, size_bytes == 0 ? 1 : size_bytes);
    *out = memory;
    return FL_OK;
}

/* Whole pages are given back to the system, which brings them back as zeros when they are touched.
 */
fl_status fl_alloc_untouched(size_t size_bytes, void **out)
{
    void *memory = NULL;
    FL_TRY(aligned(size_bytes, &memory));
    size_t head = (PAGE - (uintptr_t)memory % PAGE) % PAGE;
    size_t inner = size_bytes < LARGE ? 0 : (size_bytes - head) / PAGE * PAGE;
    if (inner == 0 || madvise((char *)memory + head, inner, MADV_DONTNEED) != 0) {
        head = size_bytes == 0 ? 1 : size_bytes;
        inner = 0;
    }
    memset(memory, 0, head);
    if (inner > 0) {
        memset((char *)memory + head + inner, 0, size_bytes - head - inner);
    }
    *out = memory;
    return FL_OK;
}

fl_status fl_alloc_array(size_t count, size_t size_bytes, void **out)
{
    if (size_bytes != 0 && count > SIZE_MAX / size_bytes) {
        return fl_fail(FL_ENOMEM, "%zu elements of %zu bytes are too many", count, size_bytes);
    }
    return fl_alloc(count * size_bytes, out);
}

fl_status fl_realloc(void **memory, size_t old_bytes, size_t new_bytes)
{
    void *fresh = NULL;
    FL_TRY(aligned(new_bytes, &fresh));
    if (*memory != NULL) {
        memcpy(fresh, *memory, old_bytes < new_bytes ? old_bytes : new_bytes);
        free(*memory);
    }
    *memory = fresh;
    return FL_OK;
}

fl_status fl_alloc_room(void **array, size_t n, size_t more, size_t size_bytes, size_t *capacity)
{
    if (*capacity - n >= more) {
        return FL_OK;
    }
    if (more > SIZE_MAX / 2 / size_bytes - n) {
        return fl_fail(FL_ENOMEM, "%zu elements of %zu bytes are too many", n + more, size_bytes);
    }
    size_t larger = *capacity == 0 ? FIRST_ROOM_BYTES / size_bytes + 1 : 2 * *capacity;
    larger = larger - n < more ? n + more : larger;
    FL_TRY(fl_realloc(array, n * size_bytes, larger * size_bytes));
    *capacity = larger;
    return FL_OK;
}

fl_status fl_strdup(const char *text, char **out)
{
    size_t size = strlen(text) + 1;
    void *copy = NULL;
    FL_TRY(aligned(size, &copy));
    memcpy(copy, text, size);
    *out = copy;
    return FL_OK;
}

void fl_free(void *memory)
{
    free(memory);
}

uint64_t fl_alloc_count(void)
{
    return atomic_load(&n_allocations);
}

void fl_alloc_fail_at(uint64_t n)
{
    atomic_store(&fail_at, n == 0 ? 0 : atomic_load(&n_allocations) + n);
}
