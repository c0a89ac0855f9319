#include "launcher/job/node.h"

#include "launcher/job/job.h"

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

fl_status fl_node_parse(const fl_field *field, const char *text, size_t length,
                        yaml_node_type_t type, fl_node_read_fn *read, fl_job *job)
{
    char allowed[FL_FIELD_ALLOWED_MAX], shown[FL_SHOWN_MAX];
    yaml_parser_t parser;
    yaml_document_t document;
    FL_TRY(fl_job_screen("value", text, length));
    if (!yaml_parser_initialize(&parser)) {
        return fl_fail(FL_ENOMEM, "out of memory");
    }
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    if (!yaml_parser_load(&parser, &document)) { /* the text was screened: no other cause */
        yaml_parser_delete(&parser);
        return fl_fail(FL_ENOMEM, "out of memory");
    }
    const yaml_node_t *culprit, *root = yaml_document_get_root_node(&document);
    fl_status status = root != NULL && root->type == type
                           ? read(field, &document, root, job, &culprit)
                           : fl_fail(FL_EINVAL, "found %s, allowed: %s",
                                     root == NULL ? "nothing" : fl_node_found(root, shown),
                                     fl_field_allowed(field, allowed));
    yaml_document_delete(&document);
    yaml_parser_delete(&parser);
    return status;
}
