#include "device/text/utf8.h"

#include <stdbool.h>

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
