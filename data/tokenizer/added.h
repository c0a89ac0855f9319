/* Added tokens: found in the text before the model sees the rest of it. */
#ifndef FL_DATA_TOKENIZER_ADDED_H
#define FL_DATA_TOKENIZER_ADDED_H

#include "data/tokenizer/parts.h"

/* Add a token behind those that are there. Its id is that of the piece of this text, or the next
 * free one. An empty text is none; one that was added before is changed. FL_ENOMEM, FL_EFORMAT. */
fl_status fl__added_add(fl_tokenizer *t, const char *text, size_t n,
                        fl_added_token token) FL_MUST_CHECK;

/* The id of an added token, or else of a piece; -1 if it is neither. */
int32_t fl__added_find(const fl_tokenizer *t, const char *text);

/* Make the two sets ready, once everything else is. FL_ENOMEM. */
fl_status fl__added_prepare(fl_tokenizer *t, fl_token_scratch *s) FL_MUST_CHECK;
void fl__added_fini(fl_added_set *set);

/* Split text [begin, end) at the tokens of a set: leftmost first, the longest there. FL_ENOMEM. */
fl_status fl__added_split(const fl_tokenizer *t, const fl_added_set *set, const uint8_t *text,
                          size_t begin, size_t end, fl_stretches *out) FL_MUST_CHECK;

/* Where the white space begins that ends at `at`, and where that ends which begins at `at`: at most
 * at `first` and `end`. */
size_t fl__spaces_left(const fl_tokenizer *t, const uint8_t *text, size_t first, size_t at);
size_t fl__spaces_right(const fl_tokenizer *t, const uint8_t *text, size_t at, size_t end);

#endif
