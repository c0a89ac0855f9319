/* Nodes of a YAML document, for readers and messages. */
#ifndef FL_LAUNCHER_JOB_NODE_H
#define FL_LAUNCHER_JOB_NODE_H

#include "launcher/job/field.h"
#include "launcher/job/text/text.h"

#include <yaml.h>

/* The text of a scalar. Borrowed. */
const char *fl_node_text(const yaml_node_t *node);

/* Whether a scalar is null in YAML. */
bool fl_node_is_null(const yaml_node_t *node);

/* A scalar in quotes or in a block: never a number or a boolean. */
bool fl_node_is_quoted(const yaml_node_t *node);

/* Describe a node's content in a message: 'text', "a list", "a mapping" or "nothing". */
const char *fl_node_found(const yaml_node_t *node, char shown[FL_SHOWN_MAX]);

/* Reads a node of a document into the field of a job; *culprit: the node that was refused. */
typedef fl_status fl_node_read_fn(const fl_field *field, yaml_document_t *document,
                                  const yaml_node_t *node, fl_job *job,
                                  const yaml_node_t **culprit);

/* Read the text of --set, which is one node of the given type, as YAML. FL_EINVAL: the text is no
 * such node, or `read` refused it. */
fl_status fl_node_parse(const fl_field *field, const char *text, size_t length,
                        yaml_node_type_t type, fl_node_read_fn *read, fl_job *job) FL_MUST_CHECK;

#endif
