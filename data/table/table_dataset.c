/* The data set of kind table.
 *
 *     for each file: ① content ──> ② rows ──> ③ classes, ④ tokens ──> arrays
 *     read: id ──> its tokens
 *
 * The labels of the training file come first (③): they number the classes of both files. */
#include "data/table/table_dataset.h"

#include "data/table/encode.h"
#include "data/table/labels.h"
#include "device/alloc.h"
#include "device/failure.h"

#include <assert.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2 };

typedef struct table_dataset {
    fl_table_split split[N_SPLITS];
    fl_table_labels labels;
    fl_table_info info;
    fl_shape longest;
    uint64_t fingerprint;
} table_dataset;

/* ---- the table of functions ---- */

static int64_t count_samples(const void *self, fl_split split)
{
    const table_dataset *d = self;
    return d->split[split].n;
}

static fl_status check_id(const table_dataset *d, fl_split split, int64_t id)
{
    int64_t n = d->split[split].n;
    return id >= 0 && id < n
               ? FL_OK
               : fl_fail(FL_EINVAL, "sample %lld does not exist: ids of this split are 0 to %lld",
                         (long long)id, (long long)(n - 1));
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
    input->tokens = d->split[split].begin[id + 1] - d->split[split].begin[id];
    *n_targets = 1;
    return FL_OK;
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const table_dataset *d = self;
    const fl_table_split *s = &d->split[split];
    FL_TRY(check_id(d, split, key->id));
    int64_t begin = s->begin[key->id], n = s->begin[key->id + 1] - begin;
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
    *out = d->split[split].labels[id];
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
    for (int s = 0; s < N_SPLITS; s++) {
        fl__table_split_fini(&d->split[s]);
    }
    fl__table_labels_fini(&d->labels);
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

static fl_status map_labels(const fl_table_labels *labels, const fl_table_rows *rows,
                            fl_table_split *split)
{
    FL_TRY(fl_alloc_array(rows->n, sizeof *split->labels, (void **)&split->labels));
    if (labels->names == NULL) {
        memset(split->labels, 0xFF, rows->n * sizeof *split->labels); /* -1 everywhere */
        return FL_OK;
    }
    return fl__table_labels_map(labels, rows, split->labels);
}

static fl_status take_rows(const fl_table_options *o, const fl_tokenizer *tokenizer,
                           const fl_table_rows *rows, table_dataset *d, fl_split s)
{
    const fl_table_encoding encoding = {
        .tokenizer = tokenizer, .max_tokens = o->max_tokens, .types = o->types};
    FL_TRY(find_labels(o, rows, &d->labels));
    FL_TRY(fl__table_encode(rows, &encoding, &d->split[s]));
    return map_labels(&d->labels, rows, &d->split[s]);
}

/* Unless the message is about another field, it is about the file. */
static fl_status name_field(fl_status status)
{
    return status == FL_OK || status == FL_ENOMEM || fl_failure_field(0) != NULL
               ? status
               : fl_fail_field(status, FL_FIELDS("data.path"), "%s", fl_errmsg());
}

static fl_status read_split(const fl_table_options *o, const fl_tokenizer *tokenizer,
                            table_dataset *d, fl_split s)
{
    const fl_table_columns columns = {.name = {o->text, o->pair, o->label},
                                      .label_optional = o->labels_optional};
    fl_table_content content;
    fl_table_rows rows;
    FL_TRY(fl__table_content_read(o->path[s], &content));
    fl_status status = fl__table_rows_read(&content, &columns, &rows);
    if (status == FL_OK) {
        status = take_rows(o, tokenizer, &rows, d, s);
        fl__table_rows_fini(&rows);
    }
    fl__table_content_fini(&content);
    return status;
}

static bool has_file(const fl_table_options *o, int split)
{
    return o->path[split] != NULL && o->path[split][0] != '\0';
}

static int64_t longest_of(const fl_table_split *split)
{
    int64_t longest = 0;
    for (int64_t i = 0; i < split->n; i++) {
        int64_t n = split->begin[i + 1] - split->begin[i];
        longest = n > longest ? n : longest;
    }
    return longest;
}

static uint64_t measure_fingerprint(const table_dataset *d)
{
    uint64_t hash = XXH64(&d->info.n_ids, sizeof d->info.n_ids, 0);
    for (int i = 0; i < d->labels.n; i++) {
        hash = XXH64(d->labels.names[i], strlen(d->labels.names[i]) + 1, hash);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        const fl_table_split *split = &d->split[s];
        size_t n = (size_t)split->n, n_tokens = n == 0 ? 0 : (size_t)split->begin[n];
        hash = XXH64(&split->n, sizeof split->n, hash);
        hash = XXH64(split->begin, n == 0 ? 0 : (n + 1) * sizeof *split->begin, hash);
        hash = XXH64(split->ids, n_tokens * sizeof *split->ids, hash);
        hash = XXH64(split->types, split->types == NULL ? 0 : n_tokens, hash);
        hash = XXH64(split->labels, n * sizeof *split->labels, hash);
    }
    return hash;
}

static void describe_dataset(const fl_table_options *o, const fl_tokenizer *tokenizer,
                             table_dataset *d)
{
    int64_t train = longest_of(&d->split[FL_TRAIN]), test = longest_of(&d->split[FL_TEST]);
    d->info = (fl_table_info){.n_ids = fl_tokenizer_n_ids(tokenizer),
                              .n_classes = d->labels.n,
                              .labels = (const char *const *)d->labels.names};
    d->longest = (fl_shape){.tokens = train > test ? train : test,
                            .width = o->types ? 2 : 1,
                            .dtype = FL_I32,
                            .n_ids = d->info.n_ids};
    d->fingerprint = measure_fingerprint(d);
}

static fl_status fill_dataset(const fl_table_options *o, table_dataset *d)
{
    fl_tokenizer *tokenizer = NULL;
    fl_status status = fl_tokenizer_open(o->tokenizer, &tokenizer);
    if (status != FL_OK && status != FL_ENOMEM) {
        return fl_fail_field(status, FL_FIELDS("data.tokenizer"), "%s", fl_errmsg());
    }
    for (int s = 0; s < N_SPLITS && status == FL_OK; s++) {
        if (has_file(o, s)) {
            status = name_field(read_split(o, tokenizer, d, (fl_split)s));
        }
    }
    if (status == FL_OK) {
        describe_dataset(o, tokenizer, d);
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
