/* In the place of shadow.c: nothing is checked. A plugin runs whole jobs, and these have no time to
 * watch every load and store; the unit tests have. */
#include "tests/shim/parts.h"

void shim_region_add(const void *memory, size_t size_bytes, const char *name)
{
    (void)memory;
    (void)size_bytes;
    (void)name;
}

void shim_region_enter(const void *memory, size_t size_bytes, const char *name, bool shared)
{
    (void)memory;
    (void)size_bytes;
    (void)name;
    (void)shared;
}

void shim_region_remove(const void *memory)
{
    (void)memory;
}

bool shim_region_holds(const void *memory, size_t size_bytes)
{
    (void)memory;
    (void)size_bytes;
    return true;
}

void shim_access(const void *memory, size_t size_bytes, shim_access_kind kind)
{
    (void)memory;
    (void)size_bytes;
    (void)kind;
}
