/* GPT-2's pattern by hand: each alternative in turn, as a regular expression tries them. */
#include "data/tokenizer/bpe.h"

static unsigned group_at(const fl_char_table *chars, const uint8_t *text, size_t at, size_t *size)
{
    return fl_char_flags(chars, fl_char_decode(text + at, size)) & FL_CHAR_GROUP;
}

/* The end of the run of characters of one group that begins at `at`. */
static size_t find_run_end(const fl_char_table *chars, const uint8_t *text, size_t at, size_t n,
                           unsigned group)
{
    while (at < n) {
        size_t size = 1;
        unsigned here = text[at] < 0x80 ? chars->flags[text[at]] & (unsigned)FL_CHAR_GROUP
                                        : group_at(chars, text, at, &size);
        if (here != group) {
            break;
        }
        at += size;
    }
    return at;
}

/* 's|'t|'re|'ve|'m|'ll|'d behind an apostrophe: its length, 0 if it is none of them. */
static size_t contraction_length(const uint8_t *text, size_t at, size_t n)
{
    if (at + 1 >= n) {
        return 0;
    }
    uint8_t a = text[at + 1], b = at + 2 < n ? text[at + 2] : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return 2;
    }
    return (b == 'e' && (a == 'r' || a == 'v')) || (a == 'l' && b == 'l') ? 3 : 0;
}

/* \s+(?!\S)|\s+: white space up to its last character, which stands before what follows; all of it
 * at the end of the text, and where it is one character. */
static size_t split_space(const fl_char_table *chars, const uint8_t *text, size_t at, size_t n)
{
    size_t end = find_run_end(chars, text, at, n, FL_CHAR_SPACE), last = end - 1;
    while ((text[last] & 0xC0) == 0x80) {
        last--;
    }
    return end == n || last == at ? end : last;
}

size_t fl__gpt2_split(const fl_char_table *chars, const uint8_t *text, size_t at, size_t n)
{
    size_t size, first = at;
    if (text[at] == '\'') {
        size_t length = contraction_length(text, at, n);
        if (length > 0) {
            return at + length;
        }
    }
    unsigned group = group_at(chars, text, at, &size);
    if (text[at] == ' ' && at + 1 < n) { /* the " ?" */
        first = at + 1;
        group = group_at(chars, text, first, &size);
    }
    return group == FL_CHAR_SPACE ? split_space(chars, text, at, n)
                                  : find_run_end(chars, text, first + size, n, group);
}
