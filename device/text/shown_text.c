#include "device/text/shown_text.h"

#include "device/text/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { UTF8_LONGEST = 4 }; /* bytes of one character */

static bool is_harmless(uint32_t code)
{
    bool controls = code < 0x20 || (code >= 0x7F && code < 0xA0);
    bool turns = code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
                 (code >= 0x2066 && code <= 0x2069);
    return !controls && !turns;
}

size_t fl_text_harmless(const char *text)
{
    uint32_t code = 0;
    size_t size = fl_utf8_next(text, strnlen(text, UTF8_LONGEST), &code);
    return size > 0 && is_harmless(code) ? size : 0;
}

const char *fl_text_octal(char byte, char octal[FL_TEXT_OCTAL_BYTES])
{
    snprintf(octal, FL_TEXT_OCTAL_BYTES, "\\%03o", (unsigned)(unsigned char)byte);
    return octal;
}

static const char *show(const char *text, bool keeps_lines, char *shown, size_t size_bytes)
{
    size_t used = 0;
    while (*text != '\0') {
        char octal[FL_TEXT_OCTAL_BYTES];
        size_t size = keeps_lines && *text == '\n' ? 1 : fl_text_harmless(text);
        size_t n = size > 0 ? size : FL_TEXT_OCTAL_BYTES - 1;
        if (used + n >= size_bytes) {
            break;
        }
        memcpy(shown + used, size > 0 ? text : fl_text_octal(*text, octal), n);
        used += n;
        text += size > 0 ? size : 1;
    }
    shown[used] = '\0';
    return shown;
}

const char *fl_text_shown(const char *text, char *shown, size_t size_bytes)
{
    return show(text, false, shown, size_bytes);
}

const char *fl_text_shown_lines(const char *text, char *shown, size_t size_bytes)
{
    return show(text, true, shown, size_bytes);
}
