/* One array of bytes in the idx format, plain or gzip.
 *
 * Layout: two zero bytes, the element type (0x08, unsigned byte, is the one accepted), the rank,
 * one big-endian u32 a dimension, then the elements, the last dimension fastest. */
#ifndef FL_DATA_IDX_H
#define FL_DATA_IDX_H

#include "data/source.h"

enum { FL_IDX_MAX_RANK = 4 };

typedef struct fl_idx {
    int rank;
    int64_t dims[FL_IDX_MAX_RANK]; /* each >= 1 */
    size_t size_bytes;             /* their product */
    uint8_t *bytes;                /* [size_bytes], owned */
    bool packed;                   /* the file was gzip: bytes are counted in what it holds */
} fl_idx;

/* A file whose header was read and agrees with the file's size; its elements were not read. */
typedef struct fl_idx_file {
    fl__source source;
    fl_idx idx; /* bytes is NULL */
} fl_idx_file;

/* Open the file at `path` and read its header. A name that ends in .gz must be gzip; any other may
 * be. Allocates nothing of the size that the header states: callers check dims and size_bytes
 * first. path     borrowed until fl_idx_close rank     what the array must have, 1 ..
 * FL_IDX_MAX_RANK Returns  FL_EIO if the file cannot be read, FL_EFORMAT with the file, the byte,
 * what was found and what was expected, FL_ENOMEM. Nothing is held on failure. */
fl_status fl_idx_open(const char *path, int rank, fl_idx_file *out) FL_MUST_CHECK;

/* The same over memory, borrowed; `name` stands for the path. */
fl_status fl_idx_open_memory(const char *name, const void *file, size_t file_bytes, int rank,
                             fl_idx_file *out) FL_MUST_CHECK;

/* Read the elements, once. Unpacks size_bytes and one byte at most, whatever the file holds.
 * Returns as fl_idx_open. *out is unchanged on failure; else fl_idx_fini frees it. */
fl_status fl_idx_load(fl_idx_file *file, fl_idx *out) FL_MUST_CHECK;

/* Close a file that fl_idx_open opened, or one of zeros. */
void fl_idx_close(fl_idx_file *file);

/* Free the bytes; an array that was never filled (all zero) is fine. */
void fl_idx_fini(fl_idx *idx);

#endif
