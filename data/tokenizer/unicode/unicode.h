/* What tokenizers ask of a code point. The tables are those of the Unicode versions that Hugging
 * Face's tokenizers use, which are of different years; unicode_tables.c names them. Pure. */
#ifndef FL_DATA_TOKENIZER_UNICODE_UNICODE_H
#define FL_DATA_TOKENIZER_UNICODE_UNICODE_H

#include <stddef.h>
#include <stdint.h>

enum {
    FL_CHAR_LETTER = 1,       /* \p{L} of GPT-2's pattern */
    FL_CHAR_NUMBER = 2,       /* \p{N} */
    FL_CHAR_SPACE = 4,        /* White_Space */
    FL_CHAR_WORD = 8,         /* \w: around added tokens */
    FL_CHAR_MARK = 16,        /* Mn of 2015: an accent */
    FL_CHAR_PUNCTUATION = 32, /* P of 2015, and all of ASCII's */
    FL_CHAR_REMOVED = 64,     /* Cc, Cf and Co of 2015 but tab, LF and CR; U+FFFD */
    FL_CHAR_CHINESE = 128,    /* stands alone in BERT; see is_chinese in the tables' script */
    FL_CHAR_FLAGS = 256,
    FL_CHAR_GROUP = FL_CHAR_LETTER | FL_CHAR_NUMBER | FL_CHAR_SPACE, /* at most one of these */
    FL_CHAR_LAST = 0x10FFFF,
    FL_DECOMPOSED_MAX = 4,
};

/* The flags of every code point of the first plane; those of the others are searched for. */
typedef struct fl_char_table {
    uint8_t flags[0x10000];
} fl_char_table;

void fl_char_table_fill(fl_char_table *table);

/* Of a code point from 0x10000 up. */
uint8_t fl__char_flags_search(uint32_t code);

static inline uint8_t fl_char_flags(const fl_char_table *table, uint32_t code)
{
    return code < 0x10000 ? table->flags[code] : fl__char_flags_search(code);
}

/* The full canonical decomposition (NFD) of a code point, Hangul included; its length. */
int fl_char_decompose(uint32_t code, uint32_t out[FL_DECOMPOSED_MAX]);

/* The canonical combining class. */
uint8_t fl_char_combining(uint32_t code);

/* The lower case of a code point: one, or two of U+0130; itself where it has none. */
int fl_char_lower(uint32_t code, uint32_t out[2]);

/* The code point at `text`, which is valid UTF-8, and its length in bytes. */
static inline uint32_t fl_char_decode(const uint8_t *text, size_t *size)
{
    if (text[0] < 0x80) {
        *size = 1;
        return text[0];
    }
    if (text[0] < 0xE0) {
        *size = 2;
        return (text[0] & 0x1Fu) << 6 | (text[1] & 0x3Fu);
    }
    if (text[0] < 0xF0) {
        *size = 3;
        return (text[0] & 0xFu) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
    }
    *size = 4;
    return (text[0] & 7u) << 18 | (text[1] & 0x3Fu) << 12 | (text[2] & 0x3Fu) << 6 |
           (text[3] & 0x3Fu);
}

/* Write a code point in UTF-8; its length, at most 4. */
static inline size_t fl_char_encode(uint32_t code, uint8_t out[4])
{
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xC0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xE0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        out[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (uint8_t)(0xF0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    out[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

#endif
