/* The tokens of many texts, encoded in threads. */
#ifndef FL_DATA_TOKENS_ENCODE_H
#define FL_DATA_TOKENS_ENCODE_H

#include "data/tokens/samples.h"

enum { FL_PLACE_BYTES = 400 };

/* Texts, or pairs of them, that lie somewhere else.
 * get    the i-th text; pair->bytes stays NULL where there is no second one
 * place  where it stands, for messages: "FILE: line 7"
 * Threads: both are called from several */
typedef struct fl_text_list {
    const void *self;
    size_t n;
    void (*get)(const void *self, size_t i, fl_text *text, fl_text *pair);
    void (*place)(const void *self, size_t i, char place[FL_PLACE_BYTES]);
} fl_text_list;

typedef struct fl_token_encoding {
    const fl_tokenizer *tokenizer;
    bool special;       /* add what the model expects around texts */
    int64_t max_tokens; /* the longer text of a pair is cut first; 0: no limit */
    bool types, spans;  /* wanted besides the ids */
    bool allows_empty;  /* a text without a token is fine */
    int n_threads;      /* 0: as many as the process may use */
} fl_token_encoding;

/* Encode all texts. The result does not depend on the number of threads.
 * Returns FL_EFORMAT with the place for a text without a token, FL_EINVAL about data.max_tokens
 * where that is too small, FL_ENOMEM; the message is that of the first text that fails. Nothing is
 * held on failure. */
fl_status fl__tokens_encode(const fl_text_list *texts, const fl_token_encoding *encoding,
                            fl_token_samples *out) FL_MUST_CHECK;

#endif
