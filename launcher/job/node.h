/* Nodes of a YAML document, as readers and messages see them. */
#ifndef FL_LAUNCHER_JOB_NODE_H
#define FL_LAUNCHER_JOB_NODE_H

#include "launcher/job/text.h"

#include <yaml.h>

/* The text of a scalar. Borrowed. */
const char *fl_node_text(const yaml_node_t *node);

/* A scalar that YAML reads as "nothing". */
bool fl_node_is_null(const yaml_node_t *node);

/* A scalar in quotes or in a block: never a number or a boolean. */
bool fl_node_is_quoted(const yaml_node_t *node);

/* What stands at a node, for messages: 'text', "a list", "a mapping" or "nothing". */
const char *fl_node_found(const yaml_node_t *node, char shown[FL_SHOWN_MAX]);

#endif
