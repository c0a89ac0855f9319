/* The data set of kind squad.
 *
 *     ① content of both files ──> ② key ──> ⑤ cache: windows
 *         where it lacks them, for each file: ③ questions ──> ④ tokens ──> windows ──> ⑤
 *     read: id ──> a window, put together */
#include "data/squad/squad_dataset.h"

#include "data/read_sample.h"
#include "data/squad/squad_kept.h"
#include "data/tokens/fields.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "device/system/program.h"
#include "device/text/plural.h"

#include <assert.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <xxhash.h>

enum { N_SPLITS = 2, N_TARGETS = 2 };

typedef struct squad_dataset {
    fl_squad_split split[N_SPLITS];
    fl_token_frame frame;
    fl_squad_info info;
    fl_shape longest;
    uint64_t fingerprint;
} squad_dataset;

/* ---- the table of functions ---- */

static int64_t count_samples(const void *self, fl_split split)
{
    const squad_dataset *d = self;
    return d->split[split].n_windows;
}

static fl_status find_window(const squad_dataset *d, fl_split split, int64_t id,
                             const fl_squad_window **out)
{
    FL_TRY(fl__sample_check_id(id, d->split[split].n_windows));
    *out = &d->split[split].windows[id];
    return FL_OK;
}

static fl_status max_shape(const void *self, fl_shape *input, int64_t *n_targets)
{
    const squad_dataset *d = self;
    *input = d->longest;
    *n_targets = N_TARGETS;
    return FL_OK;
}

static fl_status shape(const void *self, fl_split split, int64_t id, fl_shape *input,
                       int64_t *n_targets)
{
    const squad_dataset *d = self;
    const fl_squad_window *w = NULL;
    FL_TRY(find_window(d, split, id, &w));
    *input = d->longest;
    input->tokens = fl__squad_window_length(&d->split[split], &d->frame, w);
    *n_targets = N_TARGETS;
    return FL_OK;
}

static fl_status read_sample(const void *self, fl_split split, const fl_sample_key *key,
                             void *input)
{
    const squad_dataset *d = self;
    const fl_squad_window *w = NULL;
    FL_TRY(find_window(d, split, key->id, &w));
    fl__squad_window_write(&d->split[split], &d->frame, w, d->longest.width == 2, input);
    return FL_OK;
}

static fl_status targets(const void *self, fl_split split, int64_t id, int32_t *out)
{
    const fl_squad_window *w = NULL;
    FL_TRY(find_window(self, split, id, &w));
    memcpy(out, w->target, sizeof w->target);
    return FL_OK;
}

static uint64_t fingerprint(const void *self)
{
    const squad_dataset *d = self;
    return d->fingerprint;
}

static void destroy(void *self)
{
    squad_dataset *d = self;
    for (int s = 0; s < N_SPLITS; s++) {
        fl__squad_split_fini(&d->split[s]);
    }
    fl_free(d);
}

static const fl_dataset_ops squad_ops = {
    .head = FL_TABLE_HEAD(fl_dataset_ops),
    .kind = "squad",
    .count = count_samples,
    .shape = shape,
    .max_shape = max_shape,
    .read = read_sample,
    .targets = targets,
    .fingerprint = fingerprint,
    .destroy = destroy,
};

/* ---- opening ---- */

static bool has_file(const fl_squad_options *o, int split)
{
    return o->path[split] != NULL && o->path[split][0] != '\0';
}

static void tell_misplaced(const char *path, const fl_squad_file *file, bool trains)
{
    char n[FL_COUNT_BYTES];
    if (file->n_misplaced > 0) {
        fl_log(FL_LOG_WARN,
               "data: %s: %s without an answer that stands where its answer_start says%s; the "
               "first one: %s",
               path, fl_count(file->n_misplaced, "question", n),
               trains ? ", left out" : ", without a target", file->misplaced);
    }
}

/* ③ and ④ */
static fl_status cut_split(const fl_squad_options *o, const fl_tokenizer *tokenizer,
                           const fl_content *content, int s, squad_dataset *d)
{
    const fl_squad_cut cut = {.tokenizer = tokenizer,
                              .max_tokens = o->max_tokens,
                              .stride = o->stride,
                              .trains = s == FL_TRAIN};
    fl_squad_file file = {0};
    fl_status status = fl__squad_file_read(content, &file);
    if (status == FL_OK) {
        tell_misplaced(content->path, &file, cut.trains);
        status = fl__squad_windows_cut(content->path, &file, &cut, &d->split[s]);
    }
    fl__squad_file_fini(&file);
    return fl__memory_name_file(status, content->path);
}

/* ② */
static fl_kept_key key_of(const fl_squad_options *o, const fl_tokenizer *tokenizer,
                          const fl_content content[N_SPLITS])
{
    const uint64_t settings[] = {fl_program_build(), fl_tokenizer_fingerprint(tokenizer),
                                 (uint64_t)o->max_tokens, (uint64_t)o->stride};
    fl_kept_key key = {{0}};
    fl__kept_key_mix_text(&key, "squad");
    fl__kept_key_mix(&key, settings, sizeof settings);
    for (int s = 0; s < N_SPLITS; s++) {
        fl__kept_key_mix(&key, content[s].bytes, content[s].n_bytes);
    }
    return key;
}

/* ⑤ Whether the cache had the windows. */
static bool read_kept(const char *path, const fl_tokenizer *tokenizer, const fl_kept_key *key,
                      squad_dataset *d)
{
    bool found = false;
    fl_status status =
        fl__squad_kept_read(path, key, fl_tokenizer_n_ids(tokenizer), &d->frame, d->split, &found);
    if (status != FL_OK) {
        fl_log(FL_LOG_WARN, "data: %s; the questions are tokenized again", fl_errmsg());
    }
    return found && status == FL_OK;
}

static fl_status take_windows(const fl_squad_options *o, const fl_tokenizer *tokenizer,
                              const fl_content content[N_SPLITS], squad_dataset *d)
{
    char path[PATH_MAX];
    fl_kept_key key = key_of(o, tokenizer, content);
    bool keeps = o->cache != NULL && fl__kept_path(o->cache, &key, path);
    d->info.from_cache = keeps && read_kept(path, tokenizer, &key, d);
    for (int s = 0; s < N_SPLITS && !d->info.from_cache; s++) {
        if (has_file(o, s)) {
            FL_TRY(cut_split(o, tokenizer, &content[s], s, d));
        }
    }
    if (keeps && !d->info.from_cache && fl__squad_kept_write(path, &key, d->split) != FL_OK) {
        fl_log(FL_LOG_WARN, "data: the tokens are not kept: %s", fl_errmsg());
    }
    return FL_OK;
}

/* ① */
static fl_status read_files(const fl_squad_options *o, const fl_tokenizer *tokenizer,
                            squad_dataset *d)
{
    fl_content content[N_SPLITS] = {{0}};
    fl_status status = FL_OK;
    for (int s = 0; s < N_SPLITS && status == FL_OK; s++) {
        if (has_file(o, s)) {
            status = fl__content_read(o->path[s], FL_SQUAD_FILE_BYTES_MAX, &content[s]);
        }
    }
    if (status == FL_OK) {
        status = take_windows(o, tokenizer, content, d);
    }
    for (int s = 0; s < N_SPLITS; s++) {
        fl__content_fini(&content[s]);
    }
    return fl__field_name_path(status);
}

/* ---- the result ---- */

static void describe_split(const fl_squad_split *s, squad_dataset *d)
{
    d->info.n_questions += s->ids.n - s->n_left_out;
    d->info.n_left_out += s->n_left_out;
    d->info.n_windows += s->n_windows;
    for (int64_t i = 0; i < s->n_windows; i++) {
        int64_t n = fl__squad_window_length(s, &d->frame, &s->windows[i]);
        d->info.n_tokens += n;
        d->longest.tokens = n > d->longest.tokens ? n : d->longest.tokens;
    }
    for (int64_t i = 0; i < s->ids.n; i++) {
        d->info.impossible = d->info.impossible || s->questions[i].kind == FL_SQUAD_IMPOSSIBLE;
    }
    d->fingerprint = fl__token_samples_hash(&s->context_tokens, d->fingerprint);
    d->fingerprint = fl__token_samples_hash(&s->question_tokens, d->fingerprint);
    d->fingerprint = XXH64(s->windows, (size_t)s->n_windows * sizeof *s->windows, d->fingerprint);
}

static void describe_dataset(const fl_squad_options *o, const fl_tokenizer *tokenizer,
                             squad_dataset *d)
{
    d->info.n_ids = fl_tokenizer_n_ids(tokenizer);
    d->longest = (fl_shape){.width = o->types ? 2 : 1, .dtype = FL_I32, .n_ids = d->info.n_ids};
    d->fingerprint = XXH64(&d->frame, sizeof d->frame, (uint64_t)d->info.n_ids);
    for (int s = 0; s < N_SPLITS; s++) {
        describe_split(&d->split[s], d);
    }
}

static fl_status get_frame(const fl_tokenizer *tokenizer, fl_token_frame *frame)
{
    fl_status status = fl_tokenizer_pair_frame(tokenizer, frame);
    return status == FL_OK ? FL_OK
                           : fl_fail_field(status, FL_FIELDS("data.tokenizer"), "%s", fl_errmsg());
}

static fl_status fill_dataset(const fl_squad_options *o, squad_dataset *d)
{
    fl_tokenizer *tokenizer = NULL;
    int64_t begun_us = fl_now_us();
    FL_TRY(fl__field_tokenizer_open(o->tokenizer, &tokenizer));
    fl_status status = get_frame(tokenizer, &d->frame);
    if (status == FL_OK) {
        status = fl__field_check_max_tokens(tokenizer, true, o->max_tokens);
    }
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

fl_status fl_dataset_squad_open(const fl_squad_options *options, fl_dataset *out,
                                fl_squad_info *info)
{
    void *memory = NULL;
    assert(has_file(options, FL_TRAIN) || has_file(options, FL_TEST));
    FL_TRY(fl_alloc(sizeof(squad_dataset), &memory));
    squad_dataset *d = memory;
    fl_status status = fill_dataset(options, d);
    if (status != FL_OK) {
        destroy(d);
        return status;
    }
    *out = (fl_dataset){.ops = &squad_ops, .self = d};
    if (info != NULL) {
        *info = d->info;
    }
    return FL_OK;
}

const fl_squad_info *fl_dataset_squad_info(const fl_dataset *dataset)
{
    const squad_dataset *d = dataset->self;
    return dataset->ops == &squad_ops ? &d->info : NULL;
}

const fl_squad_split *fl_dataset_squad_split(const fl_dataset *dataset, fl_split split)
{
    const squad_dataset *d = dataset->self;
    return dataset->ops == &squad_ops ? &d->split[split] : NULL;
}

const fl_token_frame *fl_dataset_squad_frame(const fl_dataset *dataset)
{
    const squad_dataset *d = dataset->self;
    return dataset->ops == &squad_ops ? &d->frame : NULL;
}
