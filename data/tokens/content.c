#include "data/tokens/content.h"

#include "data/source.h"
#include "device/system/alloc.h"
#include "device/text/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20, WORD_BYTES = 8 };

static const char byte_order_mark[] = "\xEF\xBB\xBF";

/* ---- reading ---- */

/* State of reading one file. */
typedef struct content_reader {
    const char *path;
    void *memory;
    size_t n, room;
    size_t line_begin;
    int64_t line; /* the number of the line that begins there */
    size_t line_bytes_max;
    fl_memory_share share;
} content_reader;

/* The lines that end in the bytes from `at` on, and the one that has no end yet. */
static fl_status check_lines(content_reader *r, size_t at)
{
    const char *bytes = r->memory;
    for (;;) {
        for (; at < r->n && bytes[at] == '\n' && at == r->line_begin; at++) { /* empty lines */
            r->line_begin++;
            r->line++;
        }
        const char *end = memchr(bytes + at, '\n', r->n - at);
        size_t n = (end == NULL ? r->n : (size_t)(end - bytes)) - r->line_begin;
        if (n > r->line_bytes_max) {
            return fl_fail(FL_EFORMAT,
                           "%s: line %" PRId64 ": at least %zu bytes found, at most %zu "
                           "allowed in a line",
                           r->path, r->line, n, r->line_bytes_max);
        }
        if (end == NULL) {
            return FL_OK;
        }
        at = (size_t)(end - bytes) + 1;
        r->line_begin = at;
        r->line++;
    }
}

static fl_status read_all(content_reader *r, fl__source *source)
{
    size_t got = CHUNK_BYTES;
    while (got == CHUNK_BYTES) {
        size_t before = r->n;
        FL_TRY(fl__memory_share_check(&r->share, r->path, r->line, r->n + CHUNK_BYTES));
        FL_TRY(fl_alloc_room(&r->memory, r->n, CHUNK_BYTES, 1, &r->room));
        FL_TRY(fl__source_take(source, (uint8_t *)r->memory + r->n, CHUNK_BYTES, &got));
        r->n += got;
        FL_TRY(check_lines(r, before));
    }
    return fl__source_expect_end(source);
}

/* ---- checks ---- */

int64_t fl__content_line(const fl_content *content, size_t at)
{
    int64_t line = 1;
    for (size_t i = 0; i < at; i++) {
        line += content->bytes[i] == '\n';
    }
    return line;
}

/* "FILE: line 3, byte 7", bytes counted from 1. */
static fl_status refuse_byte(const fl_content *c, size_t at, const char *found, const char *allowed)
{
    size_t begin = at;
    while (begin > 0 && c->bytes[begin - 1] != '\n') {
        begin--;
    }
    return fl_fail(FL_EFORMAT, "%s: line %" PRId64 ", byte %zu: %s found, %s", c->path,
                   fl__content_line(c, at), at - begin + 1, found, allowed);
}

/* The number of ASCII bytes at the beginning, in steps of a word. */
static size_t skip_ascii(const char *bytes, size_t n)
{
    size_t at = 0;
    for (uint64_t word; at + WORD_BYTES <= n; at += WORD_BYTES) {
        memcpy(&word, bytes + at, WORD_BYTES);
        if ((word & UINT64_C(0x8080808080808080)) != 0) {
            break;
        }
    }
    return at;
}

static fl_status check_utf8(const fl_content *c)
{
    uint32_t code;
    for (size_t at = 0, size; at < c->n_bytes; at += size) {
        at += skip_ascii(c->bytes + at, c->n_bytes - at);
        if (at == c->n_bytes) {
            break;
        }
        size = fl_utf8_next(c->bytes + at, c->n_bytes - at, &code);
        if (size == 0) {
            char found[8];
            snprintf(found, sizeof found, "0x%02X", (unsigned char)c->bytes[at]);
            return refuse_byte(c, at, found,
                               "text in UTF-8 allowed; iconv converts other encodings");
        }
    }
    return FL_OK;
}

static fl_status check_text(const fl_content *c)
{
    if (c->n_bytes == 0) {
        return fl_fail(FL_EFORMAT, "%s: an empty file found, text allowed", c->path);
    }
    /* Text in UTF-16 has zero bytes too; its first bytes give the better message. */
    FL_TRY(check_utf8(c));
    const char *zero = memchr(c->bytes, '\0', c->n_bytes);
    return zero == NULL ? FL_OK
                        : refuse_byte(c, (size_t)(zero - c->bytes), "a zero byte", "text allowed");
}

static fl_status fill_content(const char *path, fl__source *source, size_t line_bytes_max,
                              fl_content *out)
{
    content_reader r = {
        .path = path, .line = 1, .line_bytes_max = line_bytes_max, .share = out->share};
    fl_status status = read_all(&r, source);
    out->memory = r.memory;
    out->bytes = r.memory;
    out->n_bytes = r.n;
    if (status != FL_OK) {
        return status;
    }
    size_t mark = sizeof byte_order_mark - 1;
    if (r.n >= mark && memcmp(out->bytes, byte_order_mark, mark) == 0) {
        out->bytes += mark;
        out->n_bytes -= mark;
    }
    return check_text(out);
}

static fl_status take_source(const char *path, fl__source *source, size_t line_bytes_max,
                             fl_content *out)
{
    fl_content content = {.path = path, .share = fl__memory_share_take()};
    fl_status status = fill_content(path, source, line_bytes_max, &content);
    fl__source_fini(source);
    if (status == FL_OK) {
        *out = content;
    } else {
        fl__content_fini(&content);
    }
    return fl__memory_name_file(status, path);
}

fl_status fl__content_read(const char *path, size_t line_bytes_max, fl_content *out)
{
    fl__source source;
    FL_TRY(fl__memory_name_file(fl__source_open(path, &source), path));
    return take_source(path, &source, line_bytes_max, out);
}

fl_status fl__content_copy(const char *name, const void *file, size_t file_bytes,
                           size_t line_bytes_max, fl_content *out)
{
    fl__source source;
    FL_TRY(fl__source_open_memory(name, file, file_bytes, &source));
    return take_source(name, &source, line_bytes_max, out);
}

void fl__content_fini(fl_content *content)
{
    fl_free(content->memory);
    *content = (fl_content){0};
}
