#include "device/text/last_line.h"

#include "device/text/utf8.h"

void fl_last_line_add(fl_last_line *line, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == '\n' || c == '\r') {
            line->whole = true;
            continue;
        }
        if (line->whole) {
            line->whole = false;
            line->cut = false;
            line->n = 0;
        }
        if (line->n < FL_LAST_LINE_MAX) {
            line->text[line->n++] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
            line->text[line->n] = '\0';
        } else if (!line->cut) {
            line->cut = true;
            fl_text_cut(line->text, FL_LAST_LINE_MAX);
        }
    }
}
