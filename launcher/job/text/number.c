#include "launcher/job/text/number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool fl_read_integer(const char *text, int64_t *out)
{
    const char *digit = *text == '-' ? text + 1 : text;
    size_t n = strspn(digit, "0123456789");
    if (n == 0 || digit[n] != '\0' || (n > 1 && digit[0] == '0')) {
        return false;
    }
    errno = 0;
    *out = strtoll(text, NULL, 10);
    return errno == 0;
}

/* The length of a decimal number at the start of text; 0 if there is none. */
static size_t number_length(const char *text)
{
    size_t at = *text == '-' ? 1 : 0;
    size_t whole = strspn(text + at, "0123456789");
    at += whole;
    size_t part = 0;
    if (text[at] == '.') {
        part = strspn(text + at + 1, "0123456789");
        at += part + 1;
    }
    if (whole + part == 0) {
        return 0;
    }
    if (text[at] == 'e' || text[at] == 'E') {
        size_t sign = text[at + 1] == '-' || text[at + 1] == '+' ? 1 : 0;
        size_t digits = strspn(text + at + 1 + sign, "0123456789");
        at += digits == 0 ? 0 : 1 + sign + digits;
    }
    return at;
}

enum { NUMBER_TEXT_MAX = 320 };

/* The number text [length] times 10^by, in decimal: the exponent grows, no digit changes. */
static void shift_point(const char *text, size_t length, int by, char out[NUMBER_TEXT_MAX])
{
    size_t mantissa = strcspn(text, "eE");
    mantissa = mantissa < length ? mantissa : length;
    long exponent = mantissa < length ? strtol(text + mantissa + 1, NULL, 10) : 0;
    exponent = exponent < -9999 ? -9999 : exponent > 9999 ? 9999 : exponent;
    snprintf(out, NUMBER_TEXT_MAX, "%.*se%ld", (int)mantissa, text, exponent + by);
}

/* Set the C locale for this thread while a number is read or written: a program that uses the
 * library may have a locale whose decimal point is a comma. */
static locale_t point_locale(locale_t *made)
{
    *made = newlocale(LC_ALL_MASK, "C", NULL);
    return *made == NULL ? NULL : uselocale(*made);
}

static void restore_locale(locale_t old, locale_t made)
{
    if (made != NULL) {
        uselocale(old);
        freelocale(made);
    }
}

bool fl_read_number(const char *text, double *out, size_t *length)
{
    *length = number_length(text);
    if (*length == 0) {
        return false;
    }
    locale_t made, old = point_locale(&made);
    *out = strtod(text, NULL);
    restore_locale(old, made);
    return true;
}

/* "1e-08" -> "1e-8", "1e+09" -> "1e9". */
static void trim_exponent(char *text)
{
    char *exponent = strchr(text, 'e');
    if (exponent == NULL) {
        return;
    }
    char *to = exponent + (exponent[1] == '-' ? 2 : 1);
    const char *from = exponent + 2;
    from += strspn(from, "0");
    memmove(to, from, strlen(from) + 1);
}

const char *fl_write_number(double value, char *text, size_t size_bytes)
{
    locale_t made, old = point_locale(&made);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, size_bytes, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    if (fabs(value) < 1e6 && value == rint(value)) {
        snprintf(text, size_bytes, "%.0f", value);
    }
    trim_exponent(text);
    restore_locale(old, made);
    return text;
}

bool fl_read_percent(const char *text, double *fraction)
{
    char shifted[NUMBER_TEXT_MAX];
    size_t length = number_length(text);
    if (length == 0 || length > NUMBER_TEXT_MAX / 2 || strcmp(text + length, "%") != 0) {
        return false;
    }
    shift_point(text, length, -2, shifted);
    return fl_read_number(shifted, fraction, &length);
}

const char *fl_write_percent(double fraction, char *text, size_t size_bytes)
{
    char number[NUMBER_TEXT_MAX], shifted[NUMBER_TEXT_MAX];
    double percent = 0, back = 0;
    size_t length = 0;
    text[0] = '\0';
    fl_write_number(fraction, number, sizeof number);
    shift_point(number, strlen(number), 2, shifted);
    if (fl_read_number(shifted, &percent, &length)) {
        fl_write_number(percent, number, sizeof number);
        snprintf(text, size_bytes, "%s%%", number);
    }
    if (!fl_read_percent(text, &back) || back != fraction) {
        snprintf(text, size_bytes, "%s%%", shifted); /* "0.123...e2%": exact, though unusual */
    }
    return text;
}
