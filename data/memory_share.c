#include "data/memory_share.h"

#include "device/machine/host_limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

fl_memory_share fl__memory_share_take(void)
{
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    return (fl_memory_share){.allowed_bytes = machine.available_bytes / 2};
}

fl_status fl__memory_share_check(const fl_memory_share *share, const char *path, int64_t line,
                                 size_t bytes)
{
    char place[48] = "";
    if (share->allowed_bytes <= 0 || bytes <= (size_t)share->allowed_bytes) {
        return FL_OK;
    }
    if (line > 0) {
        snprintf(place, sizeof place, "line %" PRId64 ": ", line);
    }
    return fl_fail(FL_EFORMAT,
                   "%s: %sthe content unpacked, and what is read from it, take at least %zu bytes, "
                   "at most %" PRId64
                   " allowed: half of the memory that this machine has available",
                   path, place, bytes, share->allowed_bytes);
}

fl_status fl__memory_name_file(fl_status status, const char *path)
{
    return status == FL_ENOMEM && strstr(fl_errmsg(), path) == NULL ? fl_within(status, "%s", path)
                                                                    : status;
}
