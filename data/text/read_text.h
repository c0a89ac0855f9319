/* The ids of a whole text file. */
#ifndef FL_DATA_TEXT_READ_TEXT_H
#define FL_DATA_TEXT_READ_TEXT_H

#include "data/tokenizer/tokenizer.h"

/* Read and tokenize a file, plain or gzip, as one text without special tokens around it.
 * ids      [*n] out, the caller's: fl_free
 * Returns  FL_EIO, FL_EFORMAT with the file and the place, FL_ENOMEM; nothing is held on failure */
fl_status fl__text_read(const char *path, const fl_tokenizer *tokenizer, int32_t **ids,
                        int64_t *n) FL_MUST_CHECK;

#endif
