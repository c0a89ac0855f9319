/* The script's steps, in its order:
 *
 *     lower case (1) -> no punctuation (2) -> no articles (3) -> words (4)
 *
 * (3) An article is one of the words of (4) or a part of it: between two characters of which one
 * belongs to a word (a letter, a digit) and the other does not. */
#include "data/squad/normalize.h"

#include "device/system/alloc.h"

#include <stdbool.h>
#include <string.h>

static bool is_space(const fl_char_table *chars, uint32_t code)
{
    return (code >= 0x1C && code <= 0x1F) || (fl_char_flags(chars, code) & FL_CHAR_SPACE) != 0;
}

/* Python's \w; its '_' is gone by then. */
static bool is_word(const fl_char_table *chars, uint32_t code)
{
    return (fl_char_flags(chars, code) & (FL_CHAR_LETTER | FL_CHAR_NUMBER)) != 0;
}

/* Python's string.punctuation. */
static bool is_punctuation(uint32_t code)
{
    return code < 0x80 && code > 0x20 && strchr("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", (int)code);
}

/* (1) and (2): codes has room for two of each byte. */
static size_t lower_text(fl_text text, uint32_t *codes)
{
    size_t n = 0;
    for (size_t at = 0, size; at < text.n_bytes; at += size) {
        uint32_t lower[2];
        int n_lower = fl_char_lower(fl_char_decode((const uint8_t *)text.bytes + at, &size), lower);
        for (int i = 0; i < n_lower; i++) {
            if (!is_punctuation(lower[i])) {
                codes[n++] = lower[i];
            }
        }
    }
    return n;
}

static bool is_article(const uint32_t *codes, size_t n)
{
    return (n == 1 && codes[0] == 'a') || (n == 2 && codes[0] == 'a' && codes[1] == 'n') ||
           (n == 3 && codes[0] == 't' && codes[1] == 'h' && codes[2] == 'e');
}

/* (3) Articles become spaces. */
static void remove_articles(const fl_char_table *chars, uint32_t *codes, size_t n)
{
    for (size_t begin = 0, end; begin < n; begin = end) {
        bool word = is_word(chars, codes[begin]);
        end = begin + 1;
        while (end < n && is_word(chars, codes[end]) == word) {
            end++;
        }
        if (word && is_article(codes + begin, end - begin)) {
            for (size_t i = begin; i < end; i++) {
                codes[i] = ' ';
            }
        }
    }
}

/* (4) */
static void split_words(const fl_char_table *chars, const uint32_t *codes, size_t n,
                        fl_squad_words *words)
{
    char *to = words->bytes;
    bool inside = false;
    for (size_t i = 0; i < n; i++) {
        if (is_space(chars, codes[i])) {
            inside = false;
            continue;
        }
        if (!inside) {
            words->word[words->n++] = (fl_text){.bytes = to};
            inside = true;
        }
        size_t size = fl_char_encode(codes[i], (uint8_t *)to);
        words->word[words->n - 1].n_bytes += size;
        to += size;
    }
}

fl_status fl__squad_words_split(const fl_char_table *chars, fl_text text, fl_squad_words *out)
{
    fl_squad_words words = {0};
    uint32_t *codes = NULL;
    size_t room = 2 * text.n_bytes + 1;
    FL_TRY(fl_alloc_array(room, sizeof *codes, (void **)&codes));
    fl_status status = fl_alloc_array(room, 4, (void **)&words.bytes);
    if (status == FL_OK) {
        status = fl_alloc_array(room, sizeof *words.word, (void **)&words.word);
    }
    if (status == FL_OK) {
        size_t n = lower_text(text, codes);
        remove_articles(chars, codes, n);
        split_words(chars, codes, n, &words);
        *out = words;
    } else {
        fl__squad_words_fini(&words);
    }
    fl_free(codes);
    return status;
}

void fl__squad_words_fini(fl_squad_words *words)
{
    fl_free(words->bytes);
    fl_free(words->word);
    *words = (fl_squad_words){0};
}
