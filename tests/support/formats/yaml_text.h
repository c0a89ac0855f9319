/* YAML of several documents, read back to look at what a program wrote. */
#ifndef FL_TESTS_SUPPORT_FORMATS_YAML_TEXT_H
#define FL_TESTS_SUPPORT_FORMATS_YAML_TEXT_H

#include <jansson.h>
#include <stddef.h>

/* All documents, as an array; each scalar is a text. Fails the test if it is no YAML, or a key is
 * there twice. The caller releases it. */
json_t *yaml_documents(const char *text);

/* "spec.template.0.name" below a value; NULL: it is not there. Borrowed. */
json_t *yaml_at(json_t *value, const char *path);

/* The same of a scalar; fails the test if it is not there. */
const char *yaml_text(json_t *value, const char *path);

/* The word after this one in a list of words, the last such; fails the test if it is not there. */
const char *yaml_word_after(json_t *words, const char *word);

/* The document of this kind; NULL: there is none. */
json_t *yaml_of_kind(json_t *documents, const char *kind);

/* A word of a command as Kubernetes starts it: $$ is $; fails the test for $(NAME), which it would
 * replace. */
void yaml_expanded(const char *word, char *text, size_t size_bytes);

#endif
