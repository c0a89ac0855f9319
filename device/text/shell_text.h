/* Words of a POSIX shell: a command for the shell of another host, put together word by word, and
 * the words of a command that a user pastes. */
#ifndef FL_DEVICE_TEXT_SHELL_TEXT_H
#define FL_DEVICE_TEXT_SHELL_TEXT_H

#include <limits.h>
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

/* Bytes that hold each path as fl_shell_shown writes it. */
enum { FL_SHELL_PATH_BYTES = 4 * PATH_MAX + 4 };

/* The word as a command has it that is printed for the user to paste: as it is where every shell
 * reads it so, else in single quotes. With characters that control a terminal, or bytes that are no
 * text, it is $'...' with octal escapes: bash, zsh and ksh read it, and to other shells it is
 * another word, which runs nothing. Text that follows at once, as in WORD/job.yaml, belongs to the
 * word. "..." if it does not fit. Returns shown [size_bytes, 4 or more]. */
const char *fl_shell_shown(const char *word, char *shown, size_t size_bytes);

#endif
