/* The content of a text file in memory: unpacked, checked to be text. */
#ifndef FL_DATA_TOKENS_CONTENT_H
#define FL_DATA_TOKENS_CONTENT_H

#include "data/memory_share.h"

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

typedef struct fl_content {
    const char *path; /* borrowed, for messages */
    char *bytes;      /* [n_bytes], UTF-8 without a byte order mark and without zero bytes */
    size_t n_bytes;
    void *memory;          /* owned; bytes lie in it */
    fl_memory_share share; /* of all that is read from it */
} fl_content;

/* Read a file, plain or gzip.
 * line_bytes_max  of a line, without its end
 * Returns         FL_EIO, FL_EFORMAT with the line, FL_ENOMEM. Nothing is held on failure. */
fl_status fl__content_read(const char *path, size_t line_bytes_max, fl_content *out) FL_MUST_CHECK;

/* The same from memory, which is copied. */
fl_status fl__content_copy(const char *name, const void *file, size_t file_bytes,
                           size_t line_bytes_max, fl_content *out) FL_MUST_CHECK;

void fl__content_fini(fl_content *content);

/* The line, from 1, in which the byte bytes[at] lies. */
int64_t fl__content_line(const fl_content *content, size_t at);

#endif
