/* Tokenizers: text in, ids out, the same ids as Hugging Face's tokenizers give.
 *
 * Two kinds: WordPiece with BERT's normalization, and byte-level BPE with GPT-2's pre-tokenization.
 * docs/tokenizers.md lists what is read of a folder and which variants are refused.
 *
 * A tokenizer does not change after it was opened, so any number of threads may encode with it.
 * What encoding needs besides (buffers, a cache of words) lies in a scratch, one for each thread;
 * once its buffers have grown, encoding allocates nothing. */
#ifndef FL_DATA_TOKENIZER_TOKENIZER_H
#define FL_DATA_TOKENIZER_TOKENIZER_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fl_tokenizer fl_tokenizer;
typedef struct fl_token_scratch fl_token_scratch;

/* The most bytes of one text. */
enum { FL_TEXT_BYTES_MAX = 1 << 28 };

/* Also what scratches refer to: destroy them first. *tokenizer becomes NULL; NULL is fine. */
void fl_tokenizer_close(fl_tokenizer **tokenizer);

/* The largest id and one more: the rows that an embedding needs at least. Threads: any. */
int32_t fl_tokenizer_n_ids(const fl_tokenizer *tokenizer);

/* A hash of the files that it was opened from. Threads: any. */
uint64_t fl_tokenizer_fingerprint(const fl_tokenizer *tokenizer);

/* How many special tokens fl_tokenizer_encode adds to a text, or to a pair. Threads: any. */
int fl_tokenizer_n_special(const fl_tokenizer *tokenizer, bool pair);

/* The text of an id, as the vocabulary spells it ("##ing", "Ġthe"), borrowed; "" for an id that no
 * piece has. It ends in a zero byte. Threads: any. */
const char *fl_tokenizer_piece(const fl_tokenizer *tokenizer, int32_t id);

/* The id of this piece or added token, -1 if there is none: "[CLS]", "<|endoftext|>". Threads: any.
 */
int32_t fl_tokenizer_find(const fl_tokenizer *tokenizer, const char *piece);

/* For one thread at a time. The cache takes up to 4 MiB. FL_ENOMEM. */
fl_status fl_token_scratch_create(const fl_tokenizer *tokenizer,
                                  fl_token_scratch **out) FL_MUST_CHECK;
void fl_token_scratch_destroy(fl_token_scratch **scratch);

/* bytes [n_bytes], UTF-8; no zero byte is needed behind them */
typedef struct fl_text {
    const char *bytes;
    size_t n_bytes;
} fl_text;

/* What is cut where a text, or a pair of texts, has too many tokens: Hugging Face's strategies. */
typedef enum fl_token_cut {
    FL_CUT_LONGEST_FIRST, /* the longer one of a pair, then both */
    FL_CUT_ONLY_FIRST,
    FL_CUT_ONLY_SECOND
} fl_token_cut;

typedef struct fl_token_request {
    fl_text text;
    fl_text pair;       /* bytes NULL: there is no second text */
    bool special;       /* add what the model expects around texts: [CLS], [SEP] */
    int64_t max_tokens; /* special ones included; the end of a text is cut. 0: no limit */
    fl_token_cut cut;
} fl_token_request;

/* Where a token lies in its text: code points (not bytes) begin .. end - 1. [0, 0) for a special
 * token that was added. */
typedef struct fl_token_span {
    int32_t begin, end;
} fl_token_span;

/* The caller's arrays, [capacity] each. */
typedef struct fl_tokens {
    int32_t *ids;
    int32_t *types;       /* 0 for the first text, 1 for the second one; NULL: not wanted */
    fl_token_span *spans; /* NULL: not wanted, which is faster */
    int64_t capacity;
    int64_t n; /* out */
} fl_tokens;

/* Encode a text or a pair.
 * out      arrays and capacity in, n out; n is unchanged on failure
 * Returns  FL_EFORMAT with the position of the first byte that is not UTF-8, FL_EINVAL where
 *          capacity or max_tokens is too small (the message has the numbers) or a text is too
 *          long, FL_ENOMEM
 * Threads  any, each with its own scratch */
fl_status fl_tokenizer_encode(const fl_tokenizer *tokenizer, fl_token_scratch *scratch,
                              const fl_token_request *request, fl_tokens *out) FL_MUST_CHECK;

enum { FL_FRAME_TOKENS_MAX = 8 };

/* The special tokens around a pair of texts: before the first one, between both, behind the second
 * one; and the types of the texts' own tokens. */
typedef struct fl_token_frame {
    int32_t n[3];
    int32_t ids[3][FL_FRAME_TOKENS_MAX], types[3][FL_FRAME_TOKENS_MAX];
    int32_t text_type, pair_type;
} fl_token_frame;

/* What fl_tokenizer_encode puts around a pair. FL_ENOTSUP for a tokenizer that does not write the
 * first text once and then the second one. Threads: any. */
fl_status fl_tokenizer_pair_frame(const fl_tokenizer *tokenizer, fl_token_frame *out) FL_MUST_CHECK;

/* A capacity that is enough for texts of n_bytes together, without a limit. Pure. */
int64_t fl_tokenizer_capacity(const fl_tokenizer *tokenizer, size_t n_bytes);

#endif
