/* Characters of text in UTF-8. */
#ifndef FL_DEVICE_TEXT_UTF8_H
#define FL_DEVICE_TEXT_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length in bytes of the UTF-8 character at text [length], its code point in *code; 0 if the
 * bytes are not one (also for overlong forms and surrogates). Pure. */
size_t fl_utf8_next(const char *text, size_t length, uint32_t *code);

#endif
