/* Byte-level BPE: text to words (gpt2_split.c) to bytes to pieces. */
#include "data/tokenizer/bpe.h"

#include "data/tokenizer/cached.h"
#include "device/system/alloc.h"

#include <string.h>

void fl__bpe_spell_bytes(char texts[256][3])
{
    uint32_t next = 0x100; /* what is not printable gets the next character from here */
    for (int b = 0; b < 256; b++) {
        bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        uint8_t text[4];
        size_t n = fl_char_encode(printable ? (uint32_t)b : next++, text);
        memcpy(texts[b], text, n);
        texts[b][n] = '\0';
    }
}

void fl__bpe_prepare(fl_tokenizer *t)
{
    for (int b = 0; b < 256; b++) {
        const char *text = t->byte_texts[b];
        t->byte_ids[b] = fl_trie_find(&t->vocabulary.trie, text, strlen(text));
    }
}

/* ---- a heap of merges: the lowest rank first, then the leftmost ---- */

static bool is_before(const fl_merge_entry *a, const fl_merge_entry *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static void push_entry(fl_token_scratch *s, fl_merge_entry entry)
{
    size_t at = s->n_heap++;
    for (; at > 0 && is_before(&entry, &s->heap[(at - 1) / 2]); at = (at - 1) / 2) {
        s->heap[at] = s->heap[(at - 1) / 2];
    }
    s->heap[at] = entry;
}

static fl_merge_entry pop_entry(fl_token_scratch *s)
{
    fl_merge_entry top = s->heap[0], last = s->heap[--s->n_heap];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < s->n_heap; at = child) {
        if (child + 1 < s->n_heap && is_before(&s->heap[child + 1], &s->heap[child])) {
            child++;
        }
        if (!is_before(&s->heap[child], &last)) {
            break;
        }
        s->heap[at] = s->heap[child];
    }
    s->heap[at] = last;
    return top;
}

/* Push the merge of the symbol at `left` with the one behind it, if there is one. */
static void push_merge(const fl_tokenizer *t, fl_token_scratch *s, int32_t left)
{
    if (left < 0 || s->symbols[left].behind < 0) {
        return;
    }
    int32_t left_id = s->symbols[left].id, right_id = s->symbols[s->symbols[left].behind].id;
    const fl_merge *m = fl__merges_find(&t->merges, left_id, right_id);
    if (m != NULL) {
        push_entry(s, (fl_merge_entry){.rank = m->rank,
                                       .at = (uint32_t)left,
                                       .left = left_id,
                                       .right = right_id,
                                       .id = m->id});
    }
}

/* Still the two symbols that the entry was made for. */
static bool is_current(const fl_token_scratch *s, const fl_merge_entry *e)
{
    const fl_symbol *left = &s->symbols[e->at];
    return left->n_bytes != 0 && left->behind >= 0 && left->id == e->left &&
           s->symbols[left->behind].id == e->right;
}

/* Every pair of neighbours is pushed at most twice for each symbol that disappears. */
static void merge_symbols(const fl_tokenizer *t, fl_token_scratch *s, int32_t n)
{
    s->n_heap = 0;
    for (int32_t i = 0; i + 1 < n; i++) {
        push_merge(t, s, i);
    }
    while (s->n_heap > 0) {
        fl_merge_entry e = pop_entry(s);
        if (!is_current(s, &e)) {
            continue;
        }
        fl_symbol *left = &s->symbols[e.at], *right = &s->symbols[left->behind];
        left->id = e.id;
        left->n_bytes += right->n_bytes;
        left->behind = right->behind;
        right->n_bytes = 0;
        if (left->behind >= 0) {
            s->symbols[left->behind].before = (int32_t)e.at;
        }
        push_merge(t, s, left->before);
        push_merge(t, s, (int32_t)e.at);
    }
}

/* One symbol a byte; a byte that the vocabulary lacks is unknown, or left out. */
static int32_t list_symbols(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *word,
                            size_t n_bytes)
{
    int32_t n = 0;
    bool after_unknown = false;
    for (size_t i = 0; i < n_bytes; i++) {
        int32_t id = t->byte_ids[word[i]];
        bool unknown = id < 0;
        id = unknown ? t->unknown : id;
        if (id < 0) {
            continue;
        }
        if (unknown && after_unknown && t->fuse_unknown) {
            s->symbols[n - 1].n_bytes++;
            continue;
        }
        after_unknown = unknown;
        s->symbols[n] = (fl_symbol){.id = id, .before = n - 1, .behind = n + 1, .n_bytes = 1};
        n++;
    }
    if (n > 0) {
        s->symbols[n - 1].behind = -1;
    }
    return n;
}

/* The id of the word as a whole, -1 if it is no piece. */
static int32_t find_whole(const fl_tokenizer *t, const uint8_t *word, size_t n)
{
    uint32_t node = FL_TRIE_ROOT;
    for (size_t i = 0; i < n; i++) {
        for (const char *c = t->byte_texts[word[i]]; *c != '\0'; c++) {
            node = fl_trie_next(&t->vocabulary.trie, node, (uint8_t)*c);
            if (node == FL_TRIE_ROOT) {
                return -1;
            }
        }
    }
    return t->vocabulary.trie.ids[node];
}

static fl_status encode_word(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                             size_t begin, size_t end)
{
    size_t n = end - begin;
    if (n > FL_BPE_WORD_BYTES_MAX) {
        return fl_fail(FL_EFORMAT,
                       "a word of %zu bytes found, at most %d allowed: letters, digits, marks or "
                       "white space without anything else between",
                       n, FL_BPE_WORD_BYTES_MAX);
    }
    int32_t whole = t->whole_words ? find_whole(t, text + begin, n) : -1;
    if (whole >= 0) {
        fl__scratch_add(s, whole, begin, end);
        return FL_OK;
    }
    FL_TRY(fl_alloc_room((void **)&s->symbols, 0, n, sizeof *s->symbols, &s->symbols_room));
    FL_TRY(fl_alloc_room((void **)&s->heap, 0, 3 * n, sizeof *s->heap, &s->heap_room));
    int32_t n_symbols = list_symbols(t, s, text + begin, n);
    merge_symbols(t, s, n_symbols);
    for (int32_t i = n_symbols == 0 ? -1 : 0; i >= 0; i = s->symbols[i].behind) {
        fl__scratch_add(s, s->symbols[i].id, begin, begin + s->symbols[i].n_bytes);
        begin += s->symbols[i].n_bytes;
    }
    return FL_OK;
}

/* Text with a space before it, which belongs to the first character. */
static fl_status encode_prefixed(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                                 size_t begin, size_t end)
{
    size_t n = end - begin + 1, n_before = s->n;
    FL_TRY(fl_alloc_room((void **)&s->prefixed, 0, n, 1, &s->prefixed_room));
    s->prefixed[0] = ' ';
    memcpy(s->prefixed + 1, text + begin, n - 1);
    for (size_t at = 0, next; at < n; at = next) {
        next = fl__gpt2_split(&t->chars, s->prefixed, at, n);
        FL_TRY(fl__encode_cached(t, s, s->prefixed, at, next, n, encode_word));
    }
    for (size_t i = n_before; s->with_spans && i < s->n; i++) {
        fl_token_span *span = &s->spans[i];
        span->begin = (int32_t)begin + (span->begin == 0 ? 0 : span->begin - 1);
        span->end = (int32_t)begin + (span->end == 1 ? 1 : span->end - 1);
    }
    return FL_OK;
}

fl_status fl__bpe_encode(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                         size_t begin, size_t end)
{
    /* A byte gives at most one id; the cache copies all places of an entry. */
    FL_TRY(fl__scratch_room(s, end - begin + 1 + FL_WORD_IDS_MAX));
    if (t->prefix_space && begin < end && text[begin] != ' ') {
        return encode_prefixed(t, s, text, begin, end);
    }
    for (size_t at = begin, next; at < end; at = next) {
        next = fl__gpt2_split(&t->chars, text, at, end);
        FL_TRY(fl__encode_cached(t, s, text, at, next, end, encode_word));
    }
    return FL_OK;
}
