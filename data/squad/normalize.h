/* A text as SQuAD's official script compares it: lower case, without ASCII punctuation and the
 * articles a, an and the, as words. */
#ifndef FL_DATA_SQUAD_NORMALIZE_H
#define FL_DATA_SQUAD_NORMALIZE_H

#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/unicode/unicode.h"

/* A struct of zeros holds nothing. */
typedef struct fl_squad_words {
    char *bytes;   /* owned */
    fl_text *word; /* [n], owned */
    size_t n;
} fl_squad_words;

/* text  valid UTF-8. FL_ENOMEM; nothing is held on failure */
fl_status fl__squad_words_split(const fl_char_table *chars, fl_text text,
                                fl_squad_words *out) FL_MUST_CHECK;
void fl__squad_words_fini(fl_squad_words *words);

#endif
