/* Whether a public table is of this program's version. */
#ifndef FL_DEVICE_TABLE_HEAD_H
#define FL_DEVICE_TABLE_HEAD_H

#include <frostline/status.h>
#include <frostline/version.h>

#include <stddef.h>
#include <stdint.h>

/* FL_ENOTSUP with both versions and the way out, unless the head is that of a table of size_bytes.
 * type: the table's, as in "fl_layer_ops". Threads: any. */
fl_status fl_table_head_check(const fl_table_head *head, size_t size_bytes,
                              const char *type) FL_MUST_CHECK;

/* The tables of functions that a backend fills begin with a version, their size and the kind's
 * name; from `first` on they hold functions only. */
typedef struct fl_ops_table {
    const void *table;
    size_t first, size_bytes; /* where the functions begin; of the table as this program has it */
    uint32_t version, its_version; /* of this program; of the table */
    uint32_t its_size_bytes;
    const char *kind; /* read only where version and size are right */
    const char *what; /* "device", "transport" */
    const char *interface;
} fl_ops_table;

/* FL_ENOTSUP with both versions and sizes, or with the kind and the number of the first function
 * that is missing. Threads: any. */
fl_status fl_ops_table_check(const fl_ops_table *t) FL_MUST_CHECK;

#endif
