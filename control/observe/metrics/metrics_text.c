#include "control/observe/metrics/metrics_text.h"

#include "control/events/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void put_bytes(fl__metrics_text *o, const char *bytes, size_t n)
{
    if (o->n + 1 < o->size) {
        size_t room = o->size - 1 - o->n, fits = n < room ? n : room;
        memcpy(o->text + o->n, bytes, fits);
        o->text[o->n + fits] = 0;
    }
    o->n += n;
}

static void put_text(fl__metrics_text *o, const char *text)
{
    put_bytes(o, text, strlen(text));
}

void fl__metrics_family(fl__metrics_text *o, const char *name, const char *type, const char *help)
{
    const char *const parts[] = {"# HELP ", name, " ", help, "\n# TYPE ", name, " ", type, "\n"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        put_text(o, parts[i]);
    }
}

/* Escape a label's value: backslash, quote and newline. */
static void put_value(fl__metrics_text *o, const char *value)
{
    for (const char *c = value; *c != 0; c++) {
        if (*c == '\\' || *c == '"') {
            put_bytes(o, "\\", 1);
            put_bytes(o, c, 1);
        } else if (*c == '\n') {
            put_bytes(o, "\\n", 2);
        } else {
            put_bytes(o, c, 1);
        }
    }
}

/* labels: name, value, ..., NULL; then the sample's value. */
static void begin_sample(fl__metrics_text *o, const char *name, const char *const *labels)
{
    put_text(o, name);
    for (int i = 0; labels != NULL && labels[i] != NULL; i += 2) {
        put_text(o, i == 0 ? "{" : ",");
        put_text(o, labels[i]);
        put_text(o, "=\"");
        put_value(o, labels[i + 1]);
        put_text(o, "\"");
    }
    put_text(o, labels != NULL && labels[0] != NULL ? "} " : " ");
}

void fl__metrics_real(fl__metrics_text *o, const char *name, const char *const *labels,
                      double value)
{
    char digits[FL_JSON_DECIMAL_MAX];
    begin_sample(o, name, labels);
    put_text(o, fl_json_decimal(value, digits));
    put_text(o, "\n");
}

void fl__metrics_integer(fl__metrics_text *o, const char *name, const char *const *labels,
                         int64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%" PRId64, value);
    begin_sample(o, name, labels);
    put_text(o, digits);
    put_text(o, "\n");
}

void fl__metrics_counter(fl__metrics_text *o, const char *name, const char *help, int64_t value)
{
    fl__metrics_family(o, name, "counter", help);
    fl__metrics_integer(o, name, NULL, value);
}

void fl__metrics_gauge(fl__metrics_text *o, const char *name, const char *help, int64_t value)
{
    fl__metrics_family(o, name, "gauge", help);
    fl__metrics_integer(o, name, NULL, value);
}

/* Left out while unknown. */
void fl__metrics_level(fl__metrics_text *o, const char *name, const char *help, double value)
{
    if (isfinite(value)) {
        fl__metrics_family(o, name, "gauge", help);
        fl__metrics_real(o, name, NULL, value);
    }
}

/* A summary without quantiles: count and sum. */
void fl__metrics_summary(fl__metrics_text *o, const char *name, const char *help, double sum,
                         int64_t count)
{
    char part[64];
    fl__metrics_family(o, name, "summary", help);
    snprintf(part, sizeof part, "%s_sum", name);
    fl__metrics_real(o, part, NULL, sum);
    snprintf(part, sizeof part, "%s_count", name);
    fl__metrics_integer(o, part, NULL, count);
}
