/* How a tokenizer gets from its files into memory. */
#ifndef FL_DATA_TOKENIZER_FILES_TOKENIZER_OPEN_H
#define FL_DATA_TOKENIZER_FILES_TOKENIZER_OPEN_H

#include "data/tokenizer/tokenizer.h"

/* Open the tokenizer of a folder: tokenizer.json if it is there, else vocab.txt (WordPiece), else
 * vocab.json and merges.txt (BPE); with tokenizer_config.json, if it is there. Every file is
 * checked as a whole. Returns FL_EIO, FL_EFORMAT with the file, the place, what was found and what
 * is allowed, FL_ENOTSUP for a variant that is not implemented, FL_ENOMEM. */
fl_status fl_tokenizer_open(const char *folder, fl_tokenizer **out) FL_MUST_CHECK;

#endif
