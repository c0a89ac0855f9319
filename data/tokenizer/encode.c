/* A text, or a pair, to ids:
 *
 *     check UTF-8 (1) -> added tokens as they stand (2) -> added tokens in normalized text (3)
 *         -> words and pieces (4: bert.c, bpe.c) -> places in code points (5) -> cut (6)
 *         -> template (7) */
#include "data/tokenizer/added.h"
#include "data/tokenizer/bert.h"
#include "data/tokenizer/bpe.h"
#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <string.h>

/* ---- (1) ---- */

static fl_status check_text(const fl_text *text, const char *which, bool *ascii)
{
    const uint64_t high = UINT64_C(0x8080808080808080);
    size_t at = 0;
    *ascii = true;
    if (text->n_bytes > FL_TEXT_BYTES_MAX) {
        return fl_fail(FL_EINVAL, "%s has %zu bytes, allowed: at most %d", which, text->n_bytes,
                       FL_TEXT_BYTES_MAX);
    }
    while (at < text->n_bytes) {
        uint64_t eight;
        uint32_t code;
        if (text->n_bytes - at >= sizeof eight) {
            memcpy(&eight, text->bytes + at, sizeof eight);
            if ((eight & high) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        size_t size = fl_utf8_next(text->bytes + at, text->n_bytes - at, &code);
        if (size == 0) {
            return fl_fail(FL_EFORMAT, "%s: byte %zu (0x%02X) is no UTF-8", which, at + 1,
                           (unsigned char)text->bytes[at]);
        }
        *ascii = *ascii && size == 1;
        at += size;
    }
    return FL_OK;
}

/* ---- (2) and (3) ---- */

/* A token that was found; places [begin, end) of the text. lstrip and rstrip may have given it
 * white space, which is trimmed as that of pieces is in trim_span. */
static fl_status add_token(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                           int added, size_t begin, size_t end)
{
    FL_TRY(fl__scratch_room(s, 1));
    if (t->trim_spans && s->with_spans) {
        size_t left = fl__spaces_right(t, text, begin, end);
        bool one_at_front = left == 1 && begin == 0 && t->trim_prefix_space;
        end = fl__spaces_left(t, text, left, end);
        begin = one_at_front ? begin : left;
    }
    fl__scratch_add(s, t->added[added].id, begin, end);
    return FL_OK;
}

static fl_status encode_normalized_bpe(const fl_tokenizer *t, fl_token_scratch *s,
                                       const uint8_t *text, size_t begin, size_t end)
{
    FL_TRY(fl__added_split(t, &t->normalized, text, begin, end, &s->normalized));
    for (size_t i = 0; i < s->normalized.n; i++) {
        fl_stretch part = s->normalized.list[i];
        FL_TRY(part.added >= 0 ? add_token(t, s, text, part.added, part.begin, part.end)
                               : fl__bpe_encode(t, s, text, part.begin, part.end));
    }
    return FL_OK;
}

/* The normalized text in UTF-8, and the character of each byte. */
static fl_status spell_text(fl_token_scratch *s, size_t *n)
{
    size_t most = 4 * s->n_norm + 1;
    FL_TRY(fl_alloc_room((void **)&s->spelled, 0, most, 1, &s->spelled_room));
    FL_TRY(fl_alloc_room((void **)&s->spelled_at, 0, most, sizeof *s->spelled_at,
                         &s->spelled_at_room));
    *n = 0;
    for (size_t i = 0; i < s->n_norm; i++) {
        size_t size = fl_char_encode(s->norm[i].code, s->spelled + *n);
        for (size_t k = 0; k < size; k++) {
            s->spelled_at[*n + k] = (uint32_t)i;
        }
        *n += size;
    }
    s->spelled_at[*n] = (uint32_t)s->n_norm;
    return FL_OK;
}

static fl_status encode_normalized_bert(const fl_tokenizer *t, fl_token_scratch *s,
                                        const uint8_t *text, size_t begin, size_t end)
{
    size_t n;
    FL_TRY(fl__bert_normalize(t, s, text, begin, end));
    FL_TRY(spell_text(s, &n));
    FL_TRY(fl__added_split(t, &t->normalized, s->spelled, 0, n, &s->normalized));
    for (size_t i = 0; i < s->normalized.n; i++) {
        fl_stretch part = s->normalized.list[i];
        size_t first = s->spelled_at[part.begin], last = s->spelled_at[part.end - 1];
        FL_TRY(part.added >= 0
                   ? add_token(t, s, text, part.added, s->norm[first].begin, s->norm[last].end)
                   : fl__bert_encode_normalized(t, s, first, last + 1));
    }
    return FL_OK;
}

/* Text without tokens of (2). */
static fl_status encode_between(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                                size_t begin, size_t end)
{
    bool bert = t->kind == FL_WORDPIECE;
    if (t->normalized.n == 0) {
        return bert ? fl__bert_encode(t, s, text, begin, end)
                    : fl__bpe_encode(t, s, text, begin, end);
    }
    return bert ? encode_normalized_bert(t, s, text, begin, end)
                : encode_normalized_bpe(t, s, text, begin, end);
}

/* ---- (5) ---- */

/* Counts the characters of a text that begin before a place; places mostly go up. */
typedef struct char_counter {
    const uint8_t *text;
    size_t at;
    int32_t n;
} char_counter;

static int32_t count_before(char_counter *c, size_t place)
{
    for (; c->at < place; c->at++) {
        c->n += (c->text[c->at] & 0xC0) != 0x80;
    }
    for (; c->at > place; c->at--) {
        c->n -= (c->text[c->at - 1] & 0xC0) != 0x80;
    }
    return c->n;
}

/* How many spaces a piece of byte-level BPE begins and ends with. */
static void count_spaces(const char *piece, int *leading, int *trailing)
{
    static const char space[] = "\xC4\xA0"; /* how the vocabulary spells it */
    size_t n = strlen(piece), at = 0;
    *leading = *trailing = 0;
    for (; at + 2 <= n && memcmp(piece + at, space, 2) == 0; at += 2) {
        ++*leading;
    }
    for (; n >= 2 && memcmp(piece + n - 2, space, 2) == 0; n -= 2) {
        ++*trailing;
    }
}

static void trim_span(const fl_tokenizer *t, const char *piece, bool first, fl_token_span *span)
{
    int leading, trailing;
    count_spaces(piece, &leading, &trailing);
    if (leading == 1 && t->trim_prefix_space && (first || span->begin == 0)) {
        leading = 0; /* the space that was put there is not in the text */
    }
    span->begin = span->begin + leading < span->end ? span->begin + leading : span->end;
    if (trailing > 0 && span->end >= trailing) {
        span->end = span->end - trailing > span->begin ? span->end - trailing : span->begin;
    }
}

/* Of the tokens from `first` on, which are those of this text. */
static void place_spans(const fl_tokenizer *t, fl_token_scratch *s, const fl_text *text, bool ascii,
                        size_t first)
{
    char_counter counter = {.text = (const uint8_t *)text->bytes};
    for (size_t i = first; i < s->n; i++) {
        fl_token_span *span = &s->spans[i];
        if (!ascii) {
            int32_t begin = count_before(&counter, (size_t)span->begin + 1) - 1;
            int32_t end = count_before(&counter, (size_t)span->end);
            *span = (fl_token_span){.begin = begin, .end = end};
        }
        if (t->trim_spans) {
            trim_span(t, fl__vocabulary_text(&t->vocabulary, s->ids[i]), i == first, span);
        }
    }
}

static fl_status encode_text(const fl_tokenizer *t, fl_token_scratch *s, const fl_text *text,
                             const char *which)
{
    const uint8_t *bytes = (const uint8_t *)text->bytes;
    size_t first = s->n;
    bool ascii;
    FL_TRY(check_text(text, which, &ascii));
    FL_TRY(fl__added_split(t, &t->raw, bytes, 0, text->n_bytes, &s->raw));
    for (size_t i = 0; i < s->raw.n; i++) {
        fl_stretch part = s->raw.list[i];
        FL_TRY(part.added >= 0 ? add_token(t, s, bytes, part.added, part.begin, part.end)
                               : encode_between(t, s, bytes, part.begin, part.end));
    }
    if (s->with_spans && !(ascii && !t->trim_spans)) {
        place_spans(t, s, text, ascii, first);
    }
    return FL_OK;
}

/* ---- (6) ---- */

/* The shorter text stays whole if it fits beside the rest of the longer one; else both get half. */
static void cut_longest(int64_t room, int64_t *n1, int64_t *n2)
{
    int64_t *shorter = *n1 > *n2 ? n2 : n1, *longer = *n1 > *n2 ? n1 : n2;
    int64_t rest = *shorter > room ? *shorter : room - *shorter;
    *longer = rest > *shorter ? rest : *shorter;
    if (*shorter + *longer > room) {
        *shorter = room / 2;
        *longer = *shorter + room % 2;
    }
}

static fl_status cut_one(const char *which, int64_t excess, int64_t *n)
{
    if (*n <= excess) {
        return fl_fail(FL_EINVAL,
                       "%s has %lld tokens, of which %lld should go: shorten the other one", which,
                       (long long)*n, (long long)excess);
    }
    *n -= excess;
    return FL_OK;
}

/* How many tokens of each text are kept; n2 is 0 without a pair. */
static fl_status cut_texts(const fl_token_request *r, int n_special, int64_t *n1, int64_t *n2)
{
    int64_t room = r->max_tokens - (r->special ? n_special : 0);
    if (r->max_tokens == 0) {
        return FL_OK;
    }
    if (room < 0) {
        return fl_fail(FL_EINVAL, "a limit of %lld tokens, allowed: at least the %d special ones",
                       (long long)r->max_tokens, n_special);
    }
    int64_t excess = *n1 + *n2 - room;
    if (excess <= 0) {
        return FL_OK;
    }
    if (room == 0) {
        *n1 = *n2 = 0;
        return FL_OK;
    }
    if (r->cut == FL_CUT_ONLY_FIRST) {
        return cut_one("the first text", excess, n1);
    }
    if (r->cut == FL_CUT_ONLY_SECOND) {
        return r->pair.bytes == NULL ? fl_fail(FL_EINVAL, "there is no second text to be cut")
                                     : cut_one("the second text", excess, n2);
    }
    if (r->pair.bytes == NULL) {
        *n1 = room;
    } else {
        cut_longest(room, n1, n2);
    }
    return FL_OK;
}

/* ---- (7) ---- */

static void write_text(const fl_token_scratch *s, size_t first, int64_t n, int32_t type,
                       fl_tokens *out, int64_t *at)
{
    size_t count = (size_t)n;
    memcpy(out->ids + *at, s->ids + first, count * sizeof *out->ids);
    for (int64_t i = 0; out->types != NULL && i < n; i++) {
        out->types[*at + i] = type;
    }
    if (out->spans != NULL) {
        memcpy(out->spans + *at, s->spans + first, count * sizeof *out->spans);
    }
    *at += n;
}

static void write_special(const fl_template_item *item, fl_tokens *out, int64_t *at)
{
    out->ids[*at] = item->id;
    if (out->types != NULL) {
        out->types[*at] = item->type;
    }
    if (out->spans != NULL) {
        out->spans[*at] = (fl_token_span){0};
    }
    ++*at;
}

static void write_tokens(const fl_token_scratch *s, const fl_template *template, bool special,
                         size_t second, const int64_t kept[2], fl_tokens *out)
{
    int64_t at = 0;
    for (int i = 0; i < template->n; i++) {
        const fl_template_item *item = &template->items[i];
        if (item->kind == FL_ITEM_TEXT) {
            write_text(s, 0, kept[0], item->type, out, &at);
        } else if (item->kind == FL_ITEM_PAIR) {
            write_text(s, second, kept[1], item->type, out, &at);
        } else if (special) {
            write_special(item, out, &at);
        }
    }
    out->n = at;
}

/* How many tokens a template gives. */
static int64_t count_tokens(const fl_template *template, bool special, const int64_t kept[2])
{
    int64_t n = 0;
    for (int i = 0; i < template->n; i++) {
        fl_template_kind kind = template->items[i].kind;
        n += kind == FL_ITEM_TEXT ? kept[0] : kind == FL_ITEM_PAIR ? kept[1] : special;
    }
    return n;
}

fl_status fl_tokenizer_encode(const fl_tokenizer *t, fl_token_scratch *s, const fl_token_request *r,
                              fl_tokens *out)
{
    bool has_pair = r->pair.bytes != NULL;
    const fl_template *template = has_pair ? &t->pair : &t->single;
    if (s->tokenizer != t) {
        return fl_fail(FL_EINVAL, "the scratch was made for another tokenizer");
    }
    s->n = 0;
    s->with_spans = out->spans != NULL;
    FL_TRY(fl__scratch_room(s, 1)); /* so that there is something to copy from */
    FL_TRY(encode_text(t, s, &r->text, has_pair ? "the first text" : "the text"));
    size_t second = s->n;
    if (has_pair) {
        FL_TRY(encode_text(t, s, &r->pair, "the second text"));
    }
    int64_t kept[2] = {(int64_t)second, (int64_t)(s->n - second)};
    FL_TRY(cut_texts(r, template->n_special, &kept[0], &kept[1]));
    int64_t n = count_tokens(template, r->special, kept);
    if (n > out->capacity) {
        return fl_fail(FL_EINVAL, "%lld tokens do not fit into the %lld places for them",
                       (long long)n, (long long)out->capacity);
    }
    write_tokens(s, template, r->special, second, kept, out);
    return FL_OK;
}

int64_t fl_tokenizer_capacity(const fl_tokenizer *t, size_t n_bytes)
{
    (void)t;
    return 4 * (int64_t)n_bytes + 2 * FL_TEMPLATE_ITEMS_MAX;
}
