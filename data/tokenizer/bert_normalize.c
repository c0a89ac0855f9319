/* BERT's normalization:
 *
 *     clean (1) -> spaces around Chinese characters (2) -> NFD (3) -> drop accents (4) -> lower
 * case (5)
 *
 * Each code point keeps the bytes of the text that it comes from. */
#include "data/tokenizer/bert.h"
#include "device/system/alloc.h"

#include <stdlib.h>

static fl_status reserve_norm(fl_token_scratch *s, size_t more)
{
    return fl_alloc_room((void **)&s->norm, s->n_norm, more, sizeof *s->norm, &s->norm_room);
}

/* (1) and (2) */
static fl_status clean_text(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                            size_t begin, size_t end)
{
    s->n_norm = 0;
    for (size_t at = begin, size; at < end; at += size) {
        uint32_t code = fl_char_decode(text + at, &size);
        unsigned flags = fl_char_flags(&t->chars, code);
        fl_norm_char c = {.code = code, .begin = (uint32_t)at, .end = (uint32_t)(at + size)};
        FL_TRY(reserve_norm(s, 3));
        if (t->clean_text && (flags & FL_CHAR_REMOVED)) {
            continue;
        }
        if (t->clean_text && (flags & FL_CHAR_SPACE)) {
            c.code = ' ';
        }
        if (t->chinese && (flags & FL_CHAR_CHINESE)) {
            fl_norm_char space = {.code = ' ', .begin = c.begin, .end = c.end};
            s->norm[s->n_norm++] = space;
            s->norm[s->n_norm++] = c;
            s->norm[s->n_norm++] = space;
        } else {
            s->norm[s->n_norm++] = c;
        }
    }
    return FL_OK;
}

/* ---- NFD ---- */

typedef struct ordered_mark { /* for a stable sort */
    fl_norm_mark mark;
    size_t place;
} ordered_mark;

static int compare_marks(const void *a, const void *b)
{
    const ordered_mark *x = a, *y = b;
    return x->mark.class != y->mark.class ? (x->mark.class < y->mark.class ? -1 : 1)
                                          : (x->place > y->place) - (x->place < y->place);
}

/* Put marks [first, end) in the order of their classes; equal ones stay as they are. */
static fl_status sort_marks(fl_token_scratch *s, size_t first, size_t end)
{
    bool sorted = true;
    for (size_t i = first + 1; i < end; i++) {
        sorted = sorted && s->marks[i - 1].class <= s->marks[i].class;
    }
    if (sorted) {
        return FL_OK;
    }
    ordered_mark *order;
    FL_TRY(fl_alloc_array(end - first, sizeof *order, (void **)&order));
    for (size_t i = first; i < end; i++) {
        order[i - first] = (ordered_mark){.mark = s->marks[i], .place = i};
    }
    qsort(order, end - first, sizeof *order, compare_marks);
    for (size_t i = first; i < end; i++) {
        s->marks[i] = order[i - first].mark;
    }
    fl_free(order);
    return FL_OK;
}

/* Decompose s->norm into s->marks, in canonical order. */
static fl_status decompose_text(fl_token_scratch *s)
{
    size_t run = 0; /* where the marks behind the last base character begin */
    s->n_marks = 0;
    for (size_t i = 0; i < s->n_norm; i++) {
        uint32_t parts[FL_DECOMPOSED_MAX];
        int n = fl_char_decompose(s->norm[i].code, parts);
        FL_TRY(fl_alloc_room((void **)&s->marks, s->n_marks, FL_DECOMPOSED_MAX, sizeof *s->marks,
                             &s->marks_room));
        for (int k = 0; k < n; k++) {
            uint8_t class = fl_char_combining(parts[k]);
            if (class == 0) {
                FL_TRY(sort_marks(s, run, s->n_marks));
                run = s->n_marks + 1;
            }
            s->marks[s->n_marks++] =
                (fl_norm_mark){.code = parts[k], .class = class, .first = k == 0};
        }
    }
    return sort_marks(s, run, s->n_marks);
}

/* (3) and (4). Each part that begins a decomposition takes the place in the text of the next
 * character, and each other part that of the one before it, also where the order changed: this is
 * how Hugging Face counts. */
static fl_status strip_accents(const fl_tokenizer *t, fl_token_scratch *s)
{
    FL_TRY(decompose_text(s));
    size_t n = s->n_norm, from = 0;
    FL_TRY(reserve_norm(s, n + s->n_marks));
    fl_norm_char *out = s->norm + n; /* behind the characters; moved to the front below */
    size_t n_out = 0;
    fl_norm_char place = {0};
    for (size_t i = 0; i < s->n_marks; i++) {
        if (s->marks[i].first) {
            place = s->norm[from++];
        }
        if (!(fl_char_flags(&t->chars, s->marks[i].code) & FL_CHAR_MARK)) {
            place.code = s->marks[i].code;
            out[n_out++] = place;
        }
    }
    memmove(s->norm, out, n_out * sizeof *out);
    s->n_norm = n_out;
    return FL_OK;
}

/* (5) One capital becomes two characters, unless (3) took it apart. */
static fl_status lower_text(fl_token_scratch *s)
{
    size_t n_more = 0;
    for (size_t i = 0; i < s->n_norm; i++) {
        n_more += s->norm[i].code == 0x130;
    }
    FL_TRY(reserve_norm(s, n_more));
    size_t to = s->n_norm + n_more;
    s->n_norm = to;
    for (size_t from = to - n_more; from > 0;) {
        fl_norm_char c = s->norm[--from];
        uint32_t lower[2];
        for (int k = fl_char_lower(c.code, lower); k > 0;) {
            c.code = lower[--k];
            s->norm[--to] = c;
        }
    }
    return FL_OK;
}

fl_status fl__bert_normalize(const fl_tokenizer *t, fl_token_scratch *s, const uint8_t *text,
                             size_t begin, size_t end)
{
    FL_TRY(clean_text(t, s, text, begin, end));
    if (t->strip_accents) {
        FL_TRY(strip_accents(t, s));
    }
    return t->lower_case ? lower_text(s) : FL_OK;
}
