/* The ids of words that were seen before, of one thread. A word is a run of raw bytes, as it stands
 * in the text; most of a text are words that came before, so most of encoding is this table.
 *
 * Two places for each hash: a new word takes the first one, and the one that was there takes the
 * second. So the table never fills, and no text makes it slow. */
#ifndef FL_DATA_TOKENIZER_WORD_CACHE_H
#define FL_DATA_TOKENIZER_WORD_CACHE_H

#include "data/tokenizer/tokenizer.h"

#include <stdint.h>
#include <string.h>

enum { FL_WORD_BYTES_MAX = 23, FL_WORD_IDS_MAX = 8 };
enum { FL_WORD_CACHE_BITS = 15 };

/* One cache line. */
typedef struct fl_word_entry {
    uint64_t
        key[3]; /* the word's bytes and zeros; the last byte is its length, 0 in a free entry */
    int32_t ids[FL_WORD_IDS_MAX];
    uint8_t n_ids;                     /* FL_WORD_SCATTERED may be added */
    uint8_t ends[FL_WORD_IDS_MAX - 1]; /* of all pieces but the last: the byte behind it */
} fl_word_entry;

/* The pieces are not the whole word, one behind the other: where they lie is not kept. */
enum { FL_WORD_SCATTERED = 0x80 };

typedef struct fl_word_cache {
    fl_word_entry *entries; /* [2 << FL_WORD_CACHE_BITS] */
    uint64_t masks[FL_WORD_BYTES_MAX + 1][3];
} fl_word_cache;

/* FL_ENOMEM; call fini after a failure, too. */
fl_status fl_word_cache_init(fl_word_cache *cache) FL_MUST_CHECK;
void fl_word_cache_fini(fl_word_cache *cache);

/* The key of a word of 1 to FL_WORD_BYTES_MAX bytes; `readable` bytes may be read at `word`. */
static inline void fl_word_key(const fl_word_cache *cache, const uint8_t *word, size_t n,
                               size_t readable, uint64_t key[3])
{
    if (readable >= 3 * sizeof *key) {
        memcpy(key, word, 3 * sizeof *key);
        key[0] &= cache->masks[n][0];
        key[1] &= cache->masks[n][1];
        key[2] &= cache->masks[n][2];
    } else {
        memset(key, 0, 3 * sizeof *key);
        memcpy(key, word, n);
    }
    key[2] |= (uint64_t)n << 56;
}

static inline fl_word_entry *fl_word_bucket(const fl_word_cache *cache, const uint64_t key[3])
{
    uint64_t hash = key[0] * UINT64_C(0x9E3779B97F4A7C15) ^ key[1] * UINT64_C(0xC2B2AE3D27D4EB4F) ^
                    key[2] * UINT64_C(0x165667B19E3779F9);
    hash = (hash ^ hash >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return cache->entries + 2 * (hash >> (64 - FL_WORD_CACHE_BITS));
}

static inline int fl_word_same(const fl_word_entry *entry, const uint64_t key[3])
{
    return ((entry->key[0] ^ key[0]) | (entry->key[1] ^ key[1]) | (entry->key[2] ^ key[2])) == 0;
}

/* NULL: this word is not there. */
static inline const fl_word_entry *fl_word_find(const fl_word_entry *bucket, const uint64_t key[3])
{
    return fl_word_same(bucket, key) ? bucket : fl_word_same(bucket + 1, key) ? bucket + 1 : NULL;
}

/* Keep a word that was not found, if it has at most FL_WORD_IDS_MAX ids. Its bytes are [begin, end)
 * of the text, as the spans count. ids, spans [n_ids] */
void fl_word_keep(fl_word_entry *bucket, const uint64_t key[3], size_t begin, size_t end,
                  const int32_t *ids, const fl_token_span *spans, size_t n_ids);

#endif
