/* Asking for the sizes:
 *   1  every sample: does it keep the promise; are all equal     look_at_all
 *   2  where they are not: the size of each                      record_all
 *   3  the lengths that occur, and what each is at every
 *      boundary between layers                                   find_lengths, follow_layers */
#include "pipe/cost/memory/sample_sizes.h"

#include "data/view.h"
#include "device/system/alloc.h"
#include "nn/model.h"

typedef struct question {
    const fl_model *model;
    const fl_dataset *dataset;
    fl_shape promised;
    int64_t promised_targets;
    fl_sample_sizes *sizes;
} question;

/* ---- 1: the promise ---- */

static fl_status check_shape(const question *q, int split, int64_t id, const fl_shape *shape)
{
    char sample[FL_SAMPLE_TEXT_BYTES];
    const fl_shape *max = &q->promised;
    if (shape->tokens < 1 || shape->tokens > max->tokens || shape->tokens > INT32_MAX ||
        shape->width != max->width || shape->dtype != max->dtype) {
        return fl_fail(FL_EINVAL,
                       "%s has %lld tokens of width %lld and type %s, the data set "
                       "(%s) promised 1 to %lld of width %lld and type %s",
                       fl_sample_text(q->dataset, (fl_split)split, id, sample),
                       (long long)shape->tokens, (long long)shape->width,
                       fl_dtype_name(shape->dtype), q->dataset->ops->kind, (long long)max->tokens,
                       (long long)max->width, fl_dtype_name(max->dtype));
    }
    return FL_OK;
}

static fl_status ask(const question *q, int split, int64_t id, fl_shape *shape, int64_t *n_targets)
{
    char sample[FL_SAMPLE_TEXT_BYTES];
    const fl_dataset *d = q->dataset;
    FL_TRY(d->ops->shape(d->self, (fl_split)split, id, shape, n_targets));
    FL_TRY(check_shape(q, split, id, shape));
    if (*n_targets < 0 || *n_targets > q->promised_targets) {
        return fl_fail(FL_EINVAL, "%s has %lld targets, the data set (%s) promised 0 to %lld",
                       fl_sample_text(d, (fl_split)split, id, sample), (long long)*n_targets,
                       d->ops->kind, (long long)q->promised_targets);
    }
    return FL_OK;
}

static void extend(fl_sample_sizes *s, bool is_first, int64_t tokens, int64_t n_targets)
{
    if (is_first) {
        s->equal = true;
        s->longest.tokens = s->shortest = tokens;
        s->most_targets = n_targets;
    }
    s->equal = s->equal && tokens == s->shortest && n_targets == s->most_targets;
    s->longest.tokens = tokens > s->longest.tokens ? tokens : s->longest.tokens;
    s->shortest = tokens < s->shortest ? tokens : s->shortest;
    s->most_targets = n_targets > s->most_targets ? n_targets : s->most_targets;
}

static fl_status look_at_all(question *q)
{
    fl_sample_sizes *s = q->sizes;
    double sum = 0.0, squares = 0.0;
    for (int split = 0; split < 2; split++) {
        for (int64_t id = 0; id < s->count[split]; id++) {
            fl_shape shape;
            int64_t n_targets;
            FL_TRY(ask(q, split, id, &shape, &n_targets));
            extend(s, split == FL_TRAIN && id == 0, shape.tokens, n_targets);
            double tokens = split == FL_TRAIN ? (double)shape.tokens : 0.0;
            sum += tokens;
            squares += tokens * tokens;
        }
    }
    s->mean_tokens = sum / (double)s->count[FL_TRAIN];
    s->mean_square = squares / (double)s->count[FL_TRAIN];
    return FL_OK;
}

/* ---- 2: each sample ---- */

static fl_status record_all(question *q)
{
    fl_sample_sizes *s = q->sizes;
    for (int split = 0; split < 2; split++) {
        size_t n = (size_t)s->count[split];
        FL_TRY(fl_alloc_array(n, sizeof(int32_t), (void **)&s->tokens[split]));
        FL_TRY(fl_alloc_array(n, sizeof(int32_t), (void **)&s->work[split]));
        FL_TRY(fl_alloc_array(n, sizeof(int32_t), (void **)&s->n_targets[split]));
        for (int64_t id = 0; id < s->count[split]; id++) {
            fl_shape shape;
            int64_t n_targets;
            FL_TRY(ask(q, split, id, &shape, &n_targets));
            s->tokens[split][id] = (int32_t)shape.tokens;
            s->n_targets[split][id] = (int32_t)n_targets;
        }
    }
    return FL_OK;
}

/* ---- 3: each length ---- */

/* at [longest - shortest + 1] out: for each length that occurs, 1 + its place among them. */
static void number_lengths(fl_sample_sizes *s, int32_t *at)
{
    for (int split = 0; split < 2; split++) {
        for (int64_t id = 0; id < s->count[split]; id++) {
            at[fl_sample_tokens(s, (fl_split)split, id) - s->shortest] = 1;
        }
    }
    for (int64_t i = 0; i <= s->longest.tokens - s->shortest; i++) {
        at[i] = at[i] == 0 ? 0 : (int32_t)++s->n_lengths;
    }
}

static fl_status list_lengths(fl_sample_sizes *s, const int32_t *at)
{
    FL_TRY(fl_alloc_array((size_t)s->n_lengths, sizeof *s->lengths, (void **)&s->lengths));
    for (int64_t i = 0; i <= s->longest.tokens - s->shortest; i++) {
        if (at[i] > 0) {
            s->lengths[at[i] - 1] = s->shortest + i;
        }
    }
    return FL_OK;
}

/* now [n_lengths]: one sample of each length, at the boundary below `layer`; passes it. */
static fl_status pass_layer(const question *q, int layer, fl_shape *now, int64_t *rows)
{
    fl_sample_sizes *s = q->sizes;
    const fl_layer *l = fl_model_layer(q->model, layer);
    for (int64_t i = 0; i < s->n_lengths; i++) {
        fl_shape out;
        fl_status status = l->ops->shape(l->self, &now[i], &out);
        if (status != FL_OK) {
            return fl_within(status, "layer %d, a sample of %lld tokens", layer,
                             (long long)s->lengths[i]);
        }
        now[i] = out;
        rows[i] = out.tokens;
    }
    s->rows[layer + 1] = fl_growth_over(s->lengths, rows, s->n_lengths);
    s->row_bytes[layer + 1] = (size_t)now[0].width * fl_dtype_size(now[0].dtype);
    return FL_OK;
}

static fl_status record_work(const question *q, const int32_t *at, const int64_t *rows)
{
    fl_sample_sizes *s = q->sizes;
    for (int64_t i = 0; i < s->n_lengths; i++) {
        int64_t work = rows[i] > 1 ? rows[i] : 1;
        double tokens = (double)s->lengths[i] / (double)work;
        s->most_work = work > s->most_work ? work : s->most_work;
        s->least_work = i == 0 || work < s->least_work ? work : s->least_work;
        s->tokens_per_work = tokens > s->tokens_per_work ? tokens : s->tokens_per_work;
    }
    for (int split = 0; split < 2; split++) {
        for (int64_t id = 0; id < s->count[split] && !s->equal; id++) {
            int64_t work = rows[at[s->tokens[split][id] - s->shortest] - 1];
            if (work > INT32_MAX) {
                char sample[FL_SAMPLE_TEXT_BYTES];
                return fl_fail(FL_EINVAL,
                               "%s has %lld rows behind the first layer, "
                               "at most %d allowed",
                               fl_sample_text(q->dataset, (fl_split)split, id, sample),
                               (long long)work, INT32_MAX);
            }
            s->work[split][id] = (int32_t)work;
        }
    }
    return FL_OK;
}

static fl_status follow_layers(const question *q, const int32_t *at, fl_shape *now, int64_t *rows)
{
    fl_sample_sizes *s = q->sizes;
    for (int64_t i = 0; i < s->n_lengths; i++) {
        now[i] = s->longest;
        now[i].tokens = s->lengths[i];
        rows[i] = s->lengths[i];
    }
    s->rows[0] = fl_growth_over(s->lengths, rows, s->n_lengths);
    s->row_bytes[0] = (size_t)s->longest.width * fl_dtype_size(s->longest.dtype);
    for (int layer = 0; layer < s->n_layers; layer++) {
        FL_TRY(pass_layer(q, layer, now, rows));
        if (layer == 0) {
            FL_TRY(record_work(q, at, rows));
        }
    }
    return FL_OK;
}

static fl_status find_lengths(const question *q)
{
    fl_sample_sizes *s = q->sizes;
    size_t n = (size_t)(s->longest.tokens - s->shortest + 1), boundaries = (size_t)s->n_layers + 1;
    int32_t *at = NULL;
    fl_shape *now = NULL;
    int64_t *rows = NULL;
    FL_TRY(fl_alloc_array(boundaries, sizeof *s->rows, (void **)&s->rows));
    FL_TRY(fl_alloc_array(boundaries, sizeof *s->row_bytes, (void **)&s->row_bytes));
    fl_status status = fl_alloc_array(n, sizeof *at, (void **)&at);
    if (status == FL_OK) {
        number_lengths(s, at);
        status = list_lengths(s, at);
    }
    if (status == FL_OK) {
        status = fl_alloc_array((size_t)s->n_lengths, sizeof *now, (void **)&now);
    }
    if (status == FL_OK) {
        status = fl_alloc_array((size_t)s->n_lengths, sizeof *rows, (void **)&rows);
    }
    if (status == FL_OK) {
        status = follow_layers(q, at, now, rows);
    }
    fl_free(at);
    fl_free(now);
    fl_free(rows);
    return status;
}

/* ---- the whole ---- */

static fl_status fill(question *q)
{
    const fl_dataset *d = q->dataset;
    FL_TRY(d->ops->max_shape(d->self, &q->promised, &q->promised_targets));
    q->sizes->longest = q->promised;
    q->sizes->target_dtype = fl_dataset_target_dtype(d);
    FL_TRY(look_at_all(q));
    if (!q->sizes->equal) {
        FL_TRY(record_all(q));
    }
    return find_lengths(q);
}

fl_status fl_sample_sizes_create(const fl_model *model, const fl_dataset *dataset, int64_t n_train,
                                 int64_t n_test, fl_sample_sizes **out)
{
    fl_sample_sizes *s = NULL;
    FL_TRY(fl_alloc(sizeof *s, (void **)&s));
    s->count[FL_TRAIN] = n_train;
    s->count[FL_TEST] = n_test;
    s->n_layers = fl_model_n_layers(model);
    question q = {.model = model, .dataset = dataset, .sizes = s};
    fl_status status = fill(&q);
    if (status != FL_OK) {
        fl_sample_sizes_destroy(&s);
    }
    *out = s;
    return status;
}

void fl_sample_sizes_destroy(fl_sample_sizes **sizes)
{
    fl_sample_sizes *s = *sizes;
    for (int split = 0; s != NULL && split < 2; split++) {
        fl_free(s->tokens[split]);
        fl_free(s->work[split]);
        fl_free(s->n_targets[split]);
    }
    if (s != NULL) {
        fl_free(s->rows);
        fl_free(s->row_bytes);
        fl_free(s->lengths);
    }
    fl_free(s);
    *sizes = NULL;
}

fl_status fl_sample_shape_max(const fl_dataset *dataset, fl_sample_shape *out)
{
    *out = (fl_sample_shape){.target_dtype = fl_dataset_target_dtype(dataset)};
    return dataset->ops->max_shape(dataset->self, &out->input, &out->n_targets);
}

fl_sample_shape fl_sample_longest(const fl_sample_sizes *s)
{
    return (fl_sample_shape){
        .input = s->longest, .n_targets = s->most_targets, .target_dtype = s->target_dtype};
}

fl_status fl_sample_of_length(const fl_model *model, const fl_sample_sizes *s, int64_t tokens,
                              fl_sample_shape *out)
{
    fl_shape most, rows;
    *out = fl_sample_longest(s);
    FL_TRY(fl_model_shape(model, s->n_layers - 1, &out->input, &most));
    out->input.tokens = tokens;
    FL_TRY(fl_model_shape(model, s->n_layers - 1, &out->input, &rows));
    if (out->n_targets % most.tokens == 0) {
        out->n_targets = out->n_targets / most.tokens * rows.tokens;
    }
    return FL_OK;
}

int64_t fl_sample_tokens(const fl_sample_sizes *s, fl_split split, int64_t id)
{
    return s->tokens[split] == NULL ? s->longest.tokens : s->tokens[split][id];
}

int64_t fl_sample_work(const fl_sample_sizes *s, fl_split split, int64_t id)
{
    return s->work[split] == NULL ? s->most_work : s->work[split][id];
}

int64_t fl_sample_n_targets(const fl_sample_sizes *s, fl_split split, int64_t id)
{
    return s->n_targets[split] == NULL ? s->most_targets : s->n_targets[split][id];
}
