/* The functions that -fsanitize=thread has a compiler call before each load and store: here they
 * lead to the shim's own check. Nothing links ThreadSanitizer. */
#include "tests/shim/parts.h"

/* The names are the compiler's. */
#define CHECK(name, bytes, kind)                                                                   \
    void name(const void *at);                                                                     \
    void name(const void *at)                                                                      \
    {                                                                                              \
        shim_access(at, bytes, kind);                                                              \
    }

CHECK(__tsan_read1, 1, SHIM_READ)
CHECK(__tsan_read2, 2, SHIM_READ)
CHECK(__tsan_read4, 4, SHIM_READ)
CHECK(__tsan_read8, 8, SHIM_READ)
CHECK(__tsan_read16, 16, SHIM_READ)
CHECK(__tsan_write1, 1, SHIM_WRITE)
CHECK(__tsan_write2, 2, SHIM_WRITE)
CHECK(__tsan_write4, 4, SHIM_WRITE)
CHECK(__tsan_write8, 8, SHIM_WRITE)
CHECK(__tsan_write16, 16, SHIM_WRITE)
CHECK(__tsan_unaligned_read2, 2, SHIM_READ)
CHECK(__tsan_unaligned_read4, 4, SHIM_READ)
CHECK(__tsan_unaligned_read8, 8, SHIM_READ)
CHECK(__tsan_unaligned_read16, 16, SHIM_READ)
CHECK(__tsan_unaligned_write2, 2, SHIM_WRITE)
CHECK(__tsan_unaligned_write4, 4, SHIM_WRITE)
CHECK(__tsan_unaligned_write8, 8, SHIM_WRITE)
CHECK(__tsan_unaligned_write16, 16, SHIM_WRITE)

void __tsan_read_range(const void *at, size_t n);
void __tsan_read_range(const void *at, size_t n)
{
    shim_access(at, n, SHIM_READ);
}

void __tsan_write_range(const void *at, size_t n);
void __tsan_write_range(const void *at, size_t n)
{
    shim_access(at, n, SHIM_WRITE);
}

void __tsan_init(void);
void __tsan_init(void)
{
}

void __tsan_func_entry(const void *caller);
void __tsan_func_entry(const void *caller)
{
    (void)caller;
}

void __tsan_func_exit(void);
void __tsan_func_exit(void)
{
}
