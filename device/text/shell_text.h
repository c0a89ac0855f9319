/* A command for the shell of another host, put together word by word. */
#ifndef FL_DEVICE_TEXT_SHELL_TEXT_H
#define FL_DEVICE_TEXT_SHELL_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* text [size_bytes] is the caller's; used 0 at first. What does not fit is counted and not written.
 */
typedef struct fl_shell_text {
    char *text;
    size_t used, size_bytes;
} fl_shell_text;

/* As it is. */
void fl_shell_text_put(fl_shell_text *w, const char *text);

/* A blank, and the word in single quotes: the shell reads it as it is. */
void fl_shell_text_word(fl_shell_text *w, const char *word);

/* "cd WORD 2>/dev/null; ": where that folder is missing, the shell stays where it is. */
void fl_shell_text_cd(fl_shell_text *w, const char *folder);

/* End the text. False: it did not fit, and is cut. */
bool fl_shell_text_end(fl_shell_text *w);

#endif
