/* The tables behind unicode.h; tests/reference/make_unicode_tables.py writes them. */
#ifndef FL_DATA_TOKENIZER_UNICODE_UNICODE_TABLES_H
#define FL_DATA_TOKENIZER_UNICODE_UNICODE_TABLES_H

#include <stdint.h>

/* Ranges of equal flags, without gaps, first << 8 | flags, up to the next one. */
extern const uint32_t fl__char_ranges[];
extern const int fl__n_char_ranges;

/* Canonical decompositions that are not Hangul's: code, first, second (0: there is none). */
typedef struct fl__decomposition {
    uint32_t code, first, second;
} fl__decomposition;
extern const fl__decomposition fl__decompositions[];
extern const int fl__n_decompositions;

/* Combining classes that are not 0. */
typedef struct fl__combining {
    uint32_t first, last;
    uint8_t class;
} fl__combining;
extern const fl__combining fl__combinings[];
extern const int fl__n_combinings;

/* first, first + step, ... last: each becomes itself + delta. */
typedef struct fl__lower_case {
    uint32_t first, last;
    int32_t step, delta;
} fl__lower_case;
extern const fl__lower_case fl__lower_cases[];
extern const int fl__n_lower_cases;

#endif
