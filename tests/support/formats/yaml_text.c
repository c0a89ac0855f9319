#include "support/formats/yaml_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include <cmocka.h>

static json_t *convert(yaml_document_t *d, int id)
{
    yaml_node_t *node = yaml_document_get_node(d, id);
    json_t *value = node->type == YAML_SEQUENCE_NODE  ? json_array()
                    : node->type == YAML_MAPPING_NODE ? json_object()
                                                      : NULL;
    if (value == NULL) {
        return json_stringn((const char *)node->data.scalar.value, node->data.scalar.length);
    }
    for (yaml_node_item_t *i = node->data.sequence.items.start;
         node->type == YAML_SEQUENCE_NODE && i < node->data.sequence.items.top; i++) {
        json_array_append_new(value, convert(d, *i));
    }
    for (yaml_node_pair_t *p = node->data.mapping.pairs.start;
         node->type == YAML_MAPPING_NODE && p < node->data.mapping.pairs.top; p++) {
        const char *key = (const char *)yaml_document_get_node(d, p->key)->data.scalar.value;
        assert_null(json_object_get(value, key));
        json_object_set_new(value, key, convert(d, p->value));
    }
    return value;
}

json_t *yaml_documents(const char *text)
{
    json_t *all = json_array();
    yaml_parser_t parser;
    yaml_document_t document;
    assert_int_equal(yaml_parser_initialize(&parser), 1);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    while (true) {
        if (!yaml_parser_load(&parser, &document)) {
            fail_msg("line %zu: %s", parser.problem_mark.line + 1, parser.problem);
        }
        bool end = yaml_document_get_root_node(&document) == NULL;
        if (!end) {
            json_array_append_new(all, convert(&document, 1));
        }
        yaml_document_delete(&document);
        if (end) {
            break;
        }
    }
    yaml_parser_delete(&parser);
    return all;
}

json_t *yaml_at(json_t *value, const char *path)
{
    while (value != NULL && *path != '\0') {
        char key[64];
        size_t n = strcspn(path, ".");
        assert_true(n < sizeof key);
        memcpy(key, path, n);
        key[n] = '\0';
        value = json_is_array(value) ? json_array_get(value, (size_t)strtol(key, NULL, 10))
                                     : json_object_get(value, key);
        path += path[n] == '.' ? n + 1 : n;
    }
    return value;
}

const char *yaml_text(json_t *value, const char *path)
{
    const char *text = json_string_value(yaml_at(value, path));
    if (text == NULL) {
        fail_msg("%s: it is not there", path);
    }
    return text;
}

const char *yaml_word_after(json_t *words, const char *word)
{
    const char *found = NULL;
    for (size_t i = 0; i + 1 < json_array_size(words); i++) {
        if (strcmp(json_string_value(json_array_get(words, i)), word) == 0) {
            found = json_string_value(json_array_get(words, i + 1));
        }
    }
    if (found == NULL) {
        fail_msg("no %s", word);
    }
    return found;
}

json_t *yaml_of_kind(json_t *documents, const char *kind)
{
    for (size_t i = 0; i < json_array_size(documents); i++) {
        json_t *d = json_array_get(documents, i);
        if (strcmp(yaml_text(d, "kind"), kind) == 0) {
            return d;
        }
    }
    return NULL;
}

void yaml_expanded(const char *word, char *text, size_t size_bytes)
{
    size_t used = 0;
    for (; *word != '\0'; word++) {
        assert_true(used + 1 < size_bytes && strncmp(word, "$(", 2) != 0);
        word += strncmp(word, "$$", 2) == 0;
        text[used++] = *word;
    }
    text[used] = '\0';
}
