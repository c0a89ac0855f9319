#include "device/text/utf8.h"

#include <stdbool.h>
#include <string.h>

size_t fl_utf8_next(const char *text, size_t length, uint32_t *code)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char *byte = (const unsigned char *)text;
    if (length == 0) {
        return 0;
    }
    size_t size = byte[0] < 0x80             ? 1
                  : (byte[0] & 0xE0) == 0xC0 ? 2
                  : (byte[0] & 0xF0) == 0xE0 ? 3
                  : (byte[0] & 0xF8) == 0xF0 ? 4
                                             : 0;
    if (size == 0 || size > length) {
        return 0;
    }
    uint32_t value = size == 1 ? byte[0] : byte[0] & (0x7Fu >> size);
    for (size_t i = 1; i < size; i++) {
        if ((byte[i] & 0xC0) != 0x80) {
            return 0;
        }
        value = value << 6 | (byte[i] & 0x3Fu);
    }
    bool is_surrogate = value >= 0xD800 && value <= 0xDFFF;
    if (value < least[size] || value > 0x10FFFF || is_surrogate) {
        return 0;
    }
    *code = value;
    return size;
}

void fl_text_cut(char *text, size_t length)
{
    enum { DOTS = 3, OF_CHARACTER = 3 };
    size_t n = length < DOTS ? 0 : length - DOTS, least = n < OF_CHARACTER ? 0 : n - OF_CHARACTER;
    while (n > least && ((unsigned char)text[n] & 0xC0) == 0x80) { /* within a character */
        n--;
    }
    memset(text + n, '.', length < DOTS ? 0 : DOTS);
    text[n + (length < DOTS ? 0 : DOTS)] = '\0';
}

const char *fl_text_fit(const char *text, char *out, size_t size_bytes)
{
    size_t n = strnlen(text, size_bytes);
    bool fits = n < size_bytes;
    n = fits ? n : size_bytes - 1;
    memcpy(out, text, n);
    out[n] = '\0';
    if (!fits) {
        fl_text_cut(out, n);
    }
    return out;
}
