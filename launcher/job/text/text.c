#include "launcher/job/text/text.h"

#include "device/errors/failure.h"
#include "device/text/shown_text.h"
#include "device/text/utf8.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

bool fl_char_is_printable(uint32_t code)
{
    return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code <= 0x7E) ||
           code == 0x85 || (code >= 0xA0 && code <= 0xFFFD && code != 0xFEFF) || code >= 0x10000;
}

/* One character as a message shows it; returns the bytes it took from text. */
static size_t show_char(const char *text, size_t length, char out[12])
{
    uint32_t code = 0;
    size_t size = fl_utf8_next(text, length, &code);
    bool breaks_line = code < 0x20 || code == 0x85 || code == 0x2028 || code == 0x2029;
    if (size == 0 || !fl_char_is_printable(code) || breaks_line) {
        fl_text_octal(text[0], out);
        return 1;
    }
    memcpy(out, text, size);
    out[size] = '\0';
    return size;
}

const char *fl_shown(const char *text, size_t length, char shown[FL_SHOWN_MAX])
{
    enum { TAIL = sizeof "...'" };
    size_t used = 0;
    shown[used++] = '\'';
    for (size_t i = 0; i < length;) {
        char piece[12];
        i += show_char(text + i, length - i, piece);
        size_t size = strlen(piece);
        if (used + size + TAIL > FL_SHOWN_MAX) {
            memcpy(shown + used, "...", 3);
            used += 3;
            break;
        }
        memcpy(shown + used, piece, size);
        used += size;
    }
    shown[used++] = '\'';
    shown[used] = '\0';
    return shown;
}

fl_status fl_path_check_home(const char *path)
{
    char shown[FL_SHOWN_MAX];
    return path[0] != '~' || (path[1] != '\0' && path[1] != '/')
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "found %s, in which ~ is not expanded; allowed: the whole path, as "
                         "/home/NAME%s",
                         fl_shown(path, strlen(path), shown), path[1] == '\0' ? "" : "/...");
}

static bool same_letter(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

int fl_edit_distance(const char *a, const char *b, int limit)
{
    enum { LONGEST = 64 };
    size_t n_a = strlen(a), n_b = strlen(b);
    if (n_a > LONGEST || n_b > LONGEST) {
        return limit + 1;
    }
    int row[3][LONGEST + 1]; /* rows i - 2, i - 1 and i of the table, in turn */
    for (size_t j = 0; j <= n_b; j++) {
        row[0][j] = (int)j;
    }
    for (size_t i = 1; i <= n_a; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= n_b; j++) {
            int replaced = last[j - 1] + !same_letter(a[i - 1], b[j - 1]);
            now[j] = least_of(replaced, least_of(last[j], now[j - 1]) + 1);
            bool swapped = i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) &&
                           same_letter(a[i - 2], b[j - 1]);
            if (swapped) {
                now[j] = least_of(now[j], before[j - 2] + 1);
            }
        }
    }
    return least_of(row[n_a % 3][n_b], limit + 1);
}

static int longest_of(const char *a, const char *b)
{
    size_t n_a = strlen(a), n_b = strlen(b);
    return (int)(n_a > n_b ? n_a : n_b);
}

const char *fl_nearest(const char *word, fl_candidate_word *next, const void *context)
{
    int limit = strlen(word) < 3 ? 1 : strlen(word) < 6 ? 2 : 3;
    const char *best = NULL;
    for (int i = 0;; i++) {
        const char *candidate = next(context, i);
        if (candidate == NULL) {
            return best;
        }
        int distance = fl_edit_distance(word, candidate, limit);
        /* Where most letters are wrong, or all of a short word, that is no misspelling. */
        if (distance <= limit && distance < (int)strlen(candidate) &&
            2 * distance <= longest_of(word, candidate)) {
            limit = distance - 1;
            best = candidate;
        }
    }
}
