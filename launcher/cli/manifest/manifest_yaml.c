#include "launcher/cli/manifest/manifest_yaml.h"

#include "device/system/alloc.h"

#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <yaml.h>

struct fl_yaml_writer {
    yaml_emitter_t emitter;
    bool failed;
};

/* An event that could not be made is zeros, which the emitter refuses. */
static void emit(fl_yaml_writer *w, int made, yaml_event_t *event)
{
    if (!made || w->failed || !yaml_emitter_emit(&w->emitter, event)) {
        w->failed = true;
    }
}

fl_status fl_yaml_writer_create(FILE *stream, fl_yaml_writer **out)
{
    void *memory = NULL;
    yaml_event_t event;
    FL_TRY(fl_alloc(sizeof(fl_yaml_writer), &memory));
    fl_yaml_writer *w = memory;
    if (!yaml_emitter_initialize(&w->emitter)) {
        fl_free(memory);
        return fl_fail(FL_ENOMEM, "out of memory");
    }
    yaml_emitter_set_output_file(&w->emitter, stream);
    yaml_emitter_set_width(&w->emitter, -1);
    yaml_emitter_set_unicode(&w->emitter, 1);
    emit(w, yaml_stream_start_event_initialize(&event, YAML_UTF8_ENCODING), &event);
    *out = w;
    return FL_OK;
}

void fl_yaml_writer_destroy(fl_yaml_writer **writer)
{
    if (*writer != NULL) {
        yaml_emitter_delete(&(*writer)->emitter);
        fl_free(*writer);
        *writer = NULL;
    }
}

void fl_yaml_document(fl_yaml_writer *w)
{
    yaml_event_t event;
    emit(w, yaml_document_start_event_initialize(&event, NULL, NULL, NULL, 0), &event);
}

void fl_yaml_document_end(fl_yaml_writer *w)
{
    yaml_event_t event;
    emit(w, yaml_document_end_event_initialize(&event, 1), &event);
}

static void put_scalar(fl_yaml_writer *w, const char *text, bool quoted, yaml_scalar_style_t style)
{
    yaml_event_t event;
    emit(w,
         yaml_scalar_event_initialize(&event, NULL, NULL, (const yaml_char_t *)text,
                                      (int)strlen(text), !quoted, quoted, style),
         &event);
}

/* Keys are names of fields, which are plain. */
static void put_key(fl_yaml_writer *w, const char *key)
{
    if (key != NULL) {
        put_scalar(w, key, false, YAML_PLAIN_SCALAR_STYLE);
    }
}

void fl_yaml_map(fl_yaml_writer *w, const char *key)
{
    yaml_event_t event;
    put_key(w, key);
    emit(w, yaml_mapping_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_MAPPING_STYLE),
         &event);
}

void fl_yaml_map_end(fl_yaml_writer *w)
{
    yaml_event_t event;
    emit(w, yaml_mapping_end_event_initialize(&event), &event);
}

void fl_yaml_list(fl_yaml_writer *w, const char *key)
{
    yaml_event_t event;
    put_key(w, key);
    emit(w, yaml_sequence_start_event_initialize(&event, NULL, NULL, 1, YAML_BLOCK_SEQUENCE_STYLE),
         &event);
}

void fl_yaml_list_end(fl_yaml_writer *w)
{
    yaml_event_t event;
    emit(w, yaml_sequence_end_event_initialize(&event), &event);
}

/* Letters, points, slashes, ... : what no reader of YAML takes for a number, a boolean or null. */
static bool is_plain(const char *text)
{
    static const char *const words[] = {"true", "false", "null", "yes", "no",
                                        "on",   "off",   "y",    "n"};
    bool word = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        word = word || strcasecmp(text, words[i]) == 0;
    }
    return !word && strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") > 0 &&
           text[strspn(
               text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./")] == '\0';
}

void fl_yaml_text(fl_yaml_writer *w, const char *key, const char *text)
{
    bool plain = is_plain(text);
    put_key(w, key);
    put_scalar(w, text, !plain, plain ? YAML_PLAIN_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

/* Whether each line of the text ends with "\n" for every reader. Those of YAML 1.1 break lines at
 * NEL, LS and PS, too, and read "\r" and "\r\n" as "\n". */
static bool has_plain_lines(const char *text)
{
    static const char *const breaks[] = {"\r", "\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9"};
    bool plain = true;
    for (size_t i = 0; i < sizeof breaks / sizeof *breaks; i++) {
        plain = plain && strstr(text, breaks[i]) == NULL;
    }
    return plain;
}

void fl_yaml_lines(fl_yaml_writer *w, const char *key, const char *text)
{
    bool plain = has_plain_lines(text);
    put_key(w, key);
    put_scalar(w, text, true, plain ? YAML_LITERAL_SCALAR_STYLE : YAML_DOUBLE_QUOTED_SCALAR_STYLE);
}

void fl_yaml_integer(fl_yaml_writer *w, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_key(w, key);
    put_scalar(w, text, false, YAML_PLAIN_SCALAR_STYLE);
}

void fl_yaml_boolean(fl_yaml_writer *w, const char *key, bool value)
{
    put_key(w, key);
    put_scalar(w, value ? "true" : "false", false, YAML_PLAIN_SCALAR_STYLE);
}

fl_status fl_yaml_finish(fl_yaml_writer *w)
{
    yaml_event_t event;
    emit(w, yaml_stream_end_event_initialize(&event), &event);
    w->failed = !yaml_emitter_flush(&w->emitter) || w->failed;
    return w->failed ? fl_fail(FL_EIO, "the manifest could not be written") : FL_OK;
}
