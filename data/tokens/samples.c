#include "data/tokens/samples.h"

#include "device/system/alloc.h"

#include <xxhash.h>

void fl__token_samples_fini(fl_token_samples *samples)
{
    fl_free(samples->begin);
    fl_free(samples->ids);
    fl_free(samples->types);
    fl_free(samples->spans);
    *samples = (fl_token_samples){0};
}

int64_t fl__token_samples_total(const fl_token_samples *samples)
{
    return samples->n == 0 ? 0 : samples->begin[samples->n];
}

int64_t fl__token_samples_length(const fl_token_samples *samples, int64_t i)
{
    return samples->begin[i + 1] - samples->begin[i];
}

int64_t fl__token_samples_longest(const fl_token_samples *samples)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < samples->n; i++) {
        int64_t n = fl__token_samples_length(samples, i);
        longest = n > longest ? n : longest;
    }
    return longest;
}

bool fl__token_samples_are_sound(const fl_token_samples *s, int64_t n_tokens, int64_t least,
                                 int32_t n_ids)
{
    if (s->n == 0) {
        return n_tokens == 0;
    }
    bool good = s->begin[0] == 0 && s->begin[s->n] == n_tokens;
    for (int64_t i = 0; i < s->n; i++) {
        good = good && s->begin[i] <= n_tokens - least && s->begin[i + 1] >= s->begin[i] + least;
    }
    for (int64_t i = 0; i < n_tokens; i++) {
        good = good && s->ids[i] >= 0 && s->ids[i] < n_ids;
    }
    return good;
}

uint64_t fl__token_samples_hash(const fl_token_samples *s, uint64_t hash)
{
    size_t n = (size_t)s->n, n_tokens = (size_t)fl__token_samples_total(s);
    hash = XXH64(&s->n, sizeof s->n, hash);
    hash = XXH64(s->begin, n == 0 ? 0 : (n + 1) * sizeof *s->begin, hash);
    hash = XXH64(s->ids, n_tokens * sizeof *s->ids, hash);
    hash = XXH64(s->types, s->types == NULL ? 0 : n_tokens, hash);
    return XXH64(s->spans, s->spans == NULL ? 0 : n_tokens * sizeof *s->spans, hash);
}
