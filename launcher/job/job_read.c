/* From the nodes of a job file to the fields of a job. */
#include "launcher/job/files.h"
#include "launcher/job/job.h"
#include "launcher/job/list.h"
#include "launcher/job/node.h"

#include <string.h>

/* The state of reading one job. */
typedef struct job_reader {
    yaml_document_t *document;
    fl_job *job;
    const char *only; /* the field or section at the top that is read; NULL: all are */
    int section_line[FL_SCHEMA_MAX]; /* 0: not read yet */
} job_reader;

/* Prefix the current failure with "file:line:column: field: ". */
static fl_status at(const job_reader *r, const yaml_node_t *node, const char *field,
                    fl_status status)
{
    if (status == FL_OK) {
        return FL_OK;
    }
    return fl_within(status, "%s:%zu:%zu: %s", r->job->origins.file, node->start_mark.line + 1,
                     node->start_mark.column + 1, field);
}

static fl_status once(const job_reader *r, const yaml_node_t *key, const char *field, int line)
{
    if (line == 0) {
        return FL_OK;
    }
    return at(r, key, field, fl_fail(FL_EINVAL, "repeated, it stands in line %d already", line));
}

static void note_entries(job_reader *r, const yaml_node_t *list, int64_t n, fl_job_place_at *place)
{
    const yaml_node_item_t *items = list->data.sequence.items.start;
    for (int64_t i = 0; i < n; i++) {
        const yaml_node_t *node = yaml_document_get_node(r->document, items[i]);
        place[i].line = (int)node->start_mark.line + 1;
        place[i].column = (int)node->start_mark.column + 1;
    }
}

/* Messages about one host, or one entry of the script, name its place. */
static void note_list(job_reader *r, const char *path, const yaml_node_t *list)
{
    fl_job_origins *origins = &r->job->origins;
    if (strcmp(path, "hosts") == 0) {
        note_entries(r, list, r->job->n_hosts, origins->host);
    } else if (strcmp(path, "elastic.script") == 0) {
        note_entries(r, list, r->job->elastic.n_script, origins->script);
    }
}

static fl_status read_field(job_reader *r, int index, const yaml_node_t *key,
                            const yaml_node_t *value)
{
    const fl_field *field = fl_schema_field(index);
    fl_job_origins *origins = &r->job->origins;
    FL_TRY(once(r, key, field->path, origins->of[index].line));
    origins->of[index].line = (int)value->start_mark.line + 1;
    origins->of[index].column = (int)value->start_mark.column + 1;
    if (field->type == FL_FIELD_LIST && value->type == YAML_SEQUENCE_NODE) {
        const yaml_node_t *culprit = value;
        fl_status status = fl_list_read(field, r->document, value, r->job, &culprit);
        if (status == FL_OK) {
            note_list(r, field->path, value);
        }
        return at(r, culprit, field->path, status);
    }
    if (field->type == FL_FIELD_FILES && value->type == YAML_MAPPING_NODE) {
        const yaml_node_t *culprit = value;
        fl_status status = fl_files_read(field, r->document, value, r->job, &culprit);
        return at(r, culprit, field->path, status);
    }
    if (value->type == YAML_SCALAR_NODE && !fl_node_is_null(value)) {
        return at(r, value, field->path,
                  fl_field_parse(field, fl_node_text(value), value->data.scalar.length,
                                 fl_node_is_quoted(value), r->job));
    }
    char allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    return at(r, value, field->path,
              fl_fail(FL_EINVAL, "found %s, allowed: %s", fl_node_found(value, shown),
                      fl_field_allowed(field, allowed)));
}

/* "section.name", with the name escaped: a field's name never needs that. */
static void join(const char *section, const yaml_node_t *key, char *path, size_t size_bytes)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    const char *name = fl_node_text(key);
    size_t length = key->data.scalar.length;
    char shown[FL_SHOWN_MAX];
    bool is_plain = length > 0 && length < FL_SHOWN_MAX && strspn(name, plain) == length;
    snprintf(path, size_bytes, "%s%s%s", section, section[0] == '\0' ? "" : ".",
             is_plain ? name : fl_shown(name, length, shown));
}

static fl_status read_section(job_reader *r, int index, const yaml_node_t *key,
                              const yaml_node_t *value);

static fl_status read_pair(job_reader *r, const char *section, const yaml_node_t *key,
                           const yaml_node_t *value)
{
    char path[FL_TEXT_MAX], shown[FL_SHOWN_MAX];
    if (key->type != YAML_SCALAR_NODE || fl_node_is_null(key)) {
        return at(r, key, section[0] == '\0' ? "job" : section,
                  fl_fail(FL_EINVAL, "found %s for a name, allowed: the name of a field",
                          fl_node_found(key, shown)));
    }
    join(section, key, path, sizeof path);
    int index = section[0] == '\0' ? fl_schema_find_section(path) : -1;
    if (index >= 0) {
        return read_section(r, index, key, value);
    }
    index = fl_schema_find(path);
    if (index >= 0 && fl_field_is_in(fl_schema_field(index), section)) {
        return read_field(r, index, key, value);
    }
    return at(r, key, path, fl_job_unknown(section, fl_node_text(key)));
}

static fl_status read_mapping(job_reader *r, const char *section, const yaml_node_t *mapping)
{
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
        if (r->only == NULL || section[0] != '\0' ||
            (key->type == YAML_SCALAR_NODE && strcmp(fl_node_text(key), r->only) == 0)) {
            FL_TRY(read_pair(r, section, key, value));
        }
    }
    return FL_OK;
}

static fl_status not_a_mapping(const job_reader *r, const yaml_node_t *node, const char *section)
{
    char names[FL_NAMES_MAX], shown[FL_SHOWN_MAX];
    return at(r, node, section[0] == '\0' ? "job" : section,
              fl_fail(FL_EINVAL, "found %s, allowed: a mapping with %s", fl_node_found(node, shown),
                      fl_job_names(section, names)));
}

static fl_status read_section(job_reader *r, int index, const yaml_node_t *key,
                              const yaml_node_t *value)
{
    const char *section = fl_schema_section(index)->name;
    FL_TRY(once(r, key, section, r->section_line[index]));
    r->section_line[index] = (int)key->start_mark.line + 1;
    if (fl_node_is_null(value)) {
        return FL_OK; /* all its fields may be commented out */
    }
    return value->type == YAML_MAPPING_NODE ? read_mapping(r, section, value)
                                            : not_a_mapping(r, value, section);
}

static fl_status read_root(job_reader *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->document);
    if (root == NULL) {
        char names[FL_NAMES_MAX];
        return fl_fail(FL_EINVAL, "%s:1:1: job: found nothing, allowed: a mapping with %s",
                       r->job->origins.file, fl_job_names("", names));
    }
    return root->type == YAML_MAPPING_NODE ? read_mapping(r, "", root) : not_a_mapping(r, root, "");
}

static fl_status read_document(const char *text, size_t size_bytes, const char *only, fl_job *job)
{
    yaml_parser_t parser;
    yaml_document_t document;
    if (!yaml_parser_initialize(&parser)) {
        return fl_fail(FL_ENOMEM, "%s: out of memory", job->origins.file);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
    fl_status status = FL_OK;
    if (yaml_parser_load(&parser, &document)) {
        job_reader r = {.document = &document, .job = job, .only = only};
        status = read_root(&r);
        yaml_document_delete(&document);
    } else {
        /* The screening has parsed the whole file, so only memory can run out here; the loader does
         * not always report that. */
        status = fl_fail(FL_ENOMEM, "%s: out of memory", job->origins.file);
    }
    yaml_parser_delete(&parser);
    return status;
}

fl_status fl_job_read(const char *text, size_t size_bytes, fl_job *job)
{
    return read_document(text, size_bytes, NULL, job);
}

fl_status fl_job_read_only(const char *text, size_t size_bytes, const char *name, fl_job *job)
{
    return read_document(text, size_bytes, name, job);
}
