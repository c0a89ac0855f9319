/* Whether a public table is of this program's version. */
#ifndef FL_DEVICE_TABLE_HEAD_H
#define FL_DEVICE_TABLE_HEAD_H

#include <frostline/status.h>
#include <frostline/version.h>

#include <stddef.h>

/* FL_ENOTSUP with both versions and the way out, unless the head is that of a table of size_bytes.
 * type: the table's, as in "fl_layer_ops". Threads: any. */
fl_status fl_table_head_check(const fl_table_head *head, size_t size_bytes,
                              const char *type) FL_MUST_CHECK;

#endif
