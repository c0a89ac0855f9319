/* Reading the files of a tokenizer. Each function checks all that it takes over; messages begin
 * with the file. */
#ifndef FL_DATA_TOKENIZER_FILES_FILES_H
#define FL_DATA_TOKENIZER_FILES_FILES_H

#include "data/tokenizer/parts.h"

#include <jansson.h>
#include <limits.h>

/* One file of the folder, read whole. */
typedef struct fl_token_file {
    char path[PATH_MAX];
    char *bytes; /* [n_bytes] and a zero byte; NULL: there is no such file */
    size_t n_bytes;
} fl_token_file;

enum { FL_TOKEN_FILE_BYTES_MAX = 1 << 29 };

/* FL_EIO, FL_EFORMAT for a file that is too large or not UTF-8 (with line and byte), FL_ENOMEM. A
 * file that is not there is none of these. */
fl_status fl__token_file_read(const char *folder, const char *name,
                              fl_token_file *out) FL_MUST_CHECK;
void fl__token_file_fini(fl_token_file *file);

/* The file's JSON object; FL_EFORMAT with line and column. json_decref it. */
fl_status fl__token_file_parse(const fl_token_file *file, json_t **out) FL_MUST_CHECK;

/* Lines one after the other: false behind the last one. A line ends in LF or CR LF, which do not
 * count to it. */
typedef struct fl_token_lines {
    const fl_token_file *file;
    size_t at;
    const char *line;
    size_t n;
    int64_t number; /* from 1 */
} fl_token_lines;
bool fl__token_lines_next(fl_token_lines *lines);

/* vocab.txt: a piece a line, its number is its id. */
fl_status fl__vocab_txt_read(const fl_token_file *file, const fl_char_table *chars,
                             fl_vocabulary *v) FL_MUST_CHECK;

/* A JSON object of pieces and their ids. where: "model.vocab" or "the vocabulary" */
fl_status fl__vocab_json_read(const char *path, const char *where, const json_t *object,
                              fl_vocabulary *v) FL_MUST_CHECK;

/* Merges of BPE: lines of merges.txt, or the list in tokenizer.json. */
fl_status fl__merges_txt_read(const fl_token_file *file, fl_tokenizer *t) FL_MUST_CHECK;
fl_status fl__merges_json_read(const char *path, const json_t *list, fl_tokenizer *t) FL_MUST_CHECK;

/* Everything of tokenizer.json but what stands around texts, which needs the ids of added tokens.
 */
fl_status fl__tokenizer_json_read(const char *path, const json_t *root,
                                  fl_tokenizer *t) FL_MUST_CHECK;
fl_status fl__tokenizer_json_read_added(const char *path, const json_t *root,
                                        fl_tokenizer *t) FL_MUST_CHECK;
fl_status fl__tokenizer_json_read_processor(const char *path, const json_t *root,
                                            fl_tokenizer *t) FL_MUST_CHECK;

/* [CLS] text [SEP], and [CLS] text [SEP] pair [SEP]. */
void fl__template_bert(fl_tokenizer *t, int32_t cls, int32_t sep);

/* begin text end, and the same of the pair behind it; -1: no such token. */
void fl__template_plain(fl_tokenizer *t, int32_t begin, int32_t end);

/* tokenizer_config.json, which is absent where root is NULL. In a folder without tokenizer.json it
 * stands for all that this file would tell but the vocabulary, and has defaults. */
fl_status fl__config_json_read(const char *path, const json_t *root, bool has_tokenizer_json,
                               fl_tokenizer *t) FL_MUST_CHECK;

/* ---- fields of JSON objects; `where` is the path of the object, for messages ---- */

typedef struct fl_json_place {
    const char *path, *where;
    const json_t *object;
} fl_json_place;

/* Absent or null: *out stays as it is. FL_EFORMAT for another type. */
fl_status fl__json_bool(const fl_json_place *p, const char *key, bool *out) FL_MUST_CHECK;
fl_status fl__json_text(const fl_json_place *p, const char *key, const char **out) FL_MUST_CHECK;
fl_status fl__json_count(const fl_json_place *p, const char *key, int64_t *out) FL_MUST_CHECK;

/* {"content": "[MASK]", "lstrip": false, ...} */
fl_status fl__json_added_token(const fl_json_place *p, fl_tokenizer *t) FL_MUST_CHECK;

/* FL_EFORMAT: "FILE: WHERE.KEY: found ..., allowed: ..." */
fl_status fl__json_refuse(const fl_json_place *p, const char *key, const json_t *found,
                          const char *allowed) FL_MUST_CHECK;

#endif
