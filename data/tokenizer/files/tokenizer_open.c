/* Opening the tokenizer of a folder:
 *
 *     files (1) -> model and vocabulary (2) -> added tokens (3) -> tokenizer_config.json (4)
 *         -> tables that encoding looks into (5) */
#include "data/tokenizer/files/tokenizer_open.h"

#include "data/tokenizer/added.h"
#include "data/tokenizer/bert.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/files/files.h"
#include "device/system/alloc.h"
#include "device/text/shown_text.h"

#include <xxhash.h>

/* ---- (1) ---- */

typedef struct token_folder {
    fl_token_file tokenizer, config, vocab_txt, vocab_json, merges, added;
} token_folder;

static fl_status read_folder(const char *path, token_folder *f)
{
    FL_TRY(fl__token_file_read(path, "tokenizer_config.json", &f->config));
    FL_TRY(fl__token_file_read(path, "tokenizer.json", &f->tokenizer));
    if (f->tokenizer.bytes != NULL) {
        return FL_OK;
    }
    FL_TRY(fl__token_file_read(path, "added_tokens.json", &f->added));
    if (f->added.bytes != NULL) {
        return fl_fail(FL_ENOTSUP,
                       "%s is not read: save the tokenizer with transformers 4 or "
                       "later, which writes tokenizer.json",
                       f->added.path);
    }
    FL_TRY(fl__token_file_read(path, "vocab.txt", &f->vocab_txt));
    if (f->vocab_txt.bytes != NULL) {
        return FL_OK;
    }
    FL_TRY(fl__token_file_read(path, "vocab.json", &f->vocab_json));
    FL_TRY(fl__token_file_read(path, "merges.txt", &f->merges));
    if (f->vocab_json.bytes == NULL || f->merges.bytes == NULL) {
        char shown[FL_SHOWN_PATH_BYTES];
        return fl_fail(FL_EIO,
                       "%s: no tokenizer there: neither tokenizer.json, nor vocab.txt, nor "
                       "vocab.json with merges.txt",
                       fl_text_shown(path, shown, sizeof shown));
    }
    return FL_OK;
}

static void free_folder(token_folder *f)
{
    fl__token_file_fini(&f->tokenizer);
    fl__token_file_fini(&f->config);
    fl__token_file_fini(&f->vocab_txt);
    fl__token_file_fini(&f->vocab_json);
    fl__token_file_fini(&f->merges);
    fl__token_file_fini(&f->added);
}

static uint64_t hash_file(uint64_t hash, const fl_token_file *file)
{
    const int64_t n = file->bytes == NULL ? -1 : (int64_t)file->n_bytes;
    hash = XXH64(&n, sizeof n, hash);
    return n < 0 ? hash : XXH64(file->bytes, file->n_bytes, hash);
}

/* Of what was read: each file at its place. */
static uint64_t hash_folder(const token_folder *f)
{
    uint64_t hash = hash_file(0, &f->config);
    hash = hash_file(hash, &f->tokenizer);
    hash = hash_file(hash, &f->vocab_txt);
    hash = hash_file(hash, &f->vocab_json);
    return hash_file(hash, &f->merges);
}

/* ---- (2) to (4) ---- */

static fl_status read_tokenizer_json(const token_folder *f, fl_tokenizer *t)
{
    json_t *root;
    FL_TRY(fl__token_file_parse(&f->tokenizer, &root));
    fl_status status = fl__tokenizer_json_read(f->tokenizer.path, root, t);
    if (status == FL_OK) {
        status = fl__tokenizer_json_read_added(f->tokenizer.path, root, t);
    }
    if (status == FL_OK) {
        status = fl__tokenizer_json_read_processor(f->tokenizer.path, root, t);
    }
    json_decref(root);
    return status;
}

static fl_status read_vocab_json(const token_folder *f, fl_tokenizer *t)
{
    json_t *root;
    FL_TRY(fl__token_file_parse(&f->vocab_json, &root));
    fl_status status =
        fl__vocab_json_read(f->vocab_json.path, "the vocabulary", root, &t->vocabulary);
    json_decref(root);
    return status == FL_OK ? fl__merges_txt_read(&f->merges, t) : status;
}

static fl_status read_model(const token_folder *f, fl_tokenizer *t)
{
    if (f->tokenizer.bytes != NULL) {
        return read_tokenizer_json(f, t);
    }
    t->kind = f->vocab_txt.bytes != NULL ? FL_WORDPIECE : FL_BYTE_BPE;
    return t->kind == FL_WORDPIECE ? fl__vocab_txt_read(&f->vocab_txt, &t->chars, &t->vocabulary)
                                   : read_vocab_json(f, t);
}

static fl_status read_config(const token_folder *f, fl_tokenizer *t)
{
    bool has_tokenizer_json = f->tokenizer.bytes != NULL;
    json_t *root = NULL;
    if (f->config.bytes != NULL) {
        FL_TRY(fl__token_file_parse(&f->config, &root));
    }
    fl_status status = fl__config_json_read(f->config.path, root, has_tokenizer_json, t);
    json_decref(root);
    return status;
}

/* ---- (5) ---- */

static fl_status prepare_tables(fl_tokenizer *t)
{
    fl_token_scratch *scratch = NULL;
    if (t->kind == FL_WORDPIECE) {
        fl__bert_prepare(t);
    } else {
        fl__bpe_prepare(t);
    }
    FL_TRY(fl_token_scratch_create(t, &scratch));
    fl_status status = fl__added_prepare(t, scratch);
    fl_token_scratch_destroy(&scratch);
    return status;
}

static fl_status open_tokenizer(const char *path, token_folder *f, fl_tokenizer *t)
{
    FL_TRY(fl__vocabulary_init(&t->vocabulary));
    FL_TRY(fl_trie_init(&t->added_names));
    FL_TRY(read_folder(path, f));
    t->fingerprint = hash_folder(f);
    FL_TRY(read_model(f, t));
    FL_TRY(read_config(f, t));
    return prepare_tables(t);
}

fl_status fl_tokenizer_open(const char *folder, fl_tokenizer **out)
{
    fl_tokenizer *t = NULL;
    token_folder *files = NULL;
    FL_TRY(fl_alloc(sizeof *t, (void **)&t));
    t->unknown = -1;
    t->word_chars_max = 100;
    fl_char_table_fill(&t->chars);
    fl__bpe_spell_bytes(t->byte_texts);
    fl_status status = fl_alloc(sizeof *files, (void **)&files);
    if (status == FL_OK) {
        status = open_tokenizer(folder, files, t);
        free_folder(files);
    }
    fl_free(files);
    if (status != FL_OK) {
        fl_tokenizer_close(&t);
        return status;
    }
    *out = t;
    return FL_OK;
}
