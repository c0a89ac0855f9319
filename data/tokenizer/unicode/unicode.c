#include "data/tokenizer/unicode/unicode.h"

#include "data/tokenizer/unicode/unicode_tables.h"

#include <string.h>

void fl_char_table_fill(fl_char_table *table)
{
    for (int i = 0; i < fl__n_char_ranges; i++) {
        uint32_t first = fl__char_ranges[i] >> 8;
        uint32_t end =
            i + 1 < fl__n_char_ranges ? fl__char_ranges[i + 1] >> 8 : (uint32_t)FL_CHAR_LAST + 1;
        if (first >= sizeof table->flags) {
            break;
        }
        end = end < sizeof table->flags ? end : (uint32_t)sizeof table->flags;
        memset(table->flags + first, (int)(fl__char_ranges[i] & 0xFF), end - first);
    }
}

uint8_t fl__char_flags_search(uint32_t code)
{
    int low = 0, high = fl__n_char_ranges;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (fl__char_ranges[middle] >> 8 <= code) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return (uint8_t)(fl__char_ranges[low] & 0xFF);
}

/* ---- NFD ---- */

/* A Hangul syllable is made of a leading consonant, a vowel and perhaps a trailing consonant; the
 * Unicode standard, section 3.12. */
enum {
    HANGUL = 0xAC00,
    HANGUL_LAST = 0xD7A3,
    LEADING = 0x1100,
    VOWEL = 0x1161,
    TRAILING = 0x11A7,
    N_VOWEL = 21,
    N_TRAILING = 28
};

static int decompose_hangul(uint32_t code, uint32_t *out)
{
    uint32_t index = code - HANGUL, trailing = index % N_TRAILING;
    out[0] = LEADING + index / (N_VOWEL * N_TRAILING);
    out[1] = VOWEL + index % (N_VOWEL * N_TRAILING) / N_TRAILING;
    out[2] = TRAILING + trailing;
    return trailing == 0 ? 2 : 3;
}

static const fl__decomposition *find_decomposition(uint32_t code)
{
    int low = 0, high = fl__n_decompositions;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (fl__decompositions[middle].code == code) {
            return &fl__decompositions[middle];
        }
        if (fl__decompositions[middle].code < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return NULL;
}

int fl_char_decompose(uint32_t code, uint32_t out[FL_DECOMPOSED_MAX])
{
    uint32_t behind[FL_DECOMPOSED_MAX]; /* last one first */
    int n_behind = 0, n = 0;
    if (code >= HANGUL && code <= HANGUL_LAST) {
        return decompose_hangul(code, out);
    }
    /* Only the first part of a decomposition is decomposed further. */
    for (const fl__decomposition *d; (d = find_decomposition(code)) != NULL; code = d->first) {
        if (d->second != 0 && n_behind < FL_DECOMPOSED_MAX - 1) {
            behind[n_behind++] = d->second;
        }
    }
    out[n++] = code;
    while (n_behind > 0) {
        out[n++] = behind[--n_behind];
    }
    return n;
}

uint8_t fl_char_combining(uint32_t code)
{
    int low = 0, high = fl__n_combinings;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (fl__combinings[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < fl__n_combinings && fl__combinings[low].first <= code ? fl__combinings[low].class
                                                                       : 0;
}

/* ---- lower case ---- */

int fl_char_lower(uint32_t code, uint32_t out[2])
{
    int low = 0, high = fl__n_lower_cases;
    out[0] = code;
    if (code == 0x130) { /* a capital I with a dot above: the one that becomes two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (fl__lower_cases[middle].last < code) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const fl__lower_case *row = &fl__lower_cases[low];
    if (low < fl__n_lower_cases && row->first <= code &&
        (code - row->first) % (uint32_t)row->step == 0) {
        out[0] = (uint32_t)((int32_t)code + row->delta);
    }
    return 1;
}
