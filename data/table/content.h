/* The content of a table's file in memory: unpacked, checked to be text. */
#ifndef FL_DATA_TABLE_CONTENT_H
#define FL_DATA_TABLE_CONTENT_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

typedef enum fl_table_format { FL_TABLE_TSV, FL_TABLE_CSV, FL_TABLE_JSONL } fl_table_format;

typedef struct fl_table_content {
    const char *path; /* borrowed, for messages */
    fl_table_format format;
    char *bytes; /* [n_bytes], UTF-8 without a byte order mark and without zero bytes */
    size_t n_bytes;
    void *memory; /* owned; bytes lie in it */
} fl_table_content;

/* Read a file, plain or gzip, as .tsv, .csv or .jsonl by its name. FL_EINVAL for another name,
 * FL_EIO, FL_EFORMAT with the line, FL_ENOMEM. Nothing is held on failure. */
fl_status fl__table_content_read(const char *path, fl_table_content *out) FL_MUST_CHECK;

/* The same from memory, which is copied. The name decides the format. */
fl_status fl__table_content_copy(const char *name, const void *file, size_t file_bytes,
                                 fl_table_content *out) FL_MUST_CHECK;

void fl__table_content_fini(fl_table_content *content);

/* The line, from 1, in which the byte bytes[at] lies. */
int64_t fl__table_content_line(const fl_table_content *content, size_t at);

#endif
