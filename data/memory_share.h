/* How much memory the content of one file may take, unpacked and with what is read from it. */
#ifndef FL_DATA_MEMORY_SHARE_H
#define FL_DATA_MEMORY_SHARE_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* Packed data may be a thousand times as large as its file, so the file's size is no bound. */
typedef struct fl_memory_share {
    int64_t allowed_bytes; /* half of what the machine has available; 0: not known, anything */
} fl_memory_share;

/* What is available now. The other half is for copies while an array grows. */
fl_memory_share fl__memory_share_take(void);

/* FL_EFORMAT with the file and the place unless `bytes` fit.
 * line  from 1, where reading is; 0: the message names none */
fl_status fl__memory_share_check(const fl_memory_share *share, const char *path, int64_t line,
                                 size_t bytes) FL_MUST_CHECK;

/* Put the file before the message of FL_ENOMEM, unless it is there. Returns status. */
fl_status fl__memory_name_file(fl_status status, const char *path) FL_MUST_CHECK;

#endif
