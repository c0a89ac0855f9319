#include "device/text/shell_text.h"

#include "device/text/shown_text.h"

#include <stdio.h>
#include <string.h>

static void put_char(fl_shell_text *w, char c)
{
    if (w->used + 1 < w->size_bytes) {
        w->text[w->used] = c;
    }
    w->used++;
}

void fl_shell_text_put(fl_shell_text *w, const char *text)
{
    for (; *text != '\0'; text++) {
        put_char(w, *text);
    }
}

/* A single quote in the word becomes '\''. */
static void put_quoted(fl_shell_text *w, const char *word)
{
    put_char(w, '\'');
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fl_shell_text_put(w, "'\\''");
        } else {
            put_char(w, *word);
        }
    }
    put_char(w, '\'');
}

void fl_shell_text_word(fl_shell_text *w, const char *word)
{
    put_char(w, ' ');
    put_quoted(w, word);
}

void fl_shell_text_cd(fl_shell_text *w, const char *folder)
{
    fl_shell_text_put(w, "cd");
    fl_shell_text_word(w, folder);
    fl_shell_text_put(w, " 2>/dev/null; ");
}

bool fl_shell_text_end(fl_shell_text *w)
{
    bool fits = w->used < w->size_bytes;
    w->text[fits ? w->used : w->size_bytes - 1] = '\0';
    return fits;
}

/* ---- for a user ---- */

/* Some shells read a leading ~ or = as the beginning of something else. */
static bool is_plain(const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_@%+=:,./-";
    return word[0] != '\0' && word[0] != '=' && word[strspn(word, plain)] == '\0';
}

static bool all_harmless(const char *word)
{
    size_t size = 1;
    while (*word != '\0' && size > 0) {
        size = fl_text_harmless(word);
        word += size;
    }
    return size > 0;
}

/* A quote or a backslash is escaped by its number, too: a shell that does not know $'...' sees a
 * word in single quotes. */
static void put_escaped(fl_shell_text *w, const char *word)
{
    fl_shell_text_put(w, "$'");
    while (*word != '\0') {
        size_t size = *word == '\'' || *word == '\\' ? 0 : fl_text_harmless(word);
        if (size == 0) {
            char octal[FL_TEXT_OCTAL_BYTES];
            fl_shell_text_put(w, fl_text_octal(*word++, octal));
        }
        for (; size > 0; size--) {
            put_char(w, *word++);
        }
    }
    put_char(w, '\'');
}

const char *fl_shell_shown(const char *word, char *shown, size_t size_bytes)
{
    fl_shell_text w = {.text = shown, .size_bytes = size_bytes};
    if (is_plain(word)) {
        fl_shell_text_put(&w, word);
    } else if (all_harmless(word)) {
        put_quoted(&w, word);
    } else {
        put_escaped(&w, word);
    }
    if (!fl_shell_text_end(&w)) {
        snprintf(shown, size_bytes, "...");
    }
    return shown;
}
