#include "device/table_head.h"

#include <string.h>

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

/* The number of the first function that is missing; -1: none. */
static int find_missing(const fl_ops_table *t)
{
    typedef void (*entry)(void);
    for (size_t at = t->first; at < t->size_bytes; at += sizeof(entry)) {
        entry function;
        memcpy(&function, (const char *)t->table + at, sizeof function);
        if (function == NULL) {
            return (int)((at - t->first) / sizeof(entry));
        }
    }
    return -1;
}

fl_status fl_ops_table_check(const fl_ops_table *t)
{
    if (t->its_version != t->version || t->its_size_bytes != t->size_bytes) {
        /* The rest of such a table may lie anywhere, its name too. */
        return fl_fail(
            FL_ENOTSUP,
            "the %s was built for version %u of the %s interface (%u bytes); this program "
            "has version %u (%zu bytes)",
            t->what, t->its_version, t->interface, t->its_size_bytes, t->version, t->size_bytes);
    }
    int missing = find_missing(t);
    return missing < 0 ? FL_OK
                       : fl_fail(FL_ENOTSUP, "%s %s lacks function %d of the %s interface", t->what,
                                 t->kind, missing, t->interface);
}
