#include "data/tokenizer/parts.h"
#include "device/system/alloc.h"

fl_status fl_token_scratch_create(const fl_tokenizer *tokenizer, fl_token_scratch **out)
{
    fl_token_scratch *s;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    s->tokenizer = tokenizer;
    fl_status status = fl_word_cache_init(&s->cache);
    if (status != FL_OK) {
        fl_token_scratch_destroy(&s);
        return status;
    }
    *out = s;
    return FL_OK;
}

void fl_token_scratch_destroy(fl_token_scratch **scratch)
{
    fl_token_scratch *s = *scratch;
    if (s == NULL) {
        return;
    }
    fl_word_cache_fini(&s->cache);
    void *const buffers[] = {s->ids,      s->spans,           s->norm,     s->marks,     s->word,
                             s->word_at,  s->spelled,         s->ends,     s->symbols,   s->heap,
                             s->raw.list, s->normalized.list, s->prefixed, s->spelled_at};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
        fl_free(buffers[i]);
    }
    fl_free(s);
    *scratch = NULL;
}

fl_status fl__scratch_room(fl_token_scratch *s, size_t more)
{
    FL_TRY(fl_alloc_room((void **)&s->ids, s->n, more, sizeof *s->ids, &s->ids_room));
    return fl_alloc_room((void **)&s->spans, s->n, more, sizeof *s->spans, &s->spans_room);
}
