/* The data set of kind text. With blocks of T = 4 over a file of 11 tokens:
 *
 *     tokens    t0 t1 t2 t3 t4 t5 t6 t7 t8 t9 t10
 *     sample 0  t0 t1 t2 t3             targets t1 t2 t3 t4
 *     sample 1              t4 .. t7    targets t5 .. t8
 *     sample 2                 t8 t9    targets t9 t10 */
#include "data/text/text_dataset.h"

#include "data/read_sample.h"
#include "data/text/read_text.h"
#include "data/tokens/fields.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2 };

typedef struct text_dataset {
    int32_t *ids[N_SPLITS]; /* [info.n_tokens[split]] */
    int64_t max_tokens;
    fl_text_info info;
    uint64_t fingerprint;
} text_dataset;

/* ---- the table of functions ---- */

/* The last token of a file is a target only. */
static int64_t n_targets_of(const text_dataset *d, fl_split split)
{
    return d->info.n_tokens[split] > 0 ? d->info.n_tokens[split] - 1 : 0;
}

static int64_t count_samples(const void *self, fl_split split)
{
    const text_dataset *d = self;
    return (n_targets_of(d, split) + d->max_tokens - 1) / d->max_tokens;
}

/* Where a sample begins, and how many tokens it has. */
static fl_status find_block(const text_dataset *d, fl_split split, int64_t id, int64_t *begin,
                            int64_t *n)
{
    FL_TRY(fl__sample_check_id(id, count_samples(d, split)));
    *begin = id * d->max_tokens;
    *n = n_targets_of(d, split) - *begin;
    *n = *n < d->max_tokens ? *n : d->max_tokens;
    return FL_OK;
}

static fl_shape block_shape(const text_dataset *d, int64_t n_tokens)
{
    return (fl_shape){.tokens = n_tokens, .width = 1, .dtype = FL_I32, .n_ids = d->info.n_ids};
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    int64_t begin = 0;
    FL_TRY(find_block(self, split, id, &begin, n_targets));
    *input = block_shape(self, *n_targets);
    return FL_OK;
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const text_dataset *d = self;
    int64_t most = 0;
    for (int s = 0; s < N_SPLITS; s++) {
        int64_t n = n_targets_of(d, (fl_split)s);
        n = n < d->max_tokens ? n : d->max_tokens;
        most = n > most ? n : most;
    }
    *input = block_shape(d, most);
    *n_targets = most;
    return FL_OK;
}

static fl_status copy_block(const text_dataset *d, fl_split split, int64_t id, int64_t shift,
                            int32_t *out)
{
    int64_t begin = 0, n = 0;
    FL_TRY(find_block(d, split, id, &begin, &n));
    memcpy(out, d->ids[split] + begin + shift, (size_t)n * sizeof *out);
    return FL_OK;
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    return copy_block(self, split, key->id, 0, input);
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    return copy_block(self, split, id, 1, out);
}

static uint64_t fingerprint(const void *self)
{
    const text_dataset *d = self;
    return d->fingerprint;
}

static void destroy(void *self)
{
    text_dataset *d = self;
    for (int s = 0; s < N_SPLITS; s++) {
        fl_free(d->ids[s]);
    }
    fl_free(d);
}

static const fl_dataset_ops text_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "text",
    .count = count_samples,
    .shape = shape,
    .max_shape = max_shape,
    .read = read_sample,
    .targets = targets,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* ---- opening ---- */

static bool has_file(const fl_text_options *o, int split)
{
    return o->path[split] != NULL && o->path[split][0] != '\0';
}

static fl_status read_split(const fl_text_options *o, const fl_tokenizer *tokenizer, int split,
                            text_dataset *d)
{
    int64_t *n = &d->info.n_tokens[split];
    FL_TRY(fl__text_read(o->path[split], tokenizer, &d->ids[split], n));
    if (*n < 2) {
        return fl_fail(FL_EFORMAT,
                       "%s: a text of %" PRId64 " %s found, at least 2 tokens allowed: one and the "
                       "one that follows",
                       o->path[split], *n, *n == 1 ? "token" : "tokens");
    }
    return FL_OK;
}

static uint64_t hash_samples(const text_dataset *d)
{
    uint64_t hash = XXH3_64bits(&d->max_tokens, sizeof d->max_tokens);
    hash = XXH3_64bits_withSeed(&d->info.n_ids, sizeof d->info.n_ids, hash);
    for (int s = 0; s < N_SPLITS; s++) {
        size_t n = (size_t)d->info.n_tokens[s];
        hash = XXH3_64bits_withSeed(&n, sizeof n, hash);
        hash = n == 0 ? hash : XXH3_64bits_withSeed(d->ids[s], n * sizeof(int32_t), hash);
    }
    return hash;
}

static fl_status read_files(const fl_text_options *o, text_dataset *d)
{
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(fl__field_tokenizer_open(o->tokenizer, &tokenizer));
    fl_status status = FL_OK;
    for (int s = 0; s < N_SPLITS && status == FL_OK; s++) {
        status = has_file(o, s) ? read_split(o, tokenizer, s, d) : FL_OK;
    }
    d->info.n_ids = fl_tokenizer_n_ids(tokenizer);
    d->info.end_id = fl_tokenizer_find(tokenizer, "<|endoftext|>");
    fl_tokenizer_close(&tokenizer);
    return fl__field_name_path(status);
}

fl_status fl__text_check_options(const fl_text_options *o)
{
    if (!has_file(o, FL_TRAIN) && !has_file(o, FL_TEST)) {
        return fl_fail(FL_EINVAL, "no file of text found, at least one allowed");
    }
    if (o->max_tokens < 1 || o->max_tokens > FL_TEXT_TOKENS_MAX) {
        return fl_fail(FL_EINVAL, "blocks of %" PRId64 " tokens found, allowed: 1 to %d",
                       o->max_tokens, FL_TEXT_TOKENS_MAX);
    }
    return FL_OK;
}

fl_status fl_dataset_text_open(const fl_text_options *options, fl_dataset *out, fl_text_info *info)
{
    void *memory = NULL;
    FL_TRY(fl__text_check_options(options));
    FL_TRY(fl_alloc(sizeof(text_dataset), &memory));
    text_dataset *d = memory;
    d->max_tokens = options->max_tokens;
    fl_status status = read_files(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    d->fingerprint = hash_samples(d);
    *out = (fl_dataset){.ops = &text_ops, .self = d};
    if (info != NULL) {
        *info = d->info;
    }
    return FL_OK;
}

const fl_text_info *fl_dataset_text_info(const fl_dataset *dataset)
{
    const text_dataset *d = dataset->self;
    return dataset->ops == &text_ops ? &d->info : NULL;
}
