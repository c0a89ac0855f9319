/* The pieces of a vocabulary and their ids. */
#include "data/tokenizer/parts.h"
#include "device/system/alloc.h"

#include <string.h>

fl_status fl__vocabulary_init(fl_vocabulary *v)
{
    *v = (fl_vocabulary){0};
    FL_TRY(fl_alloc_room((void **)&v->texts, 0, 1, 1, &v->texts_room));
    v->texts[v->n_texts++] = '\0';
    return fl_trie_init(&v->trie);
}

void fl__vocabulary_fini(fl_vocabulary *v)
{
    fl_free(v->texts);
    fl_free(v->begins);
    fl_trie_fini(&v->trie);
    *v = (fl_vocabulary){0};
}

static fl_status reach_id(fl_vocabulary *v, int32_t id)
{
    if (id < v->n_ids) {
        return FL_OK;
    }
    size_t more = (size_t)(id + 1 - v->n_ids);
    FL_TRY(fl_alloc_room((void **)&v->begins, (size_t)v->n_ids, more, sizeof *v->begins,
                         &v->ids_room));
    memset(v->begins + v->n_ids, 0, more * sizeof *v->begins);
    v->n_ids = id + 1;
    return FL_OK;
}

fl_status fl__vocabulary_name(fl_vocabulary *v, const char *text, size_t n, int64_t id)
{
    if (id < 0 || id >= FL_PIECES_MAX) {
        return fl_fail(FL_EFORMAT, "id %lld, allowed: 0 to %d", (long long)id, FL_PIECES_MAX - 1);
    }
    if (n > FL_PIECE_BYTES_MAX) {
        return fl_fail(FL_EFORMAT, "a piece of %zu bytes, allowed: at most %d", n,
                       FL_PIECE_BYTES_MAX);
    }
    if (id < v->n_ids && v->begins[id] != 0) {
        return fl_fail(FL_EFORMAT, "id %lld is given to \"%.100s\" and to \"%.*s\"", (long long)id,
                       fl__vocabulary_text(v, (int32_t)id), (int)(n < 100 ? n : 100), text);
    }
    FL_TRY(reach_id(v, (int32_t)id));
    FL_TRY(fl_alloc_room((void **)&v->texts, v->n_texts, n + 1, 1, &v->texts_room));
    memcpy(v->texts + v->n_texts, text, n);
    v->texts[v->n_texts + n] = '\0';
    v->begins[id] = v->n_texts;
    v->n_texts += n + 1;
    return FL_OK;
}

fl_status fl__vocabulary_add(fl_vocabulary *v, const char *text, size_t n, int64_t id)
{
    FL_TRY(fl__vocabulary_name(v, text, n, id));
    v->n_distinct += fl_trie_find(&v->trie, text, n) < 0;
    return fl_trie_add(&v->trie, text, n, (int32_t)id);
}

const char *fl__vocabulary_text(const fl_vocabulary *v, int32_t id)
{
    return id >= 0 && id < v->n_ids ? v->texts + v->begins[id] : "";
}
