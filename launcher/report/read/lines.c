#include "launcher/report/read/lines.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct line_reader {
    fl_line_taker *take;
    void *context;
    fl_lines *lines;
    char *buffer; /* [FL_LINE_BYTES_MAX] */
    size_t n;     /* of a line that has no end yet */
    bool skips;   /* the current line is too long */
} line_reader;

static void bad_line(fl_lines *lines, const char *why)
{
    if (lines->n_bad++ == 0) {
        lines->first_bad = lines->n;
        snprintf(lines->why, sizeof lines->why, "%s", why);
    }
}

static fl_status take_line(line_reader *r, const char *text, size_t n, const char *not_json)
{
    json_error_t where;
    bool good = false;
    const char *why = "not an object";
    r->lines->n++;
    json_t *line = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (line == NULL) {
        bad_line(r->lines, not_json == NULL ? where.text : not_json);
        return FL_OK;
    }
    fl_status status = json_is_object(line) ? r->take(r->context, line, &good, &why) : FL_OK;
    if (status == FL_OK && !good) {
        bad_line(r->lines, why);
    }
    json_decref(line);
    return status;
}

/* The lines that are whole in buffer [n]; what is left of the next goes to its begin. */
static fl_status take_whole(line_reader *r)
{
    size_t from = 0;
    for (char *end; (end = memchr(r->buffer + from, '\n', r->n - from)) != NULL;) {
        size_t n = (size_t)(end - r->buffer) - from;
        if (r->skips) {
            r->skips = false;
        } else {
            FL_TRY(take_line(r, r->buffer + from, n, NULL));
        }
        from += n + 1;
    }
    memmove(r->buffer, r->buffer + from, r->n - from);
    r->n -= from;
    return FL_OK;
}

static void skip_long(line_reader *r)
{
    if (!r->skips) {
        r->lines->n++;
        bad_line(r->lines, "longer than any line that a run writes");
    }
    r->skips = true;
    r->n = 0;
}

/* A power failure, or a hole in the file, leaves zeros of any length. What follows the first of
 * them is one bad line, and is not read. */
static fl_status end_at_zeros(line_reader *r, const char *zero)
{
    r->n = (size_t)(zero - r->buffer);
    FL_TRY(take_whole(r));
    r->n = 0;
    r->lines->n++;
    bad_line(r->lines, "zero bytes, behind which nothing is read");
    return FL_OK;
}

static fl_status read_all(line_reader *r, int fd)
{
    for (;;) {
        ssize_t n = read(fd, r->buffer + r->n, FL_LINE_BYTES_MAX - r->n);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            snprintf(r->lines->missing, FL_WHY_BYTES, "%s", strerror(errno));
        }
        if (n <= 0) {
            break;
        }
        const char *zero = memchr(r->buffer + r->n, 0, (size_t)n);
        if (zero != NULL) {
            return end_at_zeros(r, zero);
        }
        r->n += (size_t)n;
        FL_TRY(take_whole(r));
        if (r->n == FL_LINE_BYTES_MAX) {
            skip_long(r);
        }
    }
    return r->n == 0 || r->skips ? FL_OK : take_line(r, r->buffer, r->n, "cut before its end");
}

fl_status fl_lines_read(int dir_fd, const char *name, fl_line_taker *take, void *context,
                        fl_lines *lines)
{
    void *buffer = NULL;
    const char *why;
    *lines = (fl_lines){.name = name};
    int fd = fl_regular_file_open(dir_fd, name, &why);
    if (fd < 0) {
        snprintf(lines->missing, sizeof lines->missing, "%s", why);
        return FL_OK;
    }
    fl_status status = fl_alloc(FL_LINE_BYTES_MAX, &buffer);
    if (status == FL_OK) {
        line_reader r = {.take = take, .context = context, .lines = lines, .buffer = buffer};
        status = read_all(&r, fd);
    }
    fl_free(buffer);
    close(fd);
    return status;
}

/* ---- fields ---- */

double fl_line_real(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    double number = json_is_number(value) ? json_number_value(value) : (double)NAN;
    return fabs(number) <= 1e15 ? number : (double)NAN;
}

int64_t fl_line_whole(const json_t *object, const char *key, int64_t least, int64_t most,
                      int64_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    int64_t number = (int64_t)json_integer_value(value);
    return json_is_integer(value) && number >= least && number <= most ? number : otherwise;
}

const char *fl_line_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}
