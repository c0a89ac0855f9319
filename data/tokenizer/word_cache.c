#include "data/tokenizer/word_cache.h"

#include "device/alloc.h"

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

void fl_word_keep(fl_word_entry *bucket, const uint64_t key[3], const int32_t *ids, int64_t n_ids)
{
    if (n_ids > FL_WORD_IDS_MAX) {
        return;
    }
    bucket[1] = bucket[0];
    memcpy(bucket[0].key, key, sizeof bucket[0].key);
    bucket[0].n_ids = (int32_t)n_ids;
    memcpy(bucket[0].ids, ids, (size_t)n_ids * sizeof *ids);
}
