/* A field that is a list: of integers, or of mappings, as its fl_list says.
 * In fl_job it is a count (int64_t) and, right after it, the items. */
#ifndef FL_LAUNCHER_JOB_LIST_H
#define FL_LAUNCHER_JOB_LIST_H

#include "launcher/job/schema/schema.h"

#include <yaml.h>

/* Store the list of a sequence node. Returns FL_EINVAL with "found ..." or "entry 2, k: found ...";
 * *culprit is then the node at fault, and *job is unchanged. */
fl_status fl_list_read(const fl_field *field, yaml_document_t *document, const yaml_node_t *node,
                       fl_job *job, const yaml_node_t **culprit) FL_MUST_CHECK;

/* One item, a mapping, of a list that is no field: entry i, from 0, into item [item_bytes], which
 * is zeros. Failures as above; the item is then undefined. */
fl_status fl_list_read_item(const fl_list *list, yaml_document_t *document, const yaml_node_t *node,
                            int64_t i, void *item, const yaml_node_t **culprit) FL_MUST_CHECK;

/* The same as fl_list_read from YAML in flow style, "[{step: 10, k: 1}]". Also FL_ENOMEM. */
fl_status fl_list_parse(const fl_field *field, const char *text, size_t length,
                        fl_job *job) FL_MUST_CHECK;

/* In flow style, or the field's word when the list is empty. Returns text. */
const char *fl_list_format(const fl_field *field, const fl_job *job, char text[FL_FIELD_VALUE_MAX]);

/* As fl_field_check. */
fl_status fl_list_check(const fl_field *field, const fl_job *job) FL_MUST_CHECK;

/* Bytes that the list has in fl_job. */
size_t fl_list_size(const fl_field *field);

/* "step, f, k, r, m"; empty for a list of integers. Returns text. */
const char *fl_list_keys(const fl_list *list, char text[FL_FIELD_ALLOWED_MAX]);

#endif
