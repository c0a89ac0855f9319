/* From a profile file to a profile; every value is checked before it is used.
 *   ① text, and YAML without unneeded constructs  fl_job_screen
 *   ② the key: program, model, device ...         read_key
 *   ③ the numbers, each in its range              read_numbers */
#include "launcher/job/job.h"
#include "launcher/job/node.h"
#include "launcher/job/text/number.h"
#include "launcher/run/costs/profile_fields.h"
#include "launcher/run/costs/profile_file.h"

#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "nn/model.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct profile_reader {
    const char *name; /* of the file */
    yaml_document_t *document;
    const fl_profile_key *key; /* NULL: any */
    const fl_model *model;
    int format;
} profile_reader;

static fl_status refuse_node(const profile_reader *r, const yaml_node_t *node, const char *what,
                             const char *allowed)
{
    char shown[FL_SHOWN_MAX];
    return fl_fail(FL_EFORMAT, "%s:%zu:%zu: %s: found %s, allowed: %s", r->name,
                   node->start_mark.line + 1, node->start_mark.column + 1, what,
                   fl_node_found(node, shown), allowed);
}

static fl_status get_value(const profile_reader *r, const yaml_node_t *mapping, const char *name,
                           const yaml_node_t **out)
{
    *out = NULL;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        if (key->type == YAML_SCALAR_NODE && strcmp(fl_node_text(key), name) == 0) {
            *out = yaml_document_get_node(r->document, pair->value);
        }
    }
    return *out != NULL
               ? FL_OK
               : fl_fail(FL_EFORMAT, "%s:%zu:%zu: %s is missing", r->name,
                         mapping->start_mark.line + 1, mapping->start_mark.column + 1, name);
}

static fl_status get_of_type(const profile_reader *r, const yaml_node_t *mapping, const char *name,
                             yaml_node_type_t type, const yaml_node_t **out)
{
    FL_TRY(get_value(r, mapping, name, out));
    return (*out)->type == type ? FL_OK
                                : refuse_node(r, *out, name,
                                              type == YAML_SCALAR_NODE    ? "a text"
                                              : type == YAML_MAPPING_NODE ? "a mapping"
                                                                          : "a list");
}

/* ---- ③ ---- */

static bool is_in_range(const fl_profile_field *f, double x)
{
    return (x >= f->least && x <= f->most) || (f->or_zero && x == 0.0);
}

static bool read_real(const char *text, const fl_profile_field *f, double *out)
{
    size_t length = 0;
    return fl_read_number(text, out, &length) && text[length] == '\0' && isfinite(*out) &&
           is_in_range(f, *out);
}

static bool read_number(const yaml_node_t *node, const fl_profile_field *f, void *base)
{
    int64_t whole;
    double real;
    void *to = (char *)base + f->offset;
    if (node->type != YAML_SCALAR_NODE || strlen(fl_node_text(node)) != node->data.scalar.length) {
        return false;
    }
    if (f->type == FL_PROFILE_REAL) {
        bool good = read_real(fl_node_text(node), f, &real);
        memcpy(to, &real, good ? sizeof real : 0);
        return good;
    }
    if (!fl_read_integer(fl_node_text(node), &whole) || !is_in_range(f, (double)whole)) {
        return false;
    }
    int count = (int)whole;
    memcpy(to, f->type == FL_PROFILE_COUNT ? (void *)&count : (void *)&whole,
           f->type == FL_PROFILE_COUNT ? sizeof count : sizeof whole);
    return true;
}

static fl_status read_numbers(const profile_reader *r, const yaml_node_t *mapping,
                              const fl_profile_field *fields, void *base)
{
    char allowed[64];
    const yaml_node_t *node;
    for (const fl_profile_field *f = fields; f->name != NULL; f++) {
        FL_TRY(get_value(r, mapping, f->name, &node));
        if (!read_number(node, f, base)) {
            snprintf(allowed, sizeof allowed, "%sa%s number from %.10g to %.10g",
                     f->or_zero ? "0, or " : "", f->type == FL_PROFILE_REAL ? "" : " whole",
                     f->least, f->most);
            return refuse_node(r, node, f->name, allowed);
        }
    }
    return FL_OK;
}

static fl_status item_at(const profile_reader *r, const yaml_node_t *list, int index,
                         const char *what, const yaml_node_t **out)
{
    *out = yaml_document_get_node(r->document, list->data.sequence.items.start[index]);
    return (*out)->type == YAML_MAPPING_NODE ? FL_OK : refuse_node(r, *out, what, "a mapping");
}

static int n_items(const yaml_node_t *list)
{
    return (int)(list->data.sequence.items.top - list->data.sequence.items.start);
}

/* A profile of another device, too, must be of this model. */
static fl_status check_layer(const profile_reader *r, const yaml_node_t *item, int layer,
                             const fl_layer_cost *cost)
{
    const yaml_node_t *kind;
    const char *expected = fl_model_layer_kind(r->model, layer);
    FL_TRY(get_of_type(r, item, "kind", YAML_SCALAR_NODE, &kind));
    if (strcmp(fl_node_text(kind), expected) != 0 ||
        cost->n_params != fl_model_layer_n_params(r->model, layer)) {
        return fl_fail(FL_EINVAL,
                       "%s:%zu: layer %d is %.64s of %lld parameters; the model's is %s of %lld",
                       r->name, item->start_mark.line + 1, layer, fl_node_text(kind),
                       (long long)cost->n_params, expected,
                       (long long)fl_model_layer_n_params(r->model, layer));
    }
    return FL_OK;
}

static fl_status read_layers(const profile_reader *r, const yaml_node_t *root, fl_profile *p)
{
    const yaml_node_t *list, *item;
    FL_TRY(get_of_type(r, root, "layers", YAML_SEQUENCE_NODE, &list));
    p->n_layers = n_items(list);
    if (p->n_layers != fl_model_n_layers(r->model)) {
        return fl_fail(FL_EINVAL, "%s: %d layers; the model has %d", r->name, p->n_layers,
                       fl_model_n_layers(r->model));
    }
    for (int i = 0; i < p->n_layers; i++) {
        FL_TRY(item_at(r, list, i, "layers", &item));
        FL_TRY(read_numbers(r, item, fl__profile_layer, &p->layer[i]));
        if (r->format >= FL_PROFILE_TOKENS_FORMAT) {
            FL_TRY(read_numbers(r, item, fl__profile_tokens, &p->layer[i]));
        }
        FL_TRY(check_layer(r, item, i, &p->layer[i]));
    }
    return FL_OK;
}

static fl_status read_tuned(const profile_reader *r, const yaml_node_t *root, fl_profile *p)
{
    const yaml_node_t *list, *item;
    FL_TRY(get_of_type(r, root, "tuned", YAML_SEQUENCE_NODE, &list));
    p->n_tuned = n_items(list);
    if (p->n_tuned > FL_MAX_TUNED) {
        return refuse_node(r, list, "tuned", "at most 64 entries");
    }
    for (int i = 0; i < p->n_tuned; i++) {
        FL_TRY(item_at(r, list, i, "tuned", &item));
        FL_TRY(read_numbers(r, item, fl__profile_tuned, &p->tuned[i]));
    }
    return FL_OK;
}

/* ---- ② ---- */

static fl_status read_key(const profile_reader *r, const yaml_node_t *root)
{
    const yaml_node_t *node;
    char shown[FL_SHOWN_MAX];
    for (int i = 0; r->key != NULL && i < FL_PROFILE_KEY_PARTS; i++) {
        if (r->key->name[i] == NULL) {
            continue;
        }
        FL_TRY(get_of_type(r, root, r->key->name[i], YAML_SCALAR_NODE, &node));
        if (strcmp(fl_node_text(node), r->key->text[i]) != 0) {
            return fl_fail(FL_EINVAL, "%s: of another %s: %s, not '%s'", r->name, r->key->name[i],
                           fl_node_found(node, shown), r->key->text[i]);
        }
    }
    return FL_OK;
}

/* Of a key that names no program: another one may have measured. */
static fl_status read_program(const profile_reader *r, const yaml_node_t *root,
                              fl_profile_about *about)
{
    const yaml_node_t *node;
    if (r->key == NULL || r->key->name[FL_PROFILE_KEY_PROGRAM] != NULL) {
        return FL_OK;
    }
    FL_TRY(get_of_type(r, root, "program", YAML_SCALAR_NODE, &node));
    snprintf(about->program, sizeof about->program, "%s", fl_node_text(node));
    fl_profile_key_plain(about->program);
    return FL_OK;
}

static fl_status read_root(profile_reader *r, fl_profile *p, fl_profile_about *about)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->document), *node;
    struct {
        int format;
    } header = {0};
    static const fl_profile_field format[] = {{"format", FL_PROFILE_COUNT, 0, 1, INT32_MAX, false},
                                              {.name = NULL}};
    if (root == NULL || root->type != YAML_MAPPING_NODE) {
        return fl_fail(FL_EFORMAT, "%s: this is no profile", r->name);
    }
    FL_TRY(read_numbers(r, root, format, &header));
    if (header.format < FL_PROFILE_OLDEST_FORMAT || header.format > FL_PROFILE_FORMAT) {
        return fl_fail(FL_EINVAL, "%s: format %d; this program reads %d to %d", r->name,
                       header.format, FL_PROFILE_OLDEST_FORMAT, FL_PROFILE_FORMAT);
    }
    r->format = header.format;
    FL_TRY(read_key(r, root));
    FL_TRY(get_of_type(r, root, "complete", YAML_SCALAR_NODE, &node)); /* the last line */
    if (strcmp(fl_node_text(node), "true") != 0) {
        return refuse_node(r, node, "complete", "true");
    }
    FL_TRY(get_of_type(r, root, "measured", YAML_SCALAR_NODE, &node));
    snprintf(about->measured, sizeof about->measured, "%s", fl_node_text(node));
    FL_TRY(read_program(r, root, about));
    FL_TRY(get_of_type(r, root, "costs", YAML_MAPPING_NODE, &node));
    FL_TRY(read_numbers(r, node, fl__profile_costs, p));
    if (r->format >= FL_PROFILE_GRAPHS_FORMAT) {
        FL_TRY(read_numbers(r, node, fl__profile_graphs, p));
    }
    if (r->format >= FL_PROFILE_COMM_FORMAT) {
        FL_TRY(get_of_type(r, root, "communicators", YAML_MAPPING_NODE, &node));
        FL_TRY(read_numbers(r, node, fl__profile_comm, p));
    }
    if (r->format >= FL_PROFILE_FAR_FORMAT) {
        FL_TRY(get_of_type(r, root, "between_islands", YAML_MAPPING_NODE, &node));
        FL_TRY(read_numbers(r, node, fl__profile_far, p));
    }
    if (r->format >= FL_PROFILE_HOSTS_FORMAT) {
        FL_TRY(get_of_type(r, root, "between_hosts", YAML_MAPPING_NODE, &node));
        FL_TRY(read_numbers(r, node, fl__profile_hosts, p));
    }
    FL_TRY(read_layers(r, root, p));
    return read_tuned(r, root, p);
}

static fl_status read_document(profile_reader *r, const char *text, size_t size_bytes,
                               fl_profile *p, fl_profile_about *about)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser)) {
        return fl_fail(FL_ENOMEM, "%s: out of memory", r->name);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
    fl_status status = FL_OK;
    if (yaml_parser_load(&parser, r->document)) {
        status = read_root(r, p, about);
        yaml_document_delete(r->document);
    } else {
        status = fl_fail(FL_ENOMEM, "%s: out of memory", r->name);
    }
    yaml_parser_delete(&parser);
    return status;
}

bool fl_profile_is_one(const char *text, size_t size_bytes)
{
    size_t n = strlen(FL_PROFILE_FIRST_LINE);
    return size_bytes >= n && memcmp(text, FL_PROFILE_FIRST_LINE, n) == 0;
}

fl_status fl_profile_parse(const char *name, const char *text, size_t size_bytes,
                           const fl_profile_key *key, const fl_model *model, fl_profile *profile,
                           fl_profile_about *about)
{
    yaml_document_t document;
    profile_reader r = {.name = name, .key = key, .model = model, .document = &document};
    fl_profile *p = NULL;
    fl_profile_about read = {0};
    if (!fl_profile_is_one(text, size_bytes)) {
        return fl_fail(FL_EFORMAT, "%s: this is no profile", name);
    }
    fl_status status = fl_job_screen(name, text, size_bytes); /* ① */
    if (status != FL_OK) {
        return status == FL_EINVAL ? fl_fail(FL_EFORMAT, "%s", fl_errmsg()) : status;
    }
    FL_TRY(fl_alloc(sizeof *p, (void **)&p));
    status = read_document(&r, text, size_bytes, p, &read);
    if (status == FL_OK) {
        *profile = *p;
        *about = read;
    }
    fl_free(p);
    return status;
}

static fl_status open_file(const char *path, FILE **out)
{
    const char *why;
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, why);
    }
    *out = fdopen(fd, "r");
    if (*out == NULL) {
        close(fd);
        return fl_fail(FL_ENOMEM, "%s: %s", path, strerror(errno));
    }
    return FL_OK;
}

fl_status fl_profile_read(const char *path, const fl_profile_key *key, const fl_model *model,
                          fl_profile *profile, fl_profile_about *about)
{
    char *text = NULL;
    FILE *file = NULL;
    FL_TRY(open_file(path, &file));
    fl_status status = fl_alloc(FL_PROFILE_FILE_MAX + 1, (void **)&text);
    if (status == FL_OK) {
        size_t n = fread(text, 1, FL_PROFILE_FILE_MAX + 1, file);
        status = ferror(file) ? fl_fail(FL_EIO, "%s: %s", path, strerror(errno))
                 : n > FL_PROFILE_FILE_MAX
                     ? fl_fail(FL_EFORMAT, "%s: longer than a profile", path)
                     : fl_profile_parse(path, text, n, key, model, profile, about);
    }
    fclose(file);
    fl_free(text);
    return status;
}
