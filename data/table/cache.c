/* The parts of the file:
 *
 *     counts (1) | training: begin [n + 1], labels [n], ids, types (2) | test: the same |
 *     labels, each with a zero behind it (3) */
#include "data/table/cache.h"

#include "data/table/table_dataset.h"
#include "device/system/alloc.h"

#include <string.h>

enum { N_SPLITS = 2, PARTS_OF_SPLIT = 4, N_PARTS = 1 + N_SPLITS * PARTS_OF_SPLIT + 1 };
enum { COUNTS = 0, LABELS = N_PARTS - 1 };

/* (1) */
typedef struct cache_counts {
    int64_t n_rows[N_SPLITS], n_tokens[N_SPLITS];
    int64_t has_types, has_labels, n_labels;
} cache_counts;

void fl__table_split_fini(fl_table_split *split)
{
    fl__token_samples_fini(&split->tokens);
    fl_free(split->labels);
    *split = (fl_table_split){0};
}

void fl__table_tokens_fini(fl_table_tokens *tokens)
{
    for (int s = 0; s < N_SPLITS; s++) {
        fl__table_split_fini(&tokens->split[s]);
    }
    fl__table_labels_fini(&tokens->labels);
}

/* (2) */
static void list_arrays(const cache_counts *c, int s, fl_table_split *split,
                        fl_kept_array out[PARTS_OF_SPLIT])
{
    size_t n = (size_t)c->n_rows[s], n_tokens = (size_t)c->n_tokens[s];
    fl_token_samples *t = &split->tokens;
    out[0] = (fl_kept_array){(void **)&t->begin, n == 0 ? 0 : (n + 1) * sizeof *t->begin};
    out[1] = (fl_kept_array){(void **)&split->labels, n * sizeof *split->labels};
    out[2] = (fl_kept_array){(void **)&t->ids, n_tokens * sizeof *t->ids};
    out[3] = (fl_kept_array){(void **)&t->types, c->has_types != 0 ? n_tokens : 0};
}

/* ---- reading ---- */

/* (3) The texts, one after another, become names. */
static fl_status take_labels(const char *path, const cache_counts *c, const fl_kept_part *part,
                             fl_table_labels *out)
{
    const char *names[FL_TABLE_CLASSES_MAX], *texts = part->bytes;
    size_t at = 0;
    if (c->has_labels == 0) {
        return c->n_labels == 0 && part->n_bytes == 0
                   ? FL_OK
                   : fl__kept_refuse(path, "labels of no column");
    }
    if (c->n_labels < 0 || c->n_labels > FL_TABLE_CLASSES_MAX) {
        return fl__kept_refuse(path, "too many labels");
    }
    for (int64_t i = 0; i < c->n_labels; i++) {
        const char *end = at == part->n_bytes ? NULL : memchr(texts + at, '\0', part->n_bytes - at);
        if (end == NULL) {
            return fl__kept_refuse(path, "a label without an end");
        }
        names[i] = texts + at;
        at = (size_t)(end - texts) + 1;
    }
    if (at != part->n_bytes) {
        return fl__kept_refuse(path, "text behind the labels");
    }
    return fl__table_labels_copy(path, names, (int)c->n_labels, out);
}

/* Move the arrays of a split out of the file's parts. */
static bool take_split(const cache_counts *c, int s, fl_kept_part *parts, fl_table_split *split)
{
    const int64_t most = INT64_C(1) << 44; /* sizes of such counts do not overflow */
    fl_kept_array arrays[PARTS_OF_SPLIT];
    if (c->n_rows[s] < 0 || c->n_rows[s] > most || c->n_tokens[s] < 0 || c->n_tokens[s] > most) {
        return false;
    }
    list_arrays(c, s, split, arrays);
    if (!fl__kept_arrays_take(arrays, PARTS_OF_SPLIT, parts + 1 + s * PARTS_OF_SPLIT)) {
        return false;
    }
    split->tokens.n = c->n_rows[s];
    return true;
}

/* What all users of the arrays rely on. */
static bool is_sound(const cache_counts *c, int s, const fl_table_split *split, int32_t n_ids)
{
    bool good = fl__token_samples_are_sound(&split->tokens, c->n_tokens[s], 1, n_ids);
    for (int64_t i = 0; good && i < c->n_rows[s]; i++) {
        good = split->labels[i] >= -1 && split->labels[i] < c->n_labels;
    }
    return good;
}

static fl_status take_parts(const char *path, fl_kept_part parts[N_PARTS], int32_t n_ids,
                            bool types, fl_table_tokens *tokens)
{
    cache_counts c;
    if (parts[COUNTS].n_bytes != sizeof c) {
        return fl__kept_refuse(path, "the kept tokens of other data");
    }
    memcpy(&c, parts[COUNTS].bytes, sizeof c);
    bool good = (c.has_types != 0) == types;
    for (int s = 0; good && s < N_SPLITS; s++) {
        good = take_split(&c, s, parts, &tokens->split[s]) &&
               is_sound(&c, s, &tokens->split[s], n_ids);
    }
    return good ? take_labels(path, &c, &parts[LABELS], &tokens->labels)
                : fl__kept_refuse(path, "rows that do not fit together");
}

fl_status fl__table_cache_read(const char *path, const fl_kept_key *key, int32_t n_ids, bool types,
                               fl_table_tokens *out, bool *found)
{
    fl_kept_part parts[N_PARTS];
    fl_table_tokens tokens = {0};
    FL_TRY(fl__kept_read(path, key, parts, N_PARTS, found));
    if (!*found) {
        return FL_OK;
    }
    fl_status status = take_parts(path, parts, n_ids, types, &tokens);
    fl__kept_parts_free(parts, N_PARTS);
    if (status == FL_OK) {
        *out = tokens;
    } else {
        fl__table_tokens_fini(&tokens);
    }
    return status;
}

/* ---- writing ---- */

static cache_counts count_tokens(const fl_table_tokens *tokens)
{
    cache_counts c = {.has_labels = tokens->labels.names != NULL, .n_labels = tokens->labels.n};
    for (int s = 0; s < N_SPLITS; s++) {
        c.n_rows[s] = tokens->split[s].tokens.n;
        c.n_tokens[s] = fl__token_samples_total(&tokens->split[s].tokens);
        c.has_types |= tokens->split[s].tokens.types != NULL;
    }
    return c;
}

/* (3) */
static fl_status pack_labels(const fl_table_labels *labels, fl_kept_part *part)
{
    int n_names = labels->names == NULL ? 0 : labels->n;
    for (int i = 0; i < n_names; i++) {
        part->n_bytes += strlen(labels->names[i]) + 1;
    }
    FL_TRY(fl_alloc(part->n_bytes, &part->bytes));
    char *to = part->bytes;
    for (int i = 0; i < n_names; i++) {
        size_t n = strlen(labels->names[i]) + 1;
        memcpy(to, labels->names[i], n);
        to += n;
    }
    return FL_OK;
}

fl_status fl__table_cache_write(const char *path, const fl_kept_key *key,
                                const fl_table_tokens *tokens)
{
    fl_kept_part parts[N_PARTS] = {{0}};
    cache_counts c = count_tokens(tokens);
    fl_table_split split[N_SPLITS] = {tokens->split[0], tokens->split[1]};
    parts[COUNTS] = (fl_kept_part){&c, sizeof c};
    for (int s = 0; s < N_SPLITS; s++) {
        fl_kept_array arrays[PARTS_OF_SPLIT];
        list_arrays(&c, s, &split[s], arrays);
        fl__kept_arrays_list(arrays, PARTS_OF_SPLIT, parts + 1 + s * PARTS_OF_SPLIT);
    }
    FL_TRY(pack_labels(&tokens->labels, &parts[LABELS]));
    fl_status status = fl__kept_write(path, key, parts, N_PARTS);
    fl_free(parts[LABELS].bytes);
    return status;
}
