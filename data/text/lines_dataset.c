/* With parts of T = 4 targets, and a file of three lines of 7, 0 and 2 tokens:
 *
 *     line 0  t0 t1 t2 t3 t4 t5 t6   sample 0  t0 t1 t2 t3    targets t1 .. t4
 *                                    sample 1  t4 t5          targets t5 t6
 *     line 1                         sample 2  a token that stands in, and counts nothing
 *     line 2  u0 u1                  sample 3  u0             target u1 */
#include "data/text/lines_dataset.h"

#include "data/read_sample.h"
#include "data/tokens/content.h"
#include "data/tokens/encode.h"
#include "data/tokens/fields.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2, LINE_BYTES_MAX = 1 << 26 };

typedef struct lines_split {
    fl_token_samples tokens; /* of each line */
    int64_t *first;          /* [tokens.n + 1] the number of each line's first sample */
} lines_split;

typedef struct lines_dataset {
    lines_split split[N_SPLITS];
    int64_t max_targets; /* of a part */
    int32_t n_ids;
} lines_dataset;

/* ---- parts of lines ---- */

static int64_t count_targets(const lines_split *s, int64_t line)
{
    int64_t n = fl__token_samples_length(&s->tokens, line);
    return n > 0 ? n - 1 : 0;
}

static int64_t count_parts(const lines_dataset *d, const lines_split *s, int64_t line)
{
    int64_t n = (count_targets(s, line) + d->max_targets - 1) / d->max_targets;
    return n > 0 ? n : 1;
}

/* The line that a sample belongs to: the last one whose first sample is not behind it. */
static int64_t find_line(const lines_split *s, int64_t id)
{
    int64_t low = 0, high = s->tokens.n;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (s->first[middle] <= id) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static fl_line_part describe_part(const lines_dataset *d, fl_split split, int64_t id)
{
    const lines_split *s = &d->split[split];
    fl_line_part p = {.line = find_line(s, id), .n_lines = s->tokens.n};
    p.part = id - s->first[p.line];
    p.n_parts = s->first[p.line + 1] - s->first[p.line];
    p.n_targets = count_targets(s, p.line) - p.part * d->max_targets;
    p.n_targets = p.n_targets < d->max_targets ? p.n_targets : d->max_targets;
    p.n_tokens = p.n_targets + (p.part == 0 && fl__token_samples_length(&s->tokens, p.line) > 0);
    return p;
}

/* ---- the table of functions ---- */

static int64_t count_samples(const void *self, fl_split split)
{
    const lines_split *s = &((const lines_dataset *)self)->split[split];
    return s->tokens.n == 0 ? 0 : s->first[s->tokens.n];
}

static fl_shape part_shape(const lines_dataset *d, int64_t n_targets)
{
    return (fl_shape){
        .tokens = n_targets > 0 ? n_targets : 1, .width = 1, .dtype = FL_I32, .n_ids = d->n_ids};
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    FL_TRY(fl__sample_check_id(id, count_samples(self, split)));
    *input = part_shape(self, describe_part(self, split, id).n_targets);
    *n_targets = input->tokens;
    return FL_OK;
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const lines_dataset *d = self;
    int64_t most = 0;
    for (int s = 0; s < N_SPLITS; s++) {
        int64_t n = fl__token_samples_longest(&d->split[s].tokens) - 1;
        most = n > most ? n : most;
    }
    *input = part_shape(d, most < d->max_targets ? most : d->max_targets);
    *n_targets = input->tokens;
    return FL_OK;
}

/* The part's tokens, or those one further. */
static fl_status copy_part(const lines_dataset *d, fl_split split, int64_t id, int64_t shift,
                           int32_t *out)
{
    FL_TRY(fl__sample_check_id(id, count_samples(d, split)));
    const fl_token_samples *tokens = &d->split[split].tokens;
    const fl_line_part p = describe_part(d, split, id);
    out[0] = 0; /* stands in where nothing is predicted */
    if (p.n_targets > 0) {
        memcpy(out, &tokens->ids[tokens->begin[p.line] + p.part * d->max_targets + shift],
               (size_t)p.n_targets * sizeof *out);
    }
    return FL_OK;
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    return copy_part(self, split, key->id, 0, input);
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    return copy_part(self, split, id, 1, out);
}

static uint64_t fingerprint(const void *self)
{
    const lines_dataset *d = self;
    uint64_t hash = XXH64(&d->max_targets, sizeof d->max_targets, (uint64_t)d->n_ids);
    for (int s = 0; s < N_SPLITS; s++) {
        hash = fl__token_samples_hash(&d->split[s].tokens, hash);
    }
    return hash;
}

static void destroy(void *self)
{
    lines_dataset *d = self;
    for (int s = 0; s < N_SPLITS; s++) {
        fl__token_samples_fini(&d->split[s].tokens);
        fl_free(d->split[s].first);
    }
    fl_free(d);
}

static const fl_dataset_ops lines_ops = {
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

/* ---- reading ---- */

typedef struct line_list {
    const char *path;
    fl_text *line;
    size_t n, room;
} line_list;

static void get_line(const void *self, size_t i, fl_text *text, fl_text *pair)
{
    const line_list *l = self;
    (void)pair;
    *text = l->line[i];
}

static void place_line(const void *self, size_t i, char place[FL_PLACE_BYTES])
{
    snprintf(place, FL_PLACE_BYTES, "%s: line %zu", ((const line_list *)self)->path, i + 1);
}

/* Without LF or CR LF; behind the last one there is no line. */
static fl_status list_lines(const fl_content *c, line_list *l)
{
    for (size_t at = 0, n; at < c->n_bytes; at += n + 1) {
        const char *end = memchr(c->bytes + at, '\n', c->n_bytes - at);
        n = end == NULL ? c->n_bytes - at : (size_t)(end - c->bytes) - at;
        size_t cut = n > 0 && c->bytes[at + n - 1] == '\r';
        FL_TRY(fl_alloc_room((void **)&l->line, l->n, 1, sizeof *l->line, &l->room));
        l->line[l->n++] = (fl_text){.bytes = c->bytes + at, .n_bytes = n - cut};
    }
    return FL_OK;
}

static fl_status tokenize_lines(const fl_content *content, const fl_tokenizer *tokenizer,
                                lines_split *s)
{
    line_list list = {.path = content->path};
    const fl_token_encoding alone = {.tokenizer = tokenizer, .allows_empty = true};
    fl_status status = list_lines(content, &list);
    const fl_text_list texts = {.self = &list, .n = list.n, .get = get_line, .place = place_line};
    if (status == FL_OK) {
        status = fl__tokens_encode(&texts, &alone, &s->tokens);
    }
    fl_free(list.line);
    return status;
}

static fl_status number_samples(const lines_dataset *d, lines_split *s)
{
    size_t n = (size_t)s->tokens.n;
    FL_TRY(fl_alloc_array(n + 1, sizeof *s->first, (void **)&s->first));
    for (size_t i = 0; i < n; i++) {
        s->first[i + 1] = s->first[i] + count_parts(d, s, (int64_t)i);
    }
    return FL_OK;
}

static fl_status read_split(const char *path, const fl_tokenizer *tokenizer, lines_dataset *d,
                            lines_split *s)
{
    fl_content content;
    if (path == NULL || path[0] == '\0') {
        return FL_OK;
    }
    FL_TRY(fl__content_read(path, LINE_BYTES_MAX, &content));
    fl_status status = tokenize_lines(&content, tokenizer, s);
    fl__content_fini(&content);
    return status == FL_OK ? number_samples(d, s) : status;
}

static fl_status read_files(const fl_text_options *o, lines_dataset *d)
{
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(fl__field_tokenizer_open(o->tokenizer, &tokenizer));
    fl_status status = FL_OK;
    d->n_ids = fl_tokenizer_n_ids(tokenizer);
    for (int s = 0; s < N_SPLITS && status == FL_OK; s++) {
        status = read_split(o->path[s], tokenizer, d, &d->split[s]);
    }
    fl_tokenizer_close(&tokenizer);
    return fl__field_name_path(status);
}

fl_status fl_dataset_lines_open(const fl_text_options *options, fl_dataset *out)
{
    void *memory = NULL;
    FL_TRY(fl__text_check_options(options));
    FL_TRY(fl_alloc(sizeof(lines_dataset), &memory));
    lines_dataset *d = memory;
    d->max_targets = options->max_tokens;
    fl_status status = read_files(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    *out = (fl_dataset){.ops = &lines_ops, .self = d};
    return FL_OK;
}

bool fl_dataset_line_part(const fl_dataset *dataset, fl_split split, int64_t id, fl_line_part *out)
{
    if (dataset->ops != &lines_ops) {
        return false;
    }
    *out = describe_part(dataset->self, split, id);
    return true;
}
