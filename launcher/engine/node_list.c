/* Lists of hosts as Slurm writes them:
 *
 *     list    name | name , list
 *     name    text | text [ ranges ] text ...     each bracket multiplies, the last one runs
 * fastest ranges  7 | 1-3 | 08-11 , ...               with as many digits as the first number has
 */
#include "launcher/engine/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MAX = 9, HOSTS_MAX = 1 << 20 };

/* One range; n: how many numbers. */
typedef struct number_range {
    long first, n;
    int width;
} number_range;

/* The digits at *text; false without any, or with too many. */
static bool read_digits(const char **text, long *value, int *width)
{
    *width = (int)strspn(*text, "0123456789");
    *value = strtol(*text, NULL, 10);
    *text += *width;
    return *width > 0 && *width <= DIGITS_MAX;
}

static bool read_range(const char **text, number_range *out)
{
    long last;
    int width;
    if (!read_digits(text, &out->first, &out->width)) {
        return false;
    }
    last = out->first;
    if (**text == '-') {
        (*text)++;
        if (!read_digits(text, &last, &width)) {
            return false;
        }
    }
    out->n = last - out->first + 1;
    return out->n > 0 && out->n <= HOSTS_MAX;
}

/* A bracket at *text, of which the i-th number goes to `number` (i -1: none); returns how many it
 * has, or -1. */
static long read_bracket(const char **text, long i, char number[DIGITS_MAX + 1])
{
    long n = 0;
    for ((*text)++;; (*text)++) { /* at [ or at , */
        number_range r;
        if (!read_range(text, &r)) {
            return -1;
        }
        if (i >= n && i < n + r.n) {
            snprintf(number, DIGITS_MAX + 1, "%0*ld", r.width, (r.first + i - n) % 1000000000L);
        }
        n += r.n;
        if (**text != ',' || n > HOSTS_MAX) {
            break;
        }
    }
    if (**text != ']' || n > HOSTS_MAX) {
        return -1;
    }
    (*text)++;
    return n;
}

/* How many hosts the name at *text stands for, or -1; *text is then behind it. */
static long count_name(const char **text)
{
    char unused[DIGITS_MAX + 1];
    long n = 1;
    if (**text == '\0' || **text == ',') {
        return -1;
    }
    while (**text != '\0' && **text != ',') {
        if (**text == ']') {
            return -1;
        }
        if (**text != '[') {
            (*text)++;
            continue;
        }
        long of_bracket = read_bracket(text, -1, unused);
        if (of_bracket < 0 || n * of_bracket > HOSTS_MAX) {
            return -1;
        }
        n *= of_bracket;
    }
    return n;
}

/* The i-th of the n hosts that the name stands for. */
static bool write_name(const char *text, long i, long n, char name[FL_ENGINE_TEXT])
{
    size_t used = 0;
    while (*text != '\0' && *text != ',') {
        char number[DIGITS_MAX + 1] = {*text, '\0'};
        if (*text == '[') {
            const char *after = text;
            n /= read_bracket(&after, -1, number);
            (void)read_bracket(&text, i / n, number);
            i %= n;
        } else {
            text++;
        }
        size_t length = strlen(number);
        if (used + length >= FL_ENGINE_TEXT) {
            return false;
        }
        memcpy(name + used, number, length + 1);
        used += length;
    }
    return true;
}

/* The i-th host's name (name NULL: of none); returns how many there are, or -1. */
static long walk(const char *list, long i, char name[FL_ENGINE_TEXT], bool *found)
{
    long n = 0;
    *found = false;
    while (true) {
        const char *begin = list;
        long of_name = count_name(&list);
        if (of_name < 0 || n + of_name > HOSTS_MAX) {
            return -1;
        }
        if (name != NULL && i >= n && i < n + of_name) {
            *found = write_name(begin, i - n, of_name, name);
        }
        n += of_name;
        if (*list == '\0') {
            return n;
        }
        list++;
    }
}

bool fl_node_list_get(const char *list, int i, char name[FL_ENGINE_TEXT])
{
    bool found;
    return walk(list, i, name, &found) >= 0 && found;
}

int fl_node_list_count(const char *list)
{
    bool found;
    return (int)walk(list, -1, NULL, &found);
}
