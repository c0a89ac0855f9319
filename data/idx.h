/* One array of bytes in the idx format, plain or gzip.
 *
 * Layout: two zero bytes, the element type (0x08, unsigned byte, is the one accepted), the rank,
 * one big-endian u32 a dimension, then the elements, the last dimension fastest. */
#ifndef FL_DATA_IDX_H
#define FL_DATA_IDX_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

enum { FL_IDX_MAX_RANK = 4 };

typedef struct fl_idx {
    int rank;
    int64_t dims[FL_IDX_MAX_RANK]; /* each >= 1 */
    size_t size_bytes;             /* their product */
    uint8_t *bytes;                /* [size_bytes], owned */
    bool packed;                   /* the file was gzip: bytes are counted in what it holds */
} fl_idx;

/* Read the file at `path`. A name that ends in .gz must be gzip; any other may be.
 * rank     what the array must have, 1 .. FL_IDX_MAX_RANK
 * Returns  FL_EIO if the file cannot be read, FL_EFORMAT with the file, the byte, what was found
 *          and what was expected, FL_ENOMEM. Memory is only asked for once the header is known to
 *          agree with the file's size. *out is unchanged on failure; else fl_idx_fini frees it. */
fl_status fl_idx_read(const char *path, int rank, fl_idx *out) FL_MUST_CHECK;

/* The same from memory; `name` stands for the path. */
fl_status fl_idx_decode(const char *name, const void *file, size_t file_bytes, int rank,
                        fl_idx *out) FL_MUST_CHECK;

/* Free the bytes; an array that was never filled (all zero) is fine. */
void fl_idx_fini(fl_idx *idx);

#endif
