#include "support/formats/markup.h"

#include "device/text/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { DEPTH_MAX = 64, NAME_MAX_BYTES = 32, ATTRIBUTES_MAX = 16 };

typedef struct reader {
    const char *text, *at, *end;
    char open[DEPTH_MAX][NAME_MAX_BYTES];
    int depth, n;
} reader;

static void refuse(const reader *r, const char *why)
{
    int left = (int)(r->end - r->at);
    fail_msg("byte %d: %s: %.*s", (int)(r->at - r->text), why, left < 60 ? left : 60, r->at);
}

static bool starts(const reader *r, const char *with)
{
    size_t n = strlen(with);
    return (size_t)(r->end - r->at) >= n && memcmp(r->at, with, n) == 0;
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}

static void read_name(reader *r, char name[NAME_MAX_BYTES])
{
    int n = 0;
    while (r->at < r->end && is_name(*r->at) && n < NAME_MAX_BYTES - 1) {
        name[n++] = *r->at++;
    }
    name[n] = '\0';
    if (n == 0) {
        refuse(r, "a name is missing");
    }
}

static void read_entity(reader *r)
{
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
    for (int i = 0; i < 5; i++) {
        if (starts(r, known[i])) {
            r->at += strlen(known[i]);
            return;
        }
    }
    refuse(r, "an unknown entity");
}

/* Text up to one of the two characters. */
static void read_text(reader *r, char end, char other)
{
    while (r->at < r->end && *r->at != end && *r->at != other) {
        uint32_t code = 0;
        size_t n = fl_utf8_next(r->at, (size_t)(r->end - r->at), &code);
        if (n == 0 || (code < 0x20 && code != '\n' && code != '\t') || code == 0x7F) {
            refuse(r, "no character of a page");
        }
        if (code == '&') {
            read_entity(r);
        } else if (code == '<') {
            refuse(r, "a '<' within an attribute");
        } else {
            r->at += n;
        }
    }
}

static void read_attribute(reader *r, char seen[ATTRIBUTES_MAX][NAME_MAX_BYTES], int *n)
{
    static const char *const refused[] = {"href", "src", "style", "action", "data"};
    char *name = seen[*n];
    read_name(r, name);
    for (int i = 0; i < *n; i++) {
        if (strcmp(seen[i], name) == 0) {
            refuse(r, "an attribute given twice");
        }
    }
    for (int i = 0; i < 5; i++) {
        if (strcmp(name, refused[i]) == 0 || strncmp(name, "on", 2) == 0) {
            refuse(r, "an attribute that loads or runs");
        }
    }
    if (!starts(r, "=\"")) {
        refuse(r, "an attribute without a quoted value");
    }
    r->at += 2;
    read_text(r, '"', '"');
    if (r->at++ == r->end || ++*n == ATTRIBUTES_MAX) {
        refuse(r, "an attribute without an end");
    }
}

static void open_tag(reader *r)
{
    static const char *const refused[] = {"script", "iframe", "object", "embed", "link",
                                          "img",    "base",   "form",   "a",     "foreignObject"};
    char seen[ATTRIBUTES_MAX][NAME_MAX_BYTES];
    int n = 0;
    r->at++;
    if (r->depth == DEPTH_MAX) {
        refuse(r, "too deep");
    }
    read_name(r, r->open[r->depth]);
    for (int i = 0; i < 10; i++) {
        if (strcmp(r->open[r->depth], refused[i]) == 0) {
            refuse(r, "an element that loads or runs");
        }
    }
    while (starts(r, " ")) {
        r->at++;
        read_attribute(r, seen, &n);
    }
    r->n++;
    if (starts(r, "/>")) {
        r->at += 2;
    } else if (starts(r, ">")) {
        r->at++;
        r->depth++;
    } else {
        refuse(r, "a tag without an end");
    }
}

static void close_tag(reader *r)
{
    char name[NAME_MAX_BYTES];
    r->at += 2;
    read_name(r, name);
    if (r->depth == 0 || strcmp(r->open[r->depth - 1], name) != 0) {
        refuse(r, "closes what is not open");
    }
    if (!starts(r, ">")) {
        refuse(r, "a closing tag without an end");
    }
    r->at++;
    r->depth--;
}

int markup_check(const char *text, size_t n)
{
    reader r = {.text = text, .at = text, .end = text + n};
    if (!starts(&r, "<!DOCTYPE html>\n")) {
        refuse(&r, "no doctype");
    }
    r.at += strlen("<!DOCTYPE html>\n");
    do {
        if (starts(&r, "</")) {
            close_tag(&r);
        } else if (starts(&r, "<")) {
            open_tag(&r);
        } else {
            read_text(&r, '<', '<');
        }
    } while (r.depth > 0 && r.at < r.end);
    if (r.depth > 0 || r.end - r.at > 1) {
        refuse(&r, "the page does not end with its element");
    }
    return r.n;
}
