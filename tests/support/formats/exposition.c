#include "support/formats/exposition.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct reader {
    const char *line; /* the current one, for messages */
    exposition *e;
    bool typed; /* the newest family has its type */
} reader;

static void demand(const reader *r, bool holds, const char *what)
{
    if (!holds) {
        fail_msg("%s: %.*s", what, (int)strcspn(r->line, "\n"), r->line);
    }
}

static size_t name_length(const char *text, bool colon)
{
    size_t n = 0;
    while (isalpha((unsigned char)text[n]) || text[n] == '_' || (colon && text[n] == ':') ||
           (n > 0 && isdigit((unsigned char)text[n]))) {
        n++;
    }
    return n;
}

static const char *take_name(const reader *r, const char *at, char *name)
{
    size_t n = name_length(at, true);
    demand(r, n > 0 && n < EXPOSITION_NAME, "no name of a metric");
    memcpy(name, at, n);
    name[n] = 0;
    return at + n;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* ---- comments ---- */

static void read_help(reader *r, const char *at)
{
    char name[EXPOSITION_NAME];
    at = take_name(r, at, name);
    size_t n = strcspn(at, "\n");
    demand(r, at[0] == ' ' && n > 2 && n < sizeof r->e->family[0].help, "no help");
    demand(r, r->e->n_families == 0 || r->typed, "the family before has no type");
    for (int i = 0; i < r->e->n_families; i++) {
        demand(r, strcmp(r->e->family[i].name, name) != 0, "a family twice");
    }
    demand(r, r->e->n_families < EXPOSITION_FAMILIES, "too many families");
    exposition_family *f = &r->e->family[r->e->n_families++];
    snprintf(f->name, sizeof f->name, "%s", name);
    snprintf(f->help, sizeof f->help, "%.*s", (int)n - 1, at + 1);
    r->typed = false;
}

/* Names have base units, and the names of counters, and of nothing else, end with _total. */
static void check_convention(const reader *r, const exposition_family *f)
{
    static const char *const wrong[] = {"_ms",      "_us",    "_milliseconds", "_microseconds",
                                        "_kib",     "_mib",   "_mb",           "_percent",
                                        "_minutes", "_count", "_sum",          "_info_total"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        demand(r, !ends_with(f->name, wrong[i]), "an unusual unit or ending");
    }
    demand(r, ends_with(f->name, "_total") == (strcmp(f->type, "counter") == 0),
           "_total belongs to counters, and to all of them");
}

static void read_type(reader *r, const char *at)
{
    char name[EXPOSITION_NAME];
    at = take_name(r, at, name);
    demand(r, r->e->n_families > 0 && !r->typed, "a type without a help before it");
    exposition_family *f = &r->e->family[r->e->n_families - 1];
    demand(r, strcmp(f->name, name) == 0, "a type of another family than the help");
    size_t n = strcspn(at, "\n");
    demand(r, at[0] == ' ' && n < sizeof f->type, "no type");
    snprintf(f->type, sizeof f->type, "%.*s", (int)n - 1, at + 1);
    demand(r,
           strcmp(f->type, "counter") == 0 || strcmp(f->type, "gauge") == 0 ||
               strcmp(f->type, "summary") == 0,
           "another type than a counter, a gauge or a summary");
    check_convention(r, f);
    r->typed = true;
}

/* ---- samples ---- */

/* at: behind the brace. Returns what is behind the closing one. */
static const char *read_labels(const reader *r, const char *at, exposition_sample *s)
{
    const char *begin = at;
    bool more = true;
    while (more) {
        size_t n = name_length(at, false);
        demand(r, n > 0 && strncmp(at, "__", 2) != 0, "no name of a label");
        at += n;
        demand(r, at[0] == '=' && at[1] == '"', "no value of a label");
        for (at += 2; *at != '"'; at++) {
            demand(r, *at != 0 && *at != '\n', "a label that does not end");
            if (*at == '\\') {
                at++;
                demand(r, *at == '\\' || *at == '"' || *at == 'n', "an unknown escape");
            }
        }
        at++;
        more = *at == ',';
        at += more;
    }
    demand(r, *at == '}', "labels that do not end");
    demand(r, (size_t)(at - begin) < sizeof s->labels, "long labels");
    snprintf(s->labels, sizeof s->labels, "%.*s", (int)(at - begin), begin);
    return at + 1;
}

static void check_member(const reader *r, const exposition_sample *s)
{
    const exposition_family *f = &r->e->family[r->e->n_families - 1];
    char sum[EXPOSITION_NAME + 8], count[EXPOSITION_NAME + 8];
    snprintf(sum, sizeof sum, "%s_sum", f->name);
    snprintf(count, sizeof count, "%s_count", f->name);
    bool is_part = strcmp(s->name, sum) == 0 || strcmp(s->name, count) == 0;
    bool summary = strcmp(f->type, "summary") == 0;
    demand(r, summary ? is_part : strcmp(s->name, f->name) == 0, "no sample of the family above");
    demand(r, strcmp(f->type, "counter") != 0 || (isfinite(s->value) && s->value >= 0.0),
           "a counter below 0");
}

static void read_sample(reader *r, const char *at)
{
    demand(r, r->e->n_families > 0 && r->typed, "a sample before its help and type");
    demand(r, r->e->n_samples < EXPOSITION_SAMPLES, "too many samples");
    exposition_sample *s = &r->e->sample[r->e->n_samples];
    at = take_name(r, at, s->name);
    s->labels[0] = 0;
    if (*at == '{') {
        at = read_labels(r, at + 1, s);
    }
    demand(r, at[0] == ' ' && at[1] != ' ', "no value");
    char *end = NULL;
    s->value = strtod(at + 1, &end);
    demand(r, end != at + 1 && *end == '\n', "no number, or something behind it");
    demand(r, exposition_find(r->e, s->name, s->labels) == NULL, "a sample twice");
    check_member(r, s);
    r->e->n_samples++;
}

exposition *exposition_read(const char *text)
{
    reader r = {.e = calloc(1, sizeof(exposition))};
    assert_non_null(r.e);
    for (r.line = text; *r.line != 0; r.line = strchr(r.line, '\n') + 1) {
        demand(&r, strchr(r.line, '\n') != NULL, "the last line does not end");
        if (strncmp(r.line, "# HELP ", 7) == 0) {
            read_help(&r, r.line + 7);
        } else if (strncmp(r.line, "# TYPE ", 7) == 0) {
            read_type(&r, r.line + 7);
        } else {
            read_sample(&r, r.line);
        }
    }
    assert_true(r.e->n_samples > 0);
    return r.e;
}

const exposition_sample *exposition_find(const exposition *e, const char *name, const char *labels)
{
    for (int i = 0; i < e->n_samples; i++) {
        if (strcmp(e->sample[i].name, name) == 0 && strcmp(e->sample[i].labels, labels) == 0) {
            return &e->sample[i];
        }
    }
    return NULL;
}

double exposition_value(const exposition *e, const char *name, const char *labels)
{
    const exposition_sample *s = exposition_find(e, name, labels);
    if (s == NULL) {
        fail_msg("no sample %s{%s}", name, labels);
    }
    return s == NULL ? 0.0 : s->value;
}
