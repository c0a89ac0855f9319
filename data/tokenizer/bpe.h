/* Byte-level BPE with GPT-2's pre-tokenization. */
#ifndef FL_DATA_TOKENIZER_BPE_H
#define FL_DATA_TOKENIZER_BPE_H

#include "data/tokenizer/parts.h"

/* The most bytes of a piece of text that is merged at once, which takes about 80 bytes a byte. */
enum { FL_BPE_WORD_BYTES_MAX = 1 << 22 };

/* Append the ids of text [begin, end), valid UTF-8. `text` is the whole text: spans are places in
 * it. FL_EFORMAT for a word that is longer than allowed, FL_ENOMEM. */
fl_status fl__bpe_encode(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                         size_t begin, size_t end) FL_MUST_CHECK;

/* How the vocabulary spells each byte: a printable character. Before pieces are looked up. */
void fl__bpe_spell_bytes(char texts[256][3]);

/* The ids of single bytes, once the vocabulary is complete. */
void fl__bpe_prepare(fl_tokenizer *t);

/* Merges, in the order of their ranks; a pair that is there gets the new rank. FL_ENOMEM. */
fl_status fl__merges_add(fl_merge_table *table, int32_t left, int32_t right, int32_t id,
                         uint32_t rank) FL_MUST_CHECK;
/* NULL: these two are not merged. */
const fl_merge *fl__merges_find(const fl_merge_table *table, int32_t left, int32_t right);
void fl__merges_fini(fl_merge_table *table);

/* The end of the piece of text [at, n) that GPT-2's pattern matches there, at < n:
 *     's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 * text  valid UTF-8
 * Pure. */
size_t fl__gpt2_split(const fl_char_table *chars, const uint8_t *text, size_t at, size_t n);

#endif
