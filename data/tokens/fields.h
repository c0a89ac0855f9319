/* What data sets of text say of the job's fields, in one way. */
#ifndef FL_DATA_TOKENS_FIELDS_H
#define FL_DATA_TOKENS_FIELDS_H

#include "data/tokenizer/tokenizer.h"

#include <stdbool.h>

/* Open the tokenizer of this folder, which data.tokenizer or the model names. As fl_tokenizer_open;
 * messages are about data.tokenizer. */
fl_status fl__field_tokenizer_open(const char *folder, fl_tokenizer **out) FL_MUST_CHECK;

/* FL_EINVAL about data.max_tokens unless a token of each text fits beside the special tokens.
 * pair  samples have two texts */
fl_status fl__field_check_max_tokens(const fl_tokenizer *tokenizer, bool pair,
                                     int64_t max_tokens) FL_MUST_CHECK;

/* Returns the status of reading files; its message is about data.path unless it is about another
 * field already. */
fl_status fl__field_name_path(fl_status status) FL_MUST_CHECK;

#endif
