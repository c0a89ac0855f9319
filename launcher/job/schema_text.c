/* Texts from the table of fields: the resolved job, the reference file, the docs page. */
#include "launcher/job/schema/schema.h"

#include <string.h>

static fl_status flushed(FILE *stream)
{
    if (fflush(stream) != 0 || ferror(stream)) {
        return fl_fail(FL_EIO, "the job could not be written");
    }
    return FL_OK;
}

typedef void write_field(FILE *stream, const fl_field *field, const char *indent, const void *of);
typedef void write_section(FILE *stream, const fl_section *section);

/* Every field in the order of the table, below its section's line. */
static void each_field(FILE *stream, write_section *section, write_field *field, const void *of)
{
    for (int s = -1; s < fl_schema_n_sections(); s++) {
        const char *name = s < 0 ? "" : fl_schema_section(s)->name;
        if (s >= 0) {
            section(stream, fl_schema_section(s));
        }
        for (int i = 0; i < fl_schema_n_fields(); i++) {
            if (fl_field_is_in(fl_schema_field(i), name)) {
                field(stream, fl_schema_field(i), s < 0 ? "" : "  ", of);
            }
        }
    }
}

static void job_section(FILE *stream, const fl_section *section)
{
    fprintf(stream, "%s:\n", section->name);
}

/* Whether a field does not apply: for a program's own model and data set, and for a folder that
 * describes the model itself, fields that describe a built-in model or files have no meaning. */
static bool is_without_meaning(const fl_field *field, const fl_job *job)
{
    static const char *const model[] = {"model.plugin", "model.path", "model.dropout",
                                        "model.blocks", "model.dim",  "model.heads",
                                        "model.patch"};
    enum { N_OF_BOTH = 3 }; /* the others are what a folder describes */
    static const char *const data[] = {"data.path",   "data.crop",      "data.text",
                                       "data.pair",   "data.label",     "data.max_tokens",
                                       "data.stride", "data.tokenizer", "data.size"};
    bool is = false;
    for (size_t i = 0; job->model.kind == FL_MODEL_PROGRAM && i < sizeof model / sizeof *model;
         i++) {
        is = is || strcmp(field->path, model[i]) == 0;
    }
    for (size_t i = N_OF_BOTH; job->model.kind == FL_MODEL_HF && i < sizeof model / sizeof *model;
         i++) {
        is = is || strcmp(field->path, model[i]) == 0;
    }
    for (size_t i = 0; job->data.kind == FL_DATA_PROGRAM && i < sizeof data / sizeof *data; i++) {
        is = is || strcmp(field->path, data[i]) == 0;
    }
    return is;
}

static void job_field(FILE *stream, const fl_field *field, const char *indent, const void *of)
{
    char text[FL_FIELD_VALUE_MAX];
    if (is_without_meaning(field, of)) {
        return;
    }
    fprintf(stream, "%s%s: %s\n", indent, fl_field_name(field), fl_field_format(field, of, text));
}

fl_status fl_job_write(const fl_job *job, FILE *stream)
{
    each_field(stream, job_section, job_field, job);
    return flushed(stream);
}

static void reference_section(FILE *stream, const fl_section *section)
{
    fprintf(stream, "\n# %s\n%s:\n", section->doc, section->name);
}

static void reference_field(FILE *stream, const fl_field *field, const char *indent, const void *of)
{
    (void)of;
    char allowed[FL_FIELD_ALLOWED_MAX];
    fprintf(stream, "%s# %s\n%s# Allowed: %s.\n", indent, field->doc, indent,
            fl_field_allowed(field, allowed));
    for (int k = 0; field->list != NULL && k < field->list->n_keys; k++) {
        const fl_field *key = &field->list->key[k];
        fprintf(stream, "%s#   %s: %s Allowed: %s.\n", indent, key->path, key->doc,
                fl_field_allowed(key, allowed));
    }
    fprintf(stream, "%s%s: %s\n", indent, fl_field_name(field), field->initial);
}

fl_status fl_schema_write_yaml(FILE *stream)
{
    fputs("# Every field of a job at its default, with what it may be. Written by\n"
          "# `frostline schema --yaml`; a job file needs only the fields that differ.\n\n",
          stream);
    each_field(stream, reference_section, reference_field, NULL);
    return flushed(stream);
}

static void table_section(FILE *stream, const fl_section *section)
{
    fprintf(stream,
            "\n### `%s`\n\n%s\n\n| field | default | allowed | meaning |\n|---|---|---|---|\n",
            section->name, section->doc);
}

static void table_field(FILE *stream, const fl_field *field, const char *indent, const void *of)
{
    (void)of;
    (void)indent;
    char allowed[FL_FIELD_ALLOWED_MAX];
    fprintf(stream, "| `%s` | `%s` | %s | %s |\n", field->path, field->initial,
            fl_field_allowed(field, allowed), field->doc);
    for (int k = 0; field->list != NULL && k < field->list->n_keys; k++) {
        const fl_field *key = &field->list->key[k];
        fprintf(stream, "| `%s[].%s` | %s | %s | %s |\n", field->path, key->path,
                k < field->list->n_required    ? "must be given"
                : field->list->n_required == 1 ? "stays"
                                               : "none",
                fl_field_allowed(key, allowed), key->doc);
    }
}

/* The fields that `frostline run --resume` refuses to change. */
static void fixed_fields(FILE *stream)
{
    enum { A_LINE = 5 };
    int n = 0;
    fputs("\n### Fields that a resumed run keeps\n\n`frostline run --resume RUN` refuses to change "
          "these; it accepts `--set` for every other field\n"
          "([checkpoints.md](checkpoints.md)):\n",
          stream);
    for (int i = 0; i < fl_schema_n_fields(); i++) {
        const fl_field *field = fl_schema_field(i);
        if (!fl_field_may_change(field)) {
            fprintf(stream, "%s`%s`", n == 0 ? "\n" : n % A_LINE == 0 ? ",\n" : ", ", field->path);
            n++;
        }
    }
    fputs(".\n", stream);
}

fl_status fl_schema_write_markdown(FILE *stream)
{
    fputs("| field | default | allowed | meaning |\n|---|---|---|---|\n", stream);
    each_field(stream, table_section, table_field, NULL);
    fixed_fields(stream);
    return flushed(stream);
}
