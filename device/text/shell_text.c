#include "device/text/shell_text.h"

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
void fl_shell_text_word(fl_shell_text *w, const char *word)
{
    fl_shell_text_put(w, " '");
    for (; *word != '\0'; word++) {
        if (*word == '\'') {
            fl_shell_text_put(w, "'\\''");
        } else {
            put_char(w, *word);
        }
    }
    put_char(w, '\'');
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
