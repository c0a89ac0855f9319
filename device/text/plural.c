#include "device/text/plural.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool ends_with(const char *word, const char *end)
{
    size_t n = strlen(word), m = strlen(end);
    return n >= m && strcmp(word + n - m, end) == 0;
}

const char *fl_plural_ending(int64_t n, const char *noun)
{
    if (n == 1) {
        return "";
    }
    bool hisses = ends_with(noun, "tch") || ends_with(noun, "sh") || ends_with(noun, "s") ||
                  ends_with(noun, "x");
    return hisses ? "es" : "s";
}

const char *fl_count(int64_t n, const char *noun, char text[FL_COUNT_BYTES])
{
    snprintf(text, FL_COUNT_BYTES, "%" PRId64 " %s%s", n, noun, fl_plural_ending(n, noun));
    return text;
}

const char *fl_count_range(int first, int n, const char *noun, char text[FL_COUNT_BYTES])
{
    int used = snprintf(text, FL_COUNT_BYTES, "%s%s %d", noun, fl_plural_ending(n, noun), first);
    if (n > 1) {
        snprintf(text + used, FL_COUNT_BYTES - (size_t)used, " .. %d", first + n - 1);
    }
    return text;
}
