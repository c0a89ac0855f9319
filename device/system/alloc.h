/* The one door to host memory: 64-byte aligned, counted, and able to fail on request. */
#ifndef FL_DEVICE_SYSTEM_ALLOC_H
#define FL_DEVICE_SYSTEM_ALLOC_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* Cleared memory of at least one byte; FL_ENOMEM leaves *out alone. Free with fl_free. */
fl_status fl_alloc(size_t size_bytes, void **out) FL_MUST_CHECK;

/* The same, but a large piece is held only where it is touched: for what is wanted later. */
fl_status fl_alloc_untouched(size_t size_bytes, void **out) FL_MUST_CHECK;

/* count * size with overflow check; cleared. */
fl_status fl_alloc_array(size_t count, size_t size_bytes, void **out) FL_MUST_CHECK;

/* Grow or shrink; the new part is not cleared. *memory may be NULL; unchanged on failure. */
fl_status fl_realloc(void **memory, size_t old_bytes, size_t new_bytes) FL_MUST_CHECK;

/* Make room for `more` elements of size_bytes behind the first n of *array. An array that is too
 * small at least doubles. *array NULL: *capacity is 0. Both are unchanged on failure. */
fl_status fl_alloc_room(void **array, size_t n, size_t more, size_t size_bytes,
                        size_t *capacity) FL_MUST_CHECK;

/* A copy of `text`. */
fl_status fl_strdup(const char *text, char **out) FL_MUST_CHECK;

/* NULL is fine. */
void fl_free(void *memory);

/* Allocations made by this process so far: a test compares two readings. */
uint64_t fl_alloc_count(void);

/* Make the n-th allocation from now fail (1 = the next), once; 0 switches it off. Tests only. */
void fl_alloc_fail_at(uint64_t n);

#endif
