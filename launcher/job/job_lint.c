/* Refuses bad input before a job file is interpreted: ① bytes, ② the stream of YAML events. */
#include "device/text/utf8.h"
#include "launcher/job/job.h"
#include "launcher/job/text/text.h"

#include <string.h>
#include <yaml.h>

enum { DEPTH_MAX = 8 };

typedef struct text_place {
    const char *name;
    size_t line, column; /* from 1 */
} text_place;

static fl_status refuse_char(const text_place *p, const char *text, size_t size, uint32_t code)
{
    if (size == 0) {
        return fl_fail(FL_EINVAL, "%s:%zu:%zu: yaml: found byte 0x%02X, allowed: text in UTF-8",
                       p->name, p->line, p->column, (unsigned)(unsigned char)text[0]);
    }
    return fl_fail(FL_EINVAL, "%s:%zu:%zu: yaml: found character U+%04X, allowed: printable text",
                   p->name, p->line, p->column, (unsigned)code);
}

/* ① */
static fl_status screen_bytes(const char *name, const char *text, size_t size_bytes)
{
    text_place p = {.name = name, .line = 1, .column = 1};
    bool indenting = true;
    bool has_mark = size_bytes >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0;
    for (size_t i = has_mark ? 3 : 0, size; i < size_bytes; i += size) {
        uint32_t code = 0;
        size = fl_utf8_next(text + i, size_bytes - i, &code);
        if (size == 0 || !fl_char_is_printable(code)) {
            return refuse_char(&p, text + i, size, code);
        }
        if (code == '\t' && indenting) {
            return fl_fail(FL_EINVAL,
                           "%s:%zu:%zu: yaml: found a tab in the indentation, allowed: spaces",
                           name, p.line, p.column);
        }
        bool ends_line =
            code == '\n' || (code == '\r' && (i + 1 == size_bytes || text[i + 1] != '\n'));
        indenting = ends_line || (indenting && (code == ' ' || code == '\r'));
        p.line += ends_line ? 1 : 0;
        p.column = ends_line ? 1 : p.column + 1;
    }
    return FL_OK;
}

static fl_status refuse_event(const char *name, const yaml_mark_t *mark, const char *what)
{
    return fl_fail(FL_EINVAL, "%s:%zu:%zu: yaml: %s", name, mark->line + 1, mark->column + 1, what);
}

static fl_status syntax_error(const char *name, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR) {
        return fl_fail(FL_ENOMEM, "%s: out of memory", name);
    }
    fl_status status = refuse_event(name, &parser->problem_mark,
                                    parser->problem == NULL ? "cannot be read" : parser->problem);
    if (parser->context == NULL) {
        return status;
    }
    return fl_fail(status, "%s, %s (from line %zu)", fl_errmsg(), parser->context,
                   parser->context_mark.line + 1);
}

static bool has_anchor(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor != NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor != NULL;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static bool has_tag(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.tag != NULL;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.tag != NULL;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.tag != NULL;
    default:
        return false;
    }
}

static fl_status screen_event(const char *name, const yaml_event_t *event, int *depth,
                              int *n_documents)
{
    const yaml_mark_t *mark = &event->start_mark;
    if (has_anchor(event)) {
        return refuse_event(name, mark, "found an anchor or alias, allowed: values written out");
    }
    if (has_tag(event)) {
        return refuse_event(name, mark, "found a tag, allowed: plain values");
    }
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (++*n_documents > 1) {
            return refuse_event(name, mark, "found a second document, allowed: one job a file");
        }
        break;
    case YAML_MAPPING_START_EVENT:
    case YAML_SEQUENCE_START_EVENT:
        if (++*depth > DEPTH_MAX) {
            return refuse_event(name, mark, "found deep nesting, allowed: fields within sections");
        }
        break;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        --*depth;
        break;
    default:
        break;
    }
    return FL_OK;
}

/* ② */
static fl_status screen_events(const char *name, yaml_parser_t *parser)
{
    int depth = 0, n_documents = 0;
    for (bool more = true; more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event)) {
            return syntax_error(name, parser);
        }
        fl_status status = screen_event(name, &event, &depth, &n_documents);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        FL_TRY(status);
    }
    return FL_OK;
}

fl_status fl_job_screen(const char *name, const char *text, size_t size_bytes)
{
    if (size_bytes > FL_JOB_FILE_MAX) {
        return fl_fail(FL_EINVAL, "%s: yaml: found more than %d bytes, allowed: at most as many",
                       name, FL_JOB_FILE_MAX);
    }
    FL_TRY(screen_bytes(name, text, size_bytes));
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        return fl_fail(FL_ENOMEM, "%s: out of memory", name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
    fl_status status = screen_events(name, &parser);
    yaml_parser_delete(&parser);
    return status;
}
