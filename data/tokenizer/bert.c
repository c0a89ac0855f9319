/* WordPiece: text to words to pieces.
 *
 * Spaces and punctuation of ASCII end a word whatever stands beside them, so the text between two
 * of them is normalized on its own, and its ids are kept under its raw bytes. Text of words that
 * were seen before is not normalized at all. */
#include "data/tokenizer/bert.h"

#include "data/tokenizer/cached.h"
#include "device/system/alloc.h"

static bool is_letter_or_digit(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* The longest piece first, from left to right: the ids go to ids [n], and where each ends to ends
 * [n]. Returns how many, or -1 if some part is in no piece. */
static int64_t match_pieces(const fl_tokenizer *t, const uint8_t *word, size_t n, int32_t *ids,
                            uint32_t *ends)
{
    const fl_trie *trie = &t->vocabulary.trie;
    int64_t n_ids = 0;
    for (size_t begin = 0, end; begin < n; begin = end) {
        uint32_t node = begin == 0 ? (uint32_t)FL_TRIE_ROOT : t->suffix_root;
        int32_t best = -1;
        end = begin;
        for (size_t at = begin; at < n && (begin == 0 || t->has_suffixes); at++) {
            node = fl_trie_next(trie, node, word[at]);
            if (node == FL_TRIE_ROOT) {
                break;
            }
            if (trie->ids[node] >= 0) {
                best = trie->ids[node];
                end = at + 1;
            }
        }
        if (best < 0) {
            return -1;
        }
        ids[n_ids] = best;
        ends[n_ids++] = (uint32_t)end;
    }
    return n_ids;
}

void fl__bert_prepare(fl_tokenizer *t)
{
    for (int c = 0; c < 128; c++) {
        unsigned flags = fl_char_flags(&t->chars, (uint32_t)c);
        bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
        bool alone = (flags & FL_CHAR_PUNCTUATION) != 0;
        uint8_t mark = (uint8_t)c;
        uint32_t end;
        t->ascii[c] = space ? FL_BYTE_SPACE : alone ? FL_BYTE_PUNCTUATION : FL_BYTE_WORD;
        t->punctuation[c] = -1;
        if (alone &&
            (t->word_chars_max < 1 || match_pieces(t, &mark, 1, &t->punctuation[c], &end) != 1)) {
            t->punctuation[c] = t->unknown;
        }
    }
}

/* ---- words of normalized text ---- */

/* The word s->norm[first .. end) in UTF-8 in s->word; *n bytes. s->word_at has the code point of
 * each byte. */
static fl_status spell_word(fl_token_scratch *s, size_t first, size_t end, size_t *n)
{
    size_t most = (end - first) * 4 + 1;
    FL_TRY(fl_alloc_room((void **)&s->word, 0, most, 1, &s->word_room));
    FL_TRY(fl_alloc_room((void **)&s->word_at, 0, most, sizeof *s->word_at, &s->word_at_room));
    FL_TRY(fl_alloc_room((void **)&s->ends, 0, most, sizeof *s->ends, &s->ends_room));
    *n = 0;
    for (size_t i = first; i < end; i++) {
        size_t size = fl_char_encode(s->norm[i].code, s->word + *n);
        for (size_t k = 0; k < size; k++) {
            s->word_at[*n + k] = (uint32_t)i;
        }
        *n += size;
    }
    return FL_OK;
}

static fl_status encode_word(const fl_tokenizer *t, fl_token_scratch *s, size_t first, size_t end)
{
    size_t n = 0;
    int64_t n_ids = -1;
    FL_TRY(fl__scratch_room(s, (end - first) * 4));
    if ((int64_t)(end - first) <= t->word_chars_max) {
        FL_TRY(spell_word(s, first, end, &n));
        n_ids = match_pieces(t, s->word, n, s->ids + s->n, s->ends);
    }
    if (n_ids < 0) {
        fl__scratch_add(s, t->unknown, s->norm[first].begin, s->norm[end - 1].end);
        return FL_OK;
    }
    uint32_t begin = 0;
    for (int64_t i = 0; i < n_ids; i++) { /* the ids are in their places */
        fl__scratch_add(s, s->ids[s->n], s->norm[s->word_at[begin]].begin,
                        s->norm[s->word_at[s->ends[i] - 1]].end);
        begin = s->ends[i];
    }
    return FL_OK;
}

fl_status fl__bert_encode_normalized(const fl_tokenizer *t, fl_token_scratch *s, size_t first,
                                     size_t end)
{
    size_t begin = first;
    for (size_t i = first; i < end; i++) {
        unsigned flags = fl_char_flags(&t->chars, s->norm[i].code);
        if (!(flags & (FL_CHAR_SPACE | FL_CHAR_PUNCTUATION))) {
            continue;
        }
        if (begin < i) {
            FL_TRY(encode_word(t, s, begin, i));
        }
        if (!(flags & FL_CHAR_SPACE)) {
            FL_TRY(encode_word(t, s, i, i + 1));
        }
        begin = i + 1;
    }
    return begin < end ? encode_word(t, s, begin, end) : FL_OK;
}

/* ---- raw text ---- */

/* A word of ASCII letters and digits: its normalization is its lower case. */
static fl_status encode_plain_word(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                                   size_t begin, size_t end)
{
    size_t n = end - begin, at = begin;
    FL_TRY(fl_alloc_room((void **)&s->word, 0, n, 1, &s->word_room));
    FL_TRY(fl_alloc_room((void **)&s->ends, 0, n, sizeof *s->ends, &s->ends_room));
    for (size_t i = 0; i < n; i++) {
        uint8_t c = text[begin + i];
        s->word[i] = (uint8_t)(t->lower_case && c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    }
    int64_t n_ids =
        (int64_t)n > t->word_chars_max ? -1 : match_pieces(t, s->word, n, s->ids + s->n, s->ends);
    if (n_ids < 0) {
        fl__scratch_add(s, t->unknown, begin, end);
    }
    for (int64_t i = 0; i < n_ids; i++) { /* the ids are in their places */
        fl__scratch_add(s, s->ids[s->n], at, begin + s->ends[i]);
        at = begin + s->ends[i];
    }
    return FL_OK;
}

/* Text between spaces and punctuation. */
static fl_status encode_segment(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                                size_t begin, size_t end)
{
    for (size_t i = begin; i < end; i++) {
        if (!is_letter_or_digit(text[i])) {
            FL_TRY(fl__bert_normalize(t, s, text, begin, end));
            return fl__bert_encode_normalized(t, s, 0, s->n_norm);
        }
    }
    return encode_plain_word(t, s, text, begin, end);
}

fl_status fl__bert_encode(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                          size_t begin, size_t end)
{
    /* A byte gives at most two ids; the cache copies all places of an entry. */
    FL_TRY(fl__scratch_room(s, 2 * (end - begin) + FL_WORD_IDS_MAX));
    for (size_t at = begin; at < end;) {
        uint8_t kind = t->ascii[text[at]];
        if (kind == FL_BYTE_WORD) {
            size_t first = at;
            while (at < end && t->ascii[text[at]] == FL_BYTE_WORD) {
                at++;
            }
            FL_TRY(fl__encode_cached(t, s, text, first, at, end, encode_segment));
            continue;
        }
        if (kind == FL_BYTE_PUNCTUATION) {
            fl__scratch_add(s, t->punctuation[text[at]], at, at + 1);
        }
        at++;
    }
    return FL_OK;
}
