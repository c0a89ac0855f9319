/* Writes YAML through libyaml's emitter, which quotes what has to be: no text can change the
 * structure. A failure is kept until the end. */
#ifndef FL_LAUNCHER_CLI_MANIFEST_MANIFEST_YAML_H
#define FL_LAUNCHER_CLI_MANIFEST_MANIFEST_YAML_H

#include <frostline/status.h>

#include <stdint.h>
#include <stdio.h>

typedef struct fl_yaml_writer fl_yaml_writer;

/* The stream is borrowed until destroy. FL_ENOMEM. */
fl_status fl_yaml_writer_create(FILE *stream, fl_yaml_writer **out) FL_MUST_CHECK;
void fl_yaml_writer_destroy(fl_yaml_writer **writer);

/* One document; each but the first begins after "---". */
void fl_yaml_document(fl_yaml_writer *w);
void fl_yaml_document_end(fl_yaml_writer *w);

/* A mapping or a list: as the value of `key`, or, with NULL, as an item of a list or a document's
 * root. */
void fl_yaml_map(fl_yaml_writer *w, const char *key);
void fl_yaml_map_end(fl_yaml_writer *w);
void fl_yaml_list(fl_yaml_writer *w, const char *key);
void fl_yaml_list_end(fl_yaml_writer *w);

/* A value, likewise: a text, which is quoted where it would be read as another type; a text of
 * several lines; an integer; true or false. */
void fl_yaml_text(fl_yaml_writer *w, const char *key, const char *text);
void fl_yaml_lines(fl_yaml_writer *w, const char *key, const char *text);
void fl_yaml_integer(fl_yaml_writer *w, const char *key, int64_t value);
void fl_yaml_boolean(fl_yaml_writer *w, const char *key, bool value);

/* FL_EIO if anything could not be written, and otherwise FL_OK. */
fl_status fl_yaml_finish(fl_yaml_writer *w) FL_MUST_CHECK;

#endif
