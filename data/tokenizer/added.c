#include "data/tokenizer/added.h"

#include "data/tokenizer/bert.h"
#include "device/system/alloc.h"

#include <string.h>

/* ---- making the sets ---- */

static fl_status number_token(fl_tokenizer *t, const char *text, size_t n, int32_t *id)
{
    fl_vocabulary *v = &t->vocabulary;
    *id = fl_trie_find(&v->trie, text, n);
    if (*id >= 0) {
        return FL_OK;
    }
    *id = v->n_distinct + t->n_numbered;
    while (*id < v->n_ids && v->begins[*id] != 0) {
        ++*id;
        t->n_numbered++;
    }
    t->n_numbered++;
    return fl__vocabulary_name(v, text, n, *id);
}

fl_status fl__added_add(fl_tokenizer *t, const char *text, size_t n, fl_added_token token)
{
    int32_t place = fl_trie_find(&t->added_names, text, n);
    if (n == 0) {
        return FL_OK;
    }
    if (place >= 0) {
        token.id = t->added[place].id;
        t->added[place] = token;
        return FL_OK;
    }
    FL_TRY(number_token(t, text, n, &token.id));
    FL_TRY(
        fl_alloc_room((void **)&t->added, (size_t)t->n_added, 1, sizeof *t->added, &t->added_room));
    FL_TRY(fl_trie_add(&t->added_names, text, n, t->n_added));
    t->added[t->n_added++] = token;
    return FL_OK;
}

int32_t fl__added_find(const fl_tokenizer *t, const char *text)
{
    size_t n = strlen(text);
    int32_t place = fl_trie_find(&t->added_names, text, n);
    return place >= 0 ? t->added[place].id : fl_trie_find(&t->vocabulary.trie, text, n);
}

void fl__added_fini(fl_added_set *set)
{
    fl_trie_fini(&set->trie);
}

static fl_status add_to_set(fl_added_set *set, const char *text, size_t n, int place)
{
    uint8_t first = (uint8_t)text[0];
    if (n == 0) {
        return FL_OK;
    }
    set->n_first += !set->first[first];
    set->first[first] = true;
    set->one_first = first;
    set->n++;
    return fl_trie_add(&set->trie, text, n, place);
}

/* The normalized form of a token's text, in s->spelled. */
static fl_status spell_token(const fl_tokenizer *t, fl_token_scratch *s, const char *text,
                             size_t *n)
{
    FL_TRY(fl__bert_normalize(t, s, (const uint8_t *)text, 0, strlen(text)));
    FL_TRY(fl_alloc_room((void **)&s->spelled, 0, 4 * s->n_norm + 1, 1, &s->spelled_room));
    *n = 0;
    for (size_t i = 0; i < s->n_norm; i++) {
        *n += fl_char_encode(s->norm[i].code, s->spelled + *n);
    }
    s->spelled[*n] = '\0';
    return FL_OK;
}

fl_status fl__added_prepare(fl_tokenizer *t, fl_token_scratch *s)
{
    FL_TRY(fl_trie_init(&t->raw.trie));
    FL_TRY(fl_trie_init(&t->normalized.trie));
    for (int i = 0; i < t->n_added; i++) {
        const char *text = fl__vocabulary_text(&t->vocabulary, t->added[i].id);
        size_t n = strlen(text);
        if (!t->added[i].normalized) {
            FL_TRY(add_to_set(&t->raw, text, n, i));
        } else if (t->kind == FL_BYTE_BPE) {
            FL_TRY(add_to_set(&t->normalized, text, n, i));
        } else {
            FL_TRY(spell_token(t, s, text, &n));
            FL_TRY(add_to_set(&t->normalized, (const char *)s->spelled, n, i));
        }
    }
    return FL_OK;
}

/* ---- finding tokens ---- */

/* The first place from `at` on where a token may begin. */
static size_t find_first_byte(const fl_added_set *set, const uint8_t *text, size_t at, size_t end)
{
    if (set->n_first == 1) {
        const uint8_t *found = at < end ? memchr(text + at, set->one_first, end - at) : NULL;
        return found == NULL ? end : (size_t)(found - text);
    }
    while (at < end && !set->first[text[at]]) {
        at++;
    }
    return at;
}

/* The longest token at `at`: its place in the list, and where it ends; -1: none begins here. */
static int match_token(const fl_added_set *set, const uint8_t *text, size_t at, size_t end,
                       size_t *token_end)
{
    uint32_t node = FL_TRIE_ROOT;
    int best = -1;
    for (; at < end; at++) {
        node = fl_trie_next(&set->trie, node, text[at]);
        if (node == FL_TRIE_ROOT) {
            break;
        }
        if (set->trie.ids[node] >= 0) {
            best = set->trie.ids[node];
            *token_end = at + 1;
        }
    }
    return best;
}

/* The character before `at`, which is not the first one of the text. */
static uint32_t char_before(const uint8_t *text, size_t at, size_t *size)
{
    size_t first = at - 1;
    while ((text[first] & 0xC0) == 0x80) {
        first--;
    }
    return fl_char_decode(text + first, size);
}

static bool is_single_word(const fl_tokenizer *t, const uint8_t *text, fl_stretch all, size_t begin,
                           size_t end)
{
    size_t size;
    bool joined_left = begin > all.begin &&
                       (fl_char_flags(&t->chars, char_before(text, begin, &size)) & FL_CHAR_WORD);
    bool joined_right =
        end < all.end &&
        (fl_char_flags(&t->chars, fl_char_decode(text + end, &size)) & FL_CHAR_WORD);
    return !joined_left && !joined_right;
}

size_t fl__spaces_left(const fl_tokenizer *t, const uint8_t *text, size_t first, size_t at)
{
    size_t size;
    while (at > first && (fl_char_flags(&t->chars, char_before(text, at, &size)) & FL_CHAR_SPACE)) {
        at -= size;
    }
    return at;
}

size_t fl__spaces_right(const fl_tokenizer *t, const uint8_t *text, size_t at, size_t end)
{
    size_t size;
    while (at < end &&
           (fl_char_flags(&t->chars, fl_char_decode(text + at, &size)) & FL_CHAR_SPACE)) {
        at += size;
    }
    return at;
}

static fl_status add_stretch(fl_stretches *out, size_t begin, size_t end, int added)
{
    FL_TRY(fl_alloc_room((void **)&out->list, out->n, 1, sizeof *out->list, &out->room));
    out->list[out->n++] = (fl_stretch){.begin = begin, .end = end, .added = added};
    return FL_OK;
}

fl_status fl__added_split(const fl_tokenizer *t, const fl_added_set *set, const uint8_t *text,
                          size_t begin, size_t end, fl_stretches *out)
{
    const fl_stretch all = {.begin = begin, .end = end};
    size_t done = begin; /* up to here the text is in `out` */
    out->n = 0;
    for (size_t at = begin; set->n > 0;) {
        at = find_first_byte(set, text, at, end);
        if (at == end) {
            break;
        }
        size_t token_end = 0;
        int found = match_token(set, text, at, end, &token_end);
        if (found < 0) {
            at++;
            continue;
        }
        const fl_added_token *token = &t->added[found];
        size_t from = at, to = token_end;
        at = token_end;
        if (token->single_word && !is_single_word(t, text, all, from, to)) {
            continue;
        }
        if (token->lstrip) { /* what an earlier token took is its own */
            size_t left = fl__spaces_left(t, text, begin, from);
            from = left > done ? left : done;
        }
        if (token->rstrip) {
            to = fl__spaces_right(t, text, to, end);
        }
        if (done < from) {
            FL_TRY(add_stretch(out, done, from, -1));
        }
        FL_TRY(add_stretch(out, from, to, found));
        done = to;
    }
    return done == end ? FL_OK : add_stretch(out, done, end, -1);
}
