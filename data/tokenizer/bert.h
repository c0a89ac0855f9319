/* WordPiece with BERT's normalization and pre-tokenization. */
#ifndef FL_DATA_TOKENIZER_BERT_H
#define FL_DATA_TOKENIZER_BERT_H

#include "data/tokenizer/parts.h"

/* Append the ids of text [begin, end), valid UTF-8. `text` is the whole text: spans are places in
 * it. FL_ENOMEM. */
fl_status fl__bert_encode(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                          size_t begin, size_t end) FL_MUST_CHECK;

/* Normalize text [begin, end) into s->norm. FL_ENOMEM. */
fl_status fl__bert_normalize(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                             size_t begin, size_t end) FL_MUST_CHECK;

/* Append the ids of s->norm[first .. end). FL_ENOMEM. */
fl_status fl__bert_encode_normalized(const fl_tokenizer *t, fl_token_scratch *s, size_t first,
                                     size_t end) FL_MUST_CHECK;

/* Fill what encoding looks up for each byte, once the vocabulary is complete. */
void fl__bert_prepare(fl_tokenizer *t);

#endif
