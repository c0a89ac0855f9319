/* Lists from YAML: from the nodes of a job file, or from the text of --set. */
#include "launcher/job/field.h"
#include "launcher/job/job.h"
#include "launcher/job/list.h"
#include "launcher/job/node.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* The state of reading one list. */
typedef struct list_reader {
    const fl_list *list;
    yaml_document_t *document;
    const yaml_node_t **culprit;
    int64_t i;  /* entry, from 0 */
    char *item; /* of the entry */
} list_reader;

static fl_status refuse_node(list_reader *r, const yaml_node_t *node, fl_status status)
{
    *r->culprit = node;
    return status;
}

static fl_status read_value(list_reader *r, const fl_field *key, const yaml_node_t *node)
{
    char allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    fl__value value = {0};
    fl_status status;
    if (node->type != YAML_SCALAR_NODE || fl_node_is_null(node)) {
        status = fl_fail(FL_EINVAL, "found %s, allowed: %s", fl_node_found(node, shown),
                         fl_field_allowed(key, allowed));
    } else {
        status = fl__field_take(key, fl_node_text(node), node->data.scalar.length,
                                fl_node_is_quoted(node), &value);
    }
    if (status != FL_OK) {
        return refuse_node(r, node, fl__list_within(r->list, r->i, key, status));
    }
    fl__list_put(key, r->item, &value);
    return FL_OK;
}

static const char *key_at(const void *context, int i)
{
    const fl_list *list = context;
    return i < list->n_keys ? list->key[i].path : NULL;
}

/* Where the key belongs; NULL: nobody knows. */
static const char *find_foreign(const fl_list *list, const char *key)
{
    const fl_foreign_key *f = list->foreign;
    while (f != NULL && f->key != NULL && strcmp(f->key, key) != 0) {
        f++;
    }
    return f == NULL ? NULL : f->where;
}

static fl_status unknown_key(list_reader *r, const yaml_node_t *node)
{
    char keys[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    const char *found = fl_node_found(node, shown);
    const char *near = NULL, *where = NULL;
    bool is_text =
        node->type == YAML_SCALAR_NODE && strlen(fl_node_text(node)) == node->data.scalar.length;
    if (is_text) {
        where = find_foreign(r->list, fl_node_text(node));
    }
    if (where != NULL) {
        return refuse_node(
            r, node,
            fl_fail(FL_EINVAL, "entry %" PRId64 ": unknown key %s: %s", r->i + 1, found, where));
    }
    if (is_text) {
        near = fl_nearest(fl_node_text(node), key_at, r->list);
    }
    return refuse_node(
        r, node,
        near != NULL ? fl_fail(FL_EINVAL, "entry %" PRId64 ": unknown key %s, nearest is %s",
                               r->i + 1, found, near)
                     : fl_fail(FL_EINVAL, "entry %" PRId64 ": unknown key %s, an entry has %s",
                               r->i + 1, found, fl_list_keys(r->list, keys)));
}

static int find_key(const fl_list *list, const yaml_node_t *node)
{
    for (int k = 0; k < list->n_keys && node->type == YAML_SCALAR_NODE; k++) {
        size_t length = strlen(list->key[k].path);
        if (length == node->data.scalar.length &&
            memcmp(list->key[k].path, fl_node_text(node), length) == 0) {
            return k;
        }
    }
    return -1;
}

static fl_status read_pairs(list_reader *r, const yaml_node_t *mapping)
{
    char allowed[FL_FIELD_ALLOWED_MAX];
    uint64_t seen = 0;
    for (const yaml_node_pair_t *pair = mapping->data.mapping.pairs.start;
         pair < mapping->data.mapping.pairs.top; pair++) {
        const yaml_node_t *node = yaml_document_get_node(r->document, pair->key);
        int k = find_key(r->list, node);
        if (k < 0) {
            return unknown_key(r, node);
        }
        if ((seen >> k & 1) != 0) {
            return refuse_node(
                r, node,
                fl__list_within(r->list, r->i, &r->list->key[k],
                                fl_fail(FL_EINVAL, "repeated, it stands there already")));
        }
        seen |= UINT64_C(1) << k;
        FL_TRY(read_value(r, &r->list->key[k], yaml_document_get_node(r->document, pair->value)));
    }
    for (int k = 0; k < r->list->n_required; k++) {
        const fl_field *key = &r->list->key[k];
        if ((seen >> k & 1) == 0) {
            return refuse_node(
                r, mapping,
                fl_fail(FL_EINVAL, "entry %" PRId64 ": found no %s, allowed: an entry with %s: %s",
                        r->i + 1, key->path, key->path, fl_field_allowed(key, allowed)));
        }
    }
    return FL_OK;
}

static fl_status read_mapping(list_reader *r, const yaml_node_t *node)
{
    char keys[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    if (node->type != YAML_MAPPING_NODE) {
        return refuse_node(
            r, node,
            fl_fail(FL_EINVAL, "entry %" PRId64 ": found %s, allowed: a mapping with %s", r->i + 1,
                    fl_node_found(node, shown), fl_list_keys(r->list, keys)));
    }
    for (int k = r->list->n_required; k < r->list->n_keys; k++) {
        fl__list_put_absent(&r->list->key[k], r->item);
    }
    return read_pairs(r, node);
}

fl_status fl_list_read_item(const fl_list *list, yaml_document_t *document, const yaml_node_t *node,
                            int64_t i, void *item, const yaml_node_t **culprit)
{
    list_reader r = {.list = list, .document = document, .culprit = culprit, .i = i, .item = item};
    return read_mapping(&r, node);
}

static fl_status read_in_order(list_reader *r, const yaml_node_t *node)
{
    FL_TRY(read_mapping(r, node));
    return refuse_node(r, node,
                       fl__list_check_rise(r->list, r->i, r->item - r->list->item_bytes, r->item));
}

fl_status fl_list_read(const fl_field *field, yaml_document_t *document, const yaml_node_t *node,
                       fl_job *job, const yaml_node_t **culprit)
{
    _Alignas(int64_t) char bytes[FL_LIST_BYTES_MAX] = {0};
    const fl_list *list = field->list;
    list_reader r = {.list = list, .document = document, .culprit = culprit};
    assert(node->type == YAML_SEQUENCE_NODE && fl_list_size(field) <= sizeof bytes);
    int64_t n = node->data.sequence.items.top - node->data.sequence.items.start;
    *culprit = node;
    if (n == 0 || n > list->capacity) {
        FL_TRY(fl__list_check_length(field, n));
    }
    for (r.i = 0; r.i < n; r.i++) {
        const yaml_node_t *item =
            yaml_document_get_node(document, node->data.sequence.items.start[r.i]);
        r.item = bytes + sizeof n + (size_t)r.i * list->item_bytes;
        FL_TRY(list->n_keys == 0 ? read_value(&r, list->key, item) : read_in_order(&r, item));
    }
    *culprit = node;
    FL_TRY(fl__list_check_length(field, n)); /* a mistake in an entry explains more */
    memcpy(bytes, &n, sizeof n);
    memcpy((char *)job + field->offset, bytes, fl_list_size(field));
    return FL_OK;
}

fl_status fl_list_parse(const fl_field *field, const char *text, size_t length, fl_job *job)
{
    return fl_node_parse(field, text, length, YAML_SEQUENCE_NODE, fl_list_read, job);
}
