#include "launcher/job/node.h"

#include <string.h>

const char *fl_node_text(const yaml_node_t *node)
{
    return (const char *)node->data.scalar.value;
}

bool fl_node_is_quoted(const yaml_node_t *node)
{
    return node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
}

bool fl_node_is_null(const yaml_node_t *node)
{
    if (node->type != YAML_SCALAR_NODE || fl_node_is_quoted(node)) {
        return false;
    }
    const char *text = fl_node_text(node);
    return text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
           strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0;
}

const char *fl_node_found(const yaml_node_t *node, char shown[FL_SHOWN_MAX])
{
    switch (node->type) {
    case YAML_SEQUENCE_NODE:
        return "a list";
    case YAML_MAPPING_NODE:
        return "a mapping";
    default:
        return fl_node_is_null(node)
                   ? "nothing"
                   : fl_shown(fl_node_text(node), node->data.scalar.length, shown);
    }
}
