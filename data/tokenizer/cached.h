/* Encoding a word through the cache of words. */
#ifndef FL_DATA_TOKENIZER_CACHED_H
#define FL_DATA_TOKENIZER_CACHED_H

#include "data/tokenizer/parts.h"

/* Appends the ids of text [begin, end), a word, with their spans. There is room for 2 ids a byte.
 */
typedef fl_status fl__word_encoder(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                                   size_t begin, size_t end);

/* The spans of a word that was found, whose pieces lie one behind the other. */
static inline void fl__spread_spans(const fl_word_entry *entry, size_t begin, size_t end,
                                    fl_token_span *spans)
{
    size_t at = begin;
    for (size_t i = 0; i < entry->n_ids; i++) {
        size_t next = i + 1 < entry->n_ids ? begin + entry->ends[i] : end;
        spans[i] = (fl_token_span){.begin = (int32_t)at, .end = (int32_t)next};
        at = next;
    }
}

/* The same as `encode`, from the cache if the word is there. There is room for FL_WORD_IDS_MAX ids
 * more; text may be read up to `limit`. Inlined, so that `encode` is known. */
static inline __attribute__((always_inline)) fl_status
fl__encode_cached(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text, size_t begin,
                  size_t end, size_t limit, fl__word_encoder *encode)
{
    uint64_t key[3];
    size_t n_before = s->n;
    if (end - begin > FL_WORD_BYTES_MAX) {
        return encode(t, s, text, begin, end);
    }
    fl_word_key(&s->cache, text + begin, end - begin, limit - begin, key);
    fl_word_entry *bucket = fl_word_bucket(&s->cache, key);
    const fl_word_entry *found = fl_word_find(bucket, key);
    if (found != NULL && !(s->with_spans && (found->n_ids & FL_WORD_SCATTERED))) {
        memcpy(s->ids + s->n, found->ids, sizeof found->ids);
        if (s->with_spans) {
            fl__spread_spans(found, begin, end, s->spans + s->n);
        }
        s->n += found->n_ids & (FL_WORD_SCATTERED - 1u);
        return FL_OK;
    }
    FL_TRY(encode(t, s, text, begin, end));
    if (found == NULL) {
        fl_word_keep(bucket, key, begin, end, s->ids + n_before, s->spans + n_before,
                     s->n - n_before);
    }
    return FL_OK;
}

#endif
