#include "launcher/report/draw/html.h"

#include "device/system/alloc.h"
#include "device/text/utf8.h"
#include "launcher/job/text/text.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_MAX = 512 };

void fl_html_fini(fl_html *html)
{
    fl_free(html->text);
    *html = (fl_html){0};
}

static void add_bytes(fl_html *html, const char *bytes, size_t n)
{
    if (html->broken) {
        return;
    }
    void *text = html->text;
    if (fl_alloc_room(&text, html->n, n, 1, &html->capacity) != FL_OK) {
        html->broken = true;
        return;
    }
    html->text = (char *)text;
    memcpy(html->text + html->n, bytes, n);
    html->n += n;
}

/* ---- text ---- */

/* With characters that change the direction of writing, a name could rearrange the text around it.
 */
static bool turns_direction(uint32_t code)
{
    return code == 0x200E || code == 0x200F || (code >= 0x202A && code <= 0x202E) ||
           (code >= 0x2066 && code <= 0x2069);
}

static bool may_stand(uint32_t code)
{
    bool no_character = (code & 0xFFFE) == 0xFFFE || (code >= 0xFDD0 && code <= 0xFDEF);
    return fl_char_is_printable(code) && !turns_direction(code) && !no_character && code != '\r';
}

static const char *entity_of(uint32_t code)
{
    return code == '<'    ? "&lt;"
           : code == '>'  ? "&gt;"
           : code == '&'  ? "&amp;"
           : code == '"'  ? "&quot;"
           : code == '\'' ? "&#39;"
                          : NULL;
}

void fl_html_text(fl_html *html, const char *text, size_t n_bytes)
{
    static const char unknown[] = "\xEF\xBF\xBD";
    for (size_t i = 0; i < n_bytes;) {
        uint32_t code = 0;
        size_t size = fl_utf8_next(text + i, n_bytes - i, &code);
        const char *entity = size == 0 ? NULL : entity_of(code);
        if (size == 0 || !may_stand(code)) {
            add_bytes(html, unknown, sizeof unknown - 1);
        } else if (entity != NULL) {
            add_bytes(html, entity, strlen(entity));
        } else {
            add_bytes(html, text + i, size);
        }
        i += size == 0 ? 1 : size;
    }
}

/* ---- the format ---- */

static void add_real(fl_html *html, double value, int digits)
{
    char text[NUMBER_MAX];
    int n = isfinite(value) ? snprintf(text, sizeof text, "%.*f", digits, value)
                            : snprintf(text, sizeof text, "-");
    add_bytes(html, text, (size_t)n);
}

static void add_whole(fl_html *html, int64_t value)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%lld", (long long)value);
    add_bytes(html, text, (size_t)n);
}

/* The directive behind '%'; returns what follows it. */
static const char *add_directive(fl_html *html, const char *at, va_list *args)
{
    int digits = 6, n_long = 0;
    if (at[0] == '.') {
        digits = at[1] == '*' ? va_arg(*args, int) : at[1] - '0';
        at += 2;
    }
    while (*at == 'l') {
        n_long++;
        at++;
    }
    switch (*at) {
    case 's': {
        const char *text = va_arg(*args, const char *);
        fl_html_text(html, text, strlen(text));
        break;
    }
    case 'd':
        add_whole(html, n_long == 0   ? va_arg(*args, int)
                        : n_long == 1 ? va_arg(*args, long)
                                      : va_arg(*args, long long));
        break;
    case 'f':
        add_real(html, va_arg(*args, double), digits);
        break;
    default:
        assert(*at == '%');
        add_bytes(html, "%", 1);
    }
    return at + 1;
}

void fl_html_add(fl_html *html, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *at = format; *at != '\0';) {
        size_t n = strcspn(at, "%");
        add_bytes(html, at, n);
        at += n;
        if (*at == '%') {
            at = add_directive(html, at + 1, &args);
        }
    }
    va_end(args);
}

/* ---- numbers for people ---- */

const char *fl_html_number(double value, int digits, char text[FL_NUMBER_BYTES])
{
    char plain[FL_NUMBER_BYTES];
    if (!isfinite(value) || fabs(value) > 1e15) {
        snprintf(text, FL_NUMBER_BYTES, "-");
        return text;
    }
    snprintf(plain, sizeof plain, "%.*f", digits, value);
    size_t n_whole = strspn(plain, "-0123456789"), n = 0;
    for (size_t i = 0; plain[i] != '\0' && n + 2 < FL_NUMBER_BYTES; i++) {
        bool split = i > 0 && i < n_whole && (n_whole - i) % 3 == 0 && plain[i - 1] != '-';
        if (split) {
            text[n++] = ',';
        }
        text[n++] = plain[i];
    }
    text[n] = '\0';
    return text;
}

const char *fl_html_duration(double seconds, char text[FL_NUMBER_BYTES])
{
    int64_t whole = isfinite(seconds) && fabs(seconds) < 1e12 ? llround(seconds) : -1;
    if (whole < 0) {
        snprintf(text, FL_NUMBER_BYTES, "-");
    } else if (whole >= 3600) {
        int64_t minutes = (whole + 30) / 60;
        snprintf(text, FL_NUMBER_BYTES, "%lld:%02lld h", (long long)(minutes / 60),
                 (long long)(minutes % 60));
    } else if (whole >= 60) {
        snprintf(text, FL_NUMBER_BYTES, "%lld:%02lld min", (long long)(whole / 60),
                 (long long)(whole % 60));
    } else if (seconds >= 0.1 || seconds <= 0) {
        snprintf(text, FL_NUMBER_BYTES, "%.*f s", seconds >= 10 ? 1 : 2, seconds);
    } else {
        snprintf(text, FL_NUMBER_BYTES, "%.1f ms", seconds * 1000);
    }
    return text;
}
