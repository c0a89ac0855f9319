/* What an open tokenizer answers, and its end. */
#include "data/tokenizer/added.h"
#include "data/tokenizer/bpe.h"
#include "device/system/alloc.h"

void fl_tokenizer_close(fl_tokenizer **tokenizer)
{
    fl_tokenizer *t = *tokenizer;
    if (t == NULL) {
        return;
    }
    fl__vocabulary_fini(&t->vocabulary);
    fl_trie_fini(&t->added_names);
    fl__added_fini(&t->raw);
    fl__added_fini(&t->normalized);
    fl__merges_fini(&t->merges);
    fl_free(t->added);
    fl_free(t);
    *tokenizer = NULL;
}

int32_t fl_tokenizer_n_ids(const fl_tokenizer *t)
{
    return t->vocabulary.n_ids;
}

uint64_t fl_tokenizer_fingerprint(const fl_tokenizer *t)
{
    return t->fingerprint;
}

int fl_tokenizer_n_special(const fl_tokenizer *t, bool pair)
{
    return (int)(pair ? t->pair : t->single).n_special;
}

const char *fl_tokenizer_piece(const fl_tokenizer *t, int32_t id)
{
    return fl__vocabulary_text(&t->vocabulary, id);
}

int32_t fl_tokenizer_find(const fl_tokenizer *t, const char *piece)
{
    return fl__added_find(t, piece);
}

fl_status fl_tokenizer_pair_frame(const fl_tokenizer *t, fl_token_frame *out)
{
    static const fl_template_kind order[] = {FL_ITEM_TEXT, FL_ITEM_PAIR};
    fl_token_frame frame = {0};
    int part = 0;
    bool good = true;
    for (int i = 0; good && i < t->pair.n; i++) {
        const fl_template_item *item = &t->pair.items[i];
        if (item->kind != FL_ITEM_SPECIAL) {
            good = part < 2 && item->kind == order[part];
            *(part == 0 ? &frame.text_type : &frame.pair_type) = item->type;
            part++;
            continue;
        }
        good = frame.n[part] < FL_FRAME_TOKENS_MAX;
        if (good) {
            frame.ids[part][frame.n[part]] = item->id;
            frame.types[part][frame.n[part]++] = item->type;
        }
    }
    if (!good || part != 2) {
        return fl_fail(FL_ENOTSUP,
                       "the tokenizer's template for pairs does not have each text "
                       "once, the first one first, with at most %d tokens around it",
                       FL_FRAME_TOKENS_MAX);
    }
    *out = frame;
    return FL_OK;
}
