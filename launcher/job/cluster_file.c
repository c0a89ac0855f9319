#include "launcher/job/cluster_file.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"
#include "device/system/files/input_file.h"
#include "device/text/shown_text.h"
#include "device/text/size_text.h"
#include "launcher/job/field.h"
#include "launcher/job/job.h"
#include "launcher/job/list.h"
#include "launcher/job/node.h"
#include "launcher/job/schema/host_keys.h"
#include "launcher/job/text/number.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what a mapping may have ---- */

enum { LINK_KEYS = 3, KEYS_MAX = 3 };

static const fl_field link_key[LINK_KEYS] = {
    {.path = "latency_us", .type = FL_FIELD_NUMBER, .low = 0.0, .high = 1e6},
    {.path = "bandwidth", .type = FL_FIELD_SIZE, .least = 1 << 10, .most = (int64_t)1 << 50},
    {.path = "all_reduce", .type = FL_FIELD_SIZE, .least = 1 << 10, .most = (int64_t)1 << 50},
};

static const char *const link_name[FL_N_LINKS] = {"within_socket", "within_host", "between_hosts"};
static const char *const section_name[] = {"hosts", "links"};

/* The state of reading one file. */
typedef struct cluster_reader {
    const char *file;
    yaml_document_t *document;
    fl_cluster_file *out;
} cluster_reader;

/* Prefix the current failure with "file:line:column: field: ". */
static fl_status at(const cluster_reader *r, const yaml_node_t *node, const char *field,
                    fl_status status)
{
    return status == FL_OK ? FL_OK
                           : fl_within(status, "%s:%zu:%zu: %s", r->file, node->start_mark.line + 1,
                                       node->start_mark.column + 1, field);
}

static fl_status refuse_node(const cluster_reader *r, const yaml_node_t *node, const char *field,
                             const char *allowed)
{
    char shown[FL_SHOWN_MAX];
    return at(r, node, field,
              fl_fail(FL_EINVAL, "found %s, allowed: %s", fl_node_found(node, shown), allowed));
}

static bool is_name(const yaml_node_t *node, const char *name)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == strlen(name) &&
           memcmp(fl_node_text(node), name, strlen(name)) == 0;
}

/* ---- a mapping of values ---- */

/* The values of one mapping; given[i]: key i is there. */
typedef struct values {
    const fl_field *key;
    int n_keys;
    const char *path; /* of the mapping, for messages */
    bool given[KEYS_MAX];
    fl__value value[KEYS_MAX];
} values;

static void join_keys(const values *v, char *text, size_t size_bytes)
{
    size_t used = (size_t)snprintf(text, size_bytes, "a mapping with ");
    for (int i = 0; i < v->n_keys && used < size_bytes; i++) {
        used += (size_t)snprintf(text + used, size_bytes - used, "%s%s", i == 0 ? "" : ", ",
                                 v->key[i].path);
    }
}

static fl_status read_value(const cluster_reader *r, values *v, int i, const yaml_node_t *node)
{
    char allowed[FL_FIELD_ALLOWED_MAX], field[FL_TEXT_MAX];
    snprintf(field, sizeof field, "%s.%s", v->path, v->key[i].path);
    if (v->given[i]) {
        return at(r, node, field, fl_fail(FL_EINVAL, "repeated, it stands there already"));
    }
    if (node->type != YAML_SCALAR_NODE || fl_node_is_null(node)) {
        return refuse_node(r, node, field, fl_field_allowed(&v->key[i], allowed));
    }
    v->given[i] = true;
    return at(r, node, field,
              fl__field_take(&v->key[i], fl_node_text(node), node->data.scalar.length,
                             fl_node_is_quoted(node), &v->value[i]));
}

/* The first n_required keys must be there. */
static fl_status read_values(const cluster_reader *r, const yaml_node_t *node, int n_required,
                             values *v)
{
    char keys[FL_FIELD_ALLOWED_MAX];
    join_keys(v, keys, sizeof keys);
    if (node->type != YAML_MAPPING_NODE) {
        return refuse_node(r, node, v->path, keys);
    }
    for (const yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        int i = 0;
        while (i < v->n_keys && !is_name(key, v->key[i].path)) {
            i++;
        }
        if (i == v->n_keys) {
            return refuse_node(r, key, v->path, keys);
        }
        FL_TRY(read_value(r, v, i, yaml_document_get_node(r->document, pair->value)));
    }
    for (int i = 0; i < n_required; i++) {
        if (!v->given[i]) {
            return at(r, node, v->path,
                      fl_fail(FL_EINVAL, "found no %s, allowed: %s", v->key[i].path, keys));
        }
    }
    return FL_OK;
}

/* ---- hosts ---- */

void fl_cluster_file_init(fl_cluster_file *out)
{
    memset(out, 0, sizeof *out);
}

void fl_cluster_file_add(fl_cluster_file *out, const fl_job_host *host)
{
    fl_cluster *c = &out->cluster;
    int n_sockets = host->sockets > 0 ? host->sockets : 1;
    snprintf(out->name[c->n_hosts], FL_HOST_NAME_MAX, "%s", host->name);
    snprintf(out->address[c->n_hosts], FL_HOST_NAME_MAX, "%s", host->address);
    snprintf(out->profile[c->n_hosts], FL_HOST_PROFILE_MAX, "%s", host->profile);
    out->has_speed[c->n_hosts] = host->speed > 0.0;
    out->has_sockets[c->n_hosts] = host->sockets > 0;
    for (int i = 0; i < host->devices; i++) {
        int d = c->n_devices++;
        c->host_of[d] = c->n_hosts;
        c->socket_of[d] = c->n_sockets + (int)((int64_t)i * n_sockets / host->devices);
        c->memory_bytes[d] = host->memory_bytes;
        c->speed[d] = host->speed > 0.0 ? host->speed : 1.0;
    }
    c->n_hosts++;
    c->n_sockets += n_sockets;
}

bool fl_cluster_file_states_costs(const fl_cluster_file *file, int host)
{
    return file->profile[host][0] != '\0' || file->has_speed[host];
}

static int first_device(const fl_cluster *c, int host)
{
    int d = 0;
    while (c->host_of[d] != host) {
        d++;
    }
    return d;
}

const char *fl_cluster_file_stated(const fl_cluster_file *file, int host,
                                   char text[FL_HOST_STATED_MAX])
{
    int d = first_device(&file->cluster, host);
    char memory[FL_SIZE_TEXT_MAX], number[32];
    size_t used = 0;
    text[0] = '\0';
    if (file->cluster.memory_bytes[d] > 0) {
        used = (size_t)snprintf(text, FL_HOST_STATED_MAX, ", memory %s",
                                fl_size_text((double)file->cluster.memory_bytes[d], memory));
    }
    if (file->has_speed[host]) {
        fl_write_number(file->cluster.speed[d], number, sizeof number);
        used += (size_t)snprintf(text + used, FL_HOST_STATED_MAX - used, ", speed %s", number);
    }
    if (file->profile[host][0] != '\0') {
        snprintf(text + used, FL_HOST_STATED_MAX - used, ", profile %s", file->profile[host]);
    }
    size_t separator = text[0] == '\0' ? 0 : strlen(", ");
    memmove(text, text + separator, strlen(text + separator) + 1);
    return text;
}

fl_status fl_cluster_file_refuse(const fl_cluster_file *file, int host, const char *key,
                                 const char *format, ...)
{
    char text[FL_CLUSTER_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (file->line[host] == 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("hosts"), "entry %d, %s: %s", host + 1, key,
                             text);
    }
    return fl_fail(FL_EINVAL, "%s:%d:%d: hosts: entry %d, %s: %s", file->written_in,
                   file->line[host], file->column[host], host + 1, key, text);
}

/* Those that were read so far. */
static fl__hosts_before hosts_before(const fl_cluster_file *file)
{
    return (fl__hosts_before){.name = file->name[0],
                              .address = file->address[0],
                              .name_stride = sizeof file->name[0],
                              .address_stride = sizeof file->address[0],
                              .n = file->cluster.n_hosts,
                              .n_devices = file->cluster.n_devices};
}

static fl_status read_host(cluster_reader *r, const yaml_node_t *node)
{
    fl_cluster_file *out = r->out;
    fl_job_host host = {.devices = 0};
    const yaml_node_t *culprit = node;
    int i = out->cluster.n_hosts;
    const fl__hosts_before before = hosts_before(out);
    fl_status status = fl_list_read_item(&fl__hosts_of_file, r->document, node, i, &host, &culprit);
    FL_TRY(at(r, culprit, "hosts", status));
    FL_TRY(at(r, node, "hosts", fl__host_check(&host, &before)));
    out->line[i] = (int)node->start_mark.line + 1;
    out->column[i] = (int)node->start_mark.column + 1;
    fl_cluster_file_add(out, &host);
    return FL_OK;
}

static fl_status read_hosts(cluster_reader *r, const yaml_node_t *list)
{
    static const fl_field hosts = {.type = FL_FIELD_LIST, .list = &fl__hosts_of_file};
    char allowed[FL_FIELD_ALLOWED_MAX];
    if (list->type != YAML_SEQUENCE_NODE) {
        return refuse_node(r, list, "hosts", fl_field_allowed(&hosts, allowed));
    }
    int64_t n = list->data.sequence.items.top - list->data.sequence.items.start;
    FL_TRY(at(r, list, "hosts", fl__list_check_length(&hosts, n)));
    for (const yaml_node_item_t *item = list->data.sequence.items.start;
         item < list->data.sequence.items.top; item++) {
        FL_TRY(read_host(r, yaml_document_get_node(r->document, *item)));
    }
    const fl__hosts_before all = hosts_before(r->out);
    int near = 0;
    fl_status status = fl__hosts_check_near(&all, &near);
    return status == FL_OK
               ? FL_OK
               : at(r, yaml_document_get_node(r->document, list->data.sequence.items.start[near]),
                    "hosts", status);
}

/* ---- links ---- */

static fl_status read_link(cluster_reader *r, const yaml_node_t *key, const yaml_node_t *node)
{
    static const double BYTES_PER_US = 1e-6; /* of a byte in a second */
    char path[64];
    int class = 0;
    while (class < FL_N_LINKS && !is_name(key, link_name[class])) {
        class ++;
    }
    if (class == FL_N_LINKS) {
        return refuse_node(r, key, "links", "within_socket, within_host, between_hosts");
    }
    snprintf(path, sizeof path, "links.%s", link_name[class]);
    fl_link_cost *link = &r->out->cluster.link[class];
    if (link->bytes_per_us > 0.0) {
        return at(r, key, path, fl_fail(FL_EINVAL, "repeated, it stands there already"));
    }
    values v = {.key = link_key, .n_keys = LINK_KEYS, .path = path};
    FL_TRY(read_values(r, node, 2, &v));
    link->latency_us = v.value[0].number;
    link->bytes_per_us = (double)v.value[1].integer * BYTES_PER_US;
    link->reduce_bytes_per_us =
        v.given[2] ? (double)v.value[2].integer * BYTES_PER_US : link->bytes_per_us;
    return FL_OK;
}

static fl_status read_links(cluster_reader *r, const yaml_node_t *mapping)
{
    if (mapping->type != YAML_MAPPING_NODE) {
        return refuse_node(r, mapping, "links",
                           "a mapping with within_socket, within_host, between_hosts");
    }
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        FL_TRY(read_link(r, yaml_document_get_node(r->document, pair->key),
                         yaml_document_get_node(r->document, pair->value)));
    }
    return FL_OK;
}

/* ---- the file ---- */

static fl_status read_sections(cluster_reader *r, const yaml_node_t *root)
{
    bool given[2] = {false};
    for (const yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(r->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(r->document, pair->value);
        int i = is_name(key, section_name[0]) ? 0 : 1;
        if (!is_name(key, section_name[i])) {
            return refuse_node(r, key, "cluster", "hosts, links");
        }
        if (given[i]) {
            return at(r, key, section_name[i],
                      fl_fail(FL_EINVAL, "repeated, it stands there already"));
        }
        given[i] = true;
        FL_TRY(i == 0 ? read_hosts(r, value) : read_links(r, value));
    }
    if (!given[0]) {
        return at(r, root, "cluster",
                  fl_fail(FL_EINVAL, "found no hosts, allowed: a list of them"));
    }
    return FL_OK;
}

static fl_status read_document(cluster_reader *r)
{
    const yaml_node_t *root = yaml_document_get_root_node(r->document);
    if (root == NULL) {
        return fl_fail(FL_EINVAL,
                       "%s:1:1: cluster: found nothing, allowed: a mapping with hosts, links",
                       r->file);
    }
    if (root->type != YAML_MAPPING_NODE) {
        return refuse_node(r, root, "cluster", "a mapping with hosts, links");
    }
    FL_TRY(read_sections(r, root));
    fl_status status = fl_cluster_check(&r->out->cluster);
    return status == FL_OK ? FL_OK : fl_within(status, "%s", r->file);
}

fl_status fl_cluster_file_parse(const char *name, const char *text, size_t size_bytes,
                                fl_cluster_file *out)
{
    yaml_parser_t parser;
    yaml_document_t document;
    fl_cluster_file_init(out);
    snprintf(out->path, sizeof out->path, "%s", name);
    fl_text_shown(name, out->written_in, sizeof out->written_in);
    FL_TRY(fl_job_screen(out->written_in, text, size_bytes));
    if (!yaml_parser_initialize(&parser)) {
        return fl_fail(FL_ENOMEM, "%s: out of memory", out->written_in);
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size_bytes);
    fl_status status = FL_OK;
    if (yaml_parser_load(&parser, &document)) {
        cluster_reader r = {.file = out->written_in, .document = &document, .out = out};
        status = read_document(&r);
        yaml_document_delete(&document);
    } else { /* the screening has parsed the whole file: no other cause */
        status = fl_fail(FL_ENOMEM, "%s: out of memory", out->written_in);
    }
    yaml_parser_delete(&parser);
    return status;
}

fl_status fl_cluster_file_load(const char *path, fl_cluster_file *out)
{
    size_t capacity = FL_JOB_FILE_MAX + 1, length = 0; /* one more detects a longer file */
    char whole[PATH_MAX];
    void *text = NULL;
    FL_TRY(fl_alloc(capacity, &text));
    fl_status status = fl_input_load(path, text, capacity, &length);
    if (status == FL_OK) {
        status = fl_cluster_file_parse(path, text, length, out);
    }
    if (status == FL_OK && realpath(path, whole) != NULL && strlen(whole) < sizeof out->path) {
        memcpy(out->path, whole, strlen(whole) + 1);
    }
    fl_free(text);
    return status;
}
