/* Nodes of a YAML document, for readers and messages. */
#ifndef FL_LAUNCHER_JOB_NODE_H
#define FL_LAUNCHER_JOB_NODE_H

#include "launcher/job/text.h"

#include <yaml.h>

/* The text of a scalar. Borrowed. */
const char *fl_node_text(const yaml_node_t *node);

/* Whether a scalar is null in YAML. */
bool fl_node_is_null(const yaml_node_t *node);

/* A scalar in quotes or in a block: never a number or a boolean. */
bool fl_node_is_quoted(const yaml_node_t *node);

/* Describe a node's content in a message: 'text', "a list", "a mapping" or "nothing". */
const char *fl_node_found(const yaml_node_t *node, char shown[FL_SHOWN_MAX]);

#endif
