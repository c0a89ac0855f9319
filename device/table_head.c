#include "device/table_head.h"

fl_status fl_table_head_check(const fl_table_head *head, size_t size_bytes, const char *type)
{
    if (head->version == FL_API_VERSION && head->size_bytes == size_bytes) {
        return FL_OK;
    }
    if (head->version == 0 && head->size_bytes == 0) {
        return fl_fail(FL_ENOTSUP, "its %s has no head: set .head = FL_TABLE_HEAD(%s)", type, type);
    }
    return fl_fail(
        FL_ENOTSUP,
        "its %s is of version %u of Frostline's C API (%u bytes), this program has version "
        "%d (%zu bytes): compile it with this version's headers",
        type, head->version, head->size_bytes, FL_API_VERSION, size_bytes);
}
