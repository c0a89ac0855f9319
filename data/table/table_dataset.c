/* The data set of kind table.
 *
 *     ① content of both files ──> ② key ──> ⑤ cache: arrays
 *         where it lacks them, for each file: ③ rows ──> classes, ④ tokens ──> arrays ──> ⑤
 *     read: id ──> its tokens
 *
 * The labels of the training file come first (③): they number the classes of both files. */
#include "data/table/table_dataset.h"

#include "data/read_sample.h"
#include "data/table/cache.h"
#include "data/tokens/fields.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/program.h"

#include <assert.h>
#include <limits.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2 };

typedef struct table_dataset {
    fl_table_tokens tokens;
    fl_table_info info;
    fl_shape longest;
    uint64_t fingerprint;
} table_dataset;

/* ---- the table of functions ---- */

static int64_t count_samples(const void *self, fl_split split)
{
    const table_dataset *d = self;
    return d->tokens.split[split].tokens.n;
}

static fl_status check_id(const table_dataset *d, fl_split split, int64_t id)
{
    return fl__sample_check_id(id, d->tokens.split[split].tokens.n);
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const table_dataset *d = self;
    *input = d->longest;
    *n_targets = 1;
    return FL_OK;
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    const table_dataset *d = self;
    FL_TRY(check_id(d, split, id));
    *input = d->longest;
    input->tokens = fl__token_samples_length(&d->tokens.split[split].tokens, id);
    *n_targets = 1;
    return FL_OK;
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const table_dataset *d = self;
    const fl_token_samples *s = &d->tokens.split[split].tokens;
    FL_TRY(check_id(d, split, key->id));
    int64_t begin = s->begin[key->id], n = fl__token_samples_length(s, key->id);
    int32_t *out = input;
    if (s->types == NULL) {
        memcpy(out, s->ids + begin, (size_t)n * sizeof *out);
        return FL_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        out[2 * i] = s->ids[begin + i];
        out[2 * i + 1] = s->types[begin + i];
    }
    return FL_OK;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    const table_dataset *d = self;
    FL_TRY(check_id(d, split, id));
    *out = d->tokens.split[split].labels[id];
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    const table_dataset *d = self;
    return d->fingerprint;
}

static void destroy(void *self)
{
    table_dataset *d = self;
    fl__table_tokens_fini(&d->tokens);
    fl_free(d);
}

static const fl_dataset_ops table_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "table",
    .count = count_samples,
    .shape = shape,
    .max_shape = max_shape,
    .read = read_sample,
    .targets = targets,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* ---- opening ---- */

/* ③ The labels are those of the first file that is read, unless they were given. */
static fl_status find_labels(const fl_table_options *o, const fl_table_rows *rows,
                             fl_table_labels *labels)
{
    if (labels->names != NULL || o->label == NULL) {
        return FL_OK;
    }
    return o->labels != NULL ? fl__table_labels_copy("the model", o->labels, o->n_labels, labels)
                             : fl__table_labels_collect(rows, labels);
}

static fl_status map_labels(const fl_table_labels *labels, const fl_table_rows *rows, bool optional,
                            fl_table_split *split)
{
    FL_TRY(fl_alloc_array(rows->n, sizeof *split->labels, (void **)&split->labels));
    if (labels->names == NULL) {
        memset(split->labels, 0xFF, rows->n * sizeof *split->labels); /* -1 everywhere */
        return FL_OK;
    }
    return fl__table_labels_map(labels, rows, optional, split->labels);
}

static fl_status take_rows(const fl_table_options *o, const fl_tokenizer *tokenizer,
                           const fl_table_rows *rows, table_dataset *d, fl_split s)
{
    const fl_text_list texts = fl__table_texts(rows);
    const fl_token_encoding encoding = {
        .tokenizer = tokenizer, .special = true, .max_tokens = o->max_tokens, .types = o->types};
    FL_TRY(find_labels(o, rows, &d->tokens.labels));
    FL_TRY(fl__tokens_encode(&texts, &encoding, &d->tokens.split[s].tokens));
    return map_labels(&d->tokens.labels, rows, o->labels_optional, &d->tokens.split[s]);
}

static bool has_file(const fl_table_options *o, int split)
{
    return o->path[split] != NULL && o->path[split][0] != '\0';
}

static fl_status tokenize_split(const fl_table_options *o, const fl_tokenizer *tokenizer,
                                fl_content *content, table_dataset *d, fl_split s)
{
    const fl_table_columns columns = {.name = {o->text, o->pair, o->label},
                                      .label_optional = o->labels_optional};
    fl_table_rows rows = {0};
    fl_status status = fl__table_rows_read(content, &columns, &rows);
    if (status == FL_OK) {
        status = take_rows(o, tokenizer, &rows, d, s);
    }
    fl__table_rows_fini(&rows);
    return fl__memory_name_file(status, content->path);
}

/* ---- ② ---- */

static void mix_content(const fl_content *content, fl_kept_key *key)
{
    fl_table_format format = FL_TABLE_TSV;
    int64_t number = fl__table_format_find(content->path, &format) == FL_OK ? (int64_t)format : -2;
    fl__kept_key_mix(key, &number, sizeof number);
    fl__kept_key_mix(key, content->bytes, content->n_bytes);
}

static fl_kept_key key_of(const fl_table_options *o, const fl_tokenizer *tokenizer,
                          const fl_content content[N_SPLITS])
{
    const uint64_t settings[] = {fl_program_build(),      fl_tokenizer_fingerprint(tokenizer),
                                 (uint64_t)o->max_tokens, o->types,
                                 (uint64_t)o->n_labels,   o->labels != NULL,
                                 o->labels_optional};
    const int64_t none = -1;
    fl_kept_key key = {{0}};
    fl__kept_key_mix_text(&key, "table");
    fl__kept_key_mix(&key, settings, sizeof settings);
    fl__kept_key_mix_text(&key, o->text);
    fl__kept_key_mix_text(&key, o->pair);
    fl__kept_key_mix_text(&key, o->label);
    for (int i = 0; i < o->n_labels && o->labels != NULL; i++) {
        fl__kept_key_mix_text(&key, o->labels[i]);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        if (has_file(o, s)) {
            mix_content(&content[s], &key);
        } else {
            fl__kept_key_mix(&key, &none, sizeof none);
        }
    }
    return key;
}

/* ---- ⑤ ---- */

/* Whether the cache had the tokens. */
static bool read_kept(const char *path, const fl_table_options *o, const fl_tokenizer *tokenizer,
                      const fl_kept_key *key, table_dataset *d)
{
    bool found = false;
    fl_status status = fl__table_cache_read(path, key, fl_tokenizer_n_ids(tokenizer), o->types,
                                            &d->tokens, &found);
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "data: %s; the rows are tokenized again", fl_errmsg());
    }
    return found && status == FL_OK;
}

static void write_kept(const char *path, const fl_kept_key *key, const table_dataset *d)
{
    if (fl__table_cache_write(path, key, &d->tokens) != FL_OK) {
        fl_log(FL_LOG_WARN, "data: the tokens are not kept: %s", fl_errmsg());
    }
}

static fl_status take_tokens(const fl_table_options *o, const fl_tokenizer *tokenizer,
                             fl_content content[N_SPLITS], table_dataset *d)
{
    char path[PATH_MAX];
    bool keeps = false;
    fl_kept_key key = {{0}};
    if (o->cache != NULL) {
        key = key_of(o, tokenizer, content);
        keeps = fl__kept_path(o->cache, &key, path);
    }
    d->info.from_cache = keeps && read_kept(path, o, tokenizer, &key, d);
    if (d->info.from_cache) {
        return FL_OK;
    }
    for (int s = 0; s < N_SPLITS; s++) {
        if (has_file(o, s)) {
            FL_TRY(tokenize_split(o, tokenizer, &content[s], d, (fl_split)s));
        }
    }
    if (keeps) {
        write_kept(path, &key, d);
    }
    return FL_OK;
}

static fl_status read_files(const fl_table_options *o, const fl_tokenizer *tokenizer,
                            table_dataset *d)
{
    fl_content content[N_SPLITS] = {0};
    fl_status status = FL_OK;
    for (int s = 0; s < N_SPLITS && status == FL_OK; s++) {
        if (has_file(o, s)) {
            status = fl__content_read(o->path[s], FL_TABLE_LINE_BYTES_MAX, &content[s]);
        }
    }
    if (status == FL_OK) {
        status = take_tokens(o, tokenizer, content, d);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        fl__content_fini(&content[s]);
    }
    return fl__field_name_path(status);
}

/* ---- the result ---- */

static uint64_t measure_fingerprint(const table_dataset *d)
{
    uint64_t hash = XXH64(&d->info.n_ids, sizeof d->info.n_ids, 0);
    for (int i = 0; i < d->tokens.labels.n; i++) {
        hash = XXH64(d->tokens.labels.names[i], strlen(d->tokens.labels.names[i]) + 1, hash);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        const fl_table_split *split = &d->tokens.split[s];
        hash = fl__token_samples_hash(&split->tokens, hash);
        hash = XXH64(split->labels, (size_t)split->tokens.n * sizeof *split->labels, hash);
    }
    return hash;
}

static void describe_dataset(const fl_table_options *o, const fl_tokenizer *tokenizer,
                             table_dataset *d)
{
    const fl_token_samples *train = &d->tokens.split[FL_TRAIN].tokens;
    const fl_token_samples *test = &d->tokens.split[FL_TEST].tokens;
    int64_t longest = fl__token_samples_longest(train), other = fl__token_samples_longest(test);
    d->info.n_ids = fl_tokenizer_n_ids(tokenizer);
    d->info.n_classes = d->tokens.labels.n;
    d->info.labels = (const char *const *)d->tokens.labels.names;
    d->info.n_rows = train->n + test->n;
    d->info.n_tokens = fl__token_samples_total(train) + fl__token_samples_total(test);
    d->longest = (fl_shape){.tokens = longest > other ? longest : other,
                            .width = o->types ? 2 : 1,
                            .dtype = FL_I32,
                            .n_ids = d->info.n_ids};
    d->fingerprint = measure_fingerprint(d);
}

static fl_status fill_dataset(const fl_table_options *o, table_dataset *d)
{
    fl_tokenizer *tokenizer = NULL;
    int64_t begun_us = fl_now_us();
    FL_TRY(fl__field_tokenizer_open(o->tokenizer, &tokenizer));
    fl_status status = fl__field_check_max_tokens(tokenizer, o->pair != NULL, o->max_tokens);
    if (status == FL_OK) {
        status = read_files(o, tokenizer, d);
    }
    if (status == FL_OK) {
        describe_dataset(o, tokenizer, d);
        d->info.took_us = fl_now_us() - begun_us;
    }
    fl_tokenizer_close(&tokenizer);
    return status;
}

fl_status fl_dataset_table_open(const fl_table_options *options, fl_dataset *out,
                                fl_table_info *info)
{
    void *memory = NULL;
    assert(has_file(options, FL_TRAIN) || has_file(options, FL_TEST));
    FL_TRY(fl_alloc(sizeof(table_dataset), &memory));
    table_dataset *d = memory;
    fl_status status = fill_dataset(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    *out = (fl_dataset){.ops = &table_ops, .self = d};
    if (info != NULL) {
        *info = d->info;
    }
    return FL_OK;
}

const fl_table_info *fl_dataset_table_info(const fl_dataset *dataset)
{
    const table_dataset *d = dataset->self;
    return dataset->ops == &table_ops ? &d->info : NULL;
}
