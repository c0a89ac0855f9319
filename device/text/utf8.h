/* Characters of text in UTF-8. */
#ifndef FL_DEVICE_TEXT_UTF8_H
#define FL_DEVICE_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length in bytes of the UTF-8 character at text [length], its code point in *code; 0 if the
 * bytes are not one (also for overlong forms and surrogates). Pure. */
size_t fl_utf8_next(const char *text, size_t length, uint32_t *code);

/* Cut the text, which goes on after `length` bytes: it ends in "..." then, after the last whole
 * character that leaves room for that within `length` bytes. Shorter than "...", it is empty. */
void fl_text_cut(char *text, size_t length);

/* The text, cut like this if it does not fit. Returns out [size_bytes, 4 or more]. */
const char *fl_text_fit(const char *text, char *out, size_t size_bytes);

#endif
