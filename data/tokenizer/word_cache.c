#include "data/tokenizer/word_cache.h"

#include "device/system/alloc.h"

_Static_assert(sizeof(fl_word_entry) == 64, "an entry is one cache line");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a key's last byte is its highest");

fl_status fl_word_cache_init(fl_word_cache *cache)
{
    *cache = (fl_word_cache){0};
    for (int n = 0; n <= FL_WORD_BYTES_MAX; n++) {
        memset(cache->masks[n], 0xFF, (size_t)n);
    }
    return fl_alloc_untouched(((size_t)2 << FL_WORD_CACHE_BITS) * sizeof *cache->entries,
                              (void **)&cache->entries);
}

void fl_word_cache_fini(fl_word_cache *cache)
{
    fl_free(cache->entries);
    *cache = (fl_word_cache){0};
}

/* Where the pieces of a word end; false if they are not the whole word, one behind the other. */
static bool list_ends(size_t begin, size_t end, const fl_token_span *spans, size_t n_ids,
                      uint8_t ends[FL_WORD_IDS_MAX - 1])
{
    size_t at = begin;
    for (size_t i = 0; i < n_ids; i++) {
        if ((size_t)spans[i].begin != at) {
            return false;
        }
        at = (size_t)spans[i].end;
        if (i + 1 < n_ids) {
            ends[i] = (uint8_t)(at - begin);
        }
    }
    return at == end;
}

void fl_word_keep(fl_word_entry *bucket, const uint64_t key[3], size_t begin, size_t end,
                  const int32_t *ids, const fl_token_span *spans, size_t n_ids)
{
    if (n_ids > FL_WORD_IDS_MAX) {
        return;
    }
    bucket[1] = bucket[0];
    bool whole = list_ends(begin, end, spans, n_ids, bucket[0].ends);
    memcpy(bucket[0].key, key, sizeof bucket[0].key);
    memcpy(bucket[0].ids, ids, n_ids * sizeof *ids);
    bucket[0].n_ids = (uint8_t)(whole ? n_ids : n_ids | FL_WORD_SCATTERED);
}
