/* Micro-batches that look alike to the device.
 *
 * Captured work fits every micro-batch with as many samples and rows, and no longer a sample. Where
 * all samples are equally long, that is each full micro-batch. Where they are not, a micro-batch is
 * made up to one of a few shapes by further samples, whose rows are zeros: rows are independent of
 * each other, and the rows' gradients are zeros as well, so they add nothing to any sum. The shapes
 * are quarters of the largest micro-batches that the stage has memory for. */
#include "device/system/alloc.h"
#include "pipe/step/stage/stage_state.h"

#include <string.h>

enum { QUARTERS = 4, SHORTEST_LIMIT = 16, COLD = 1, TIMED = 3 };

/* A shape before the first layer of the model: what is made up to, and by how many samples. */
typedef struct raw_shape {
    int64_t samples, rows, longest;
} raw_shape;

/* ---- which shape ---- */

static bool is_equal_length(const fl_stage_slot *s)
{
    return s->raw_longest * s->what.n == s->raw_rows;
}

/* Whether further samples of 1 to `longest` rows make the micro-batch up to this shape. */
static bool can_make_up(const fl_stage_slot *s, const raw_shape *to)
{
    int64_t n = to->samples - s->what.n, rows = to->rows - s->raw_rows;
    return n > 0 && rows >= n && rows <= n * to->longest;
}

/* The limit for the longest sample: few different ones. */
static int64_t limit_of(int64_t longest, int64_t most)
{
    int64_t limit = SHORTEST_LIMIT;
    while (limit < longest) {
        limit *= 2;
    }
    return limit < most ? limit : most;
}

/* Of the parts of what the stage has memory for, the one with the fewest rows, then samples. */
static bool choose_raw(const fl_stage *stage, const fl_stage_slot *s, int64_t most, raw_shape *out)
{
    const fl_capacity *c = &stage->o.capacity;
    int64_t longest = limit_of(s->raw_longest, most);
    bool any = false;
    for (int i = 0; i < c->n * QUARTERS * QUARTERS; i++) {
        const fl_extent *e = &c->at[i / (QUARTERS * QUARTERS)];
        const raw_shape to = {.samples = e->samples * (i % QUARTERS + 1) / QUARTERS,
                              .rows = e->tokens * (i / QUARTERS % QUARTERS + 1) / QUARTERS,
                              .longest = longest};
        bool smaller =
            !any || to.rows < out->rows || (to.rows == out->rows && to.samples < out->samples);
        if (smaller && can_make_up(s, &to)) {
            *out = to;
            any = true;
        }
    }
    return any;
}

/* ---- samples that make it up ---- */

/* One more sample of `rows` rows behind the others. */
static fl_status add_sample(fl_stage *stage, fl_stage_slot *s, const fl_shape *like, int64_t rows)
{
    fl_shape raw = *like;
    int64_t at = s->run_batch.n_samples++;
    raw.tokens = rows;
    FL_TRY(fl__stage_shapes_of(stage, &raw));
    s->tables.ids[at] = 0;
    if (stage->ends_model) {
        s->tables.target_offsets[at + 1] = s->tables.target_offsets[s->what.n];
    }
    for (int i = 0; i <= stage->n_layers; i++) {
        s->run[i].n_tokens += stage->shapes[i].tokens;
        s->run[i].n_samples++;
        fl_batch_tables_offsets(&s->tables, i)[at + 1] = (int32_t)s->run[i].n_tokens;
    }
    return FL_OK;
}

static fl_status make_up(fl_stage *stage, fl_stage_slot *s, const raw_shape *to)
{
    const fl_shape like = stage->raw; /* of the last sample: all have its width and type */
    int64_t n = to->samples - s->what.n, rows = to->rows - s->raw_rows;
    for (int64_t i = 0; i < n; i++) {
        FL_TRY(add_sample(stage, s, &like, rows * (i + 1) / n - rows * i / n));
    }
    return FL_OK;
}

/* ---- shapes that were seen ---- */

static bool is_shape(const fl_stage *stage, const fl_stage_slot *s, const fl_stage_shape *shape,
                     const int64_t *longest)
{
    bool same = shape->training == s->what.training && shape->n_samples == s->run_batch.n_samples;
    for (int i = 0; same && i <= stage->n_layers; i++) {
        same = shape->rows[i] == s->run[i].n_tokens && shape->longest[i] == longest[i];
    }
    return same;
}

static void destroy_shape(fl_stage *stage, fl_stage_shape *shape)
{
    if (shape->capture != NULL) {
        fl__stage_drop_graphs(stage, shape);
        for (int i = 0; i < stage->o.n_slots; i++) {
            fl_free(shape->capture[i].backward);
            fl_free(shape->capture[i].frame);
        }
    }
    fl_free(shape->capture);
    fl_free(shape->rows);
    fl_free(shape->longest);
    fl_free(shape->offsets);
    fl_free(shape);
}

static fl_status create_captures(fl_stage *stage, fl_stage_shape *shape)
{
    size_t n_slots = (size_t)stage->o.n_slots, n_pieces = (size_t)fl__stage_n_pieces(stage);
    FL_TRY(fl_alloc_array(n_slots, sizeof *shape->capture, (void **)&shape->capture));
    for (size_t i = 0; i < n_slots; i++) {
        fl__stage_capture *c = &shape->capture[i];
        FL_TRY(fl_alloc_array(n_pieces, sizeof(fl_graph *), (void **)&c->backward));
        FL_TRY(fl_alloc_array((size_t)stage->n_layers, sizeof *c->frame, (void **)&c->frame));
    }
    return FL_OK;
}

/* Samples as long as the shape allows, from the first on: kernels that look at single offsets on
 * the host find their largest extent. */
static void fill_offsets(fl_stage_shape *shape, int n_boundaries)
{
    for (int i = 0; i < n_boundaries; i++) {
        int32_t *offsets = shape->offsets + i * (shape->n_samples + 1);
        for (int64_t j = 0; j <= shape->n_samples; j++) {
            int64_t at = j * shape->longest[i];
            bool ends = j == shape->n_samples || at > shape->rows[i];
            offsets[j] = (int32_t)(ends ? shape->rows[i] : at);
        }
    }
}

static fl_status fill_shape(fl_stage *stage, const fl_stage_slot *s, const int64_t *longest,
                            fl_stage_shape *shape)
{
    size_t n = (size_t)stage->n_layers + 1;
    shape->training = s->what.training;
    shape->n_samples = s->run_batch.n_samples;
    FL_TRY(fl_alloc_array(n, sizeof *shape->rows, (void **)&shape->rows));
    FL_TRY(fl_alloc_array(n, sizeof *shape->longest, (void **)&shape->longest));
    FL_TRY(fl_alloc_array(n * ((size_t)shape->n_samples + 1), sizeof *shape->offsets,
                          (void **)&shape->offsets));
    for (size_t i = 0; i < n; i++) {
        shape->rows[i] = s->run[i].n_tokens;
        shape->longest[i] = longest[i];
    }
    fill_offsets(shape, (int)n);
    return create_captures(stage, shape);
}

static fl_status add_shape(fl_stage *stage, const fl_stage_slot *s, const int64_t *longest,
                           fl_stage_shape **out)
{
    fl_stage_shape *shape = NULL;
    FL_TRY(fl_alloc(sizeof *shape, (void **)&shape));
    fl_status status = fill_shape(stage, s, longest, shape);
    if (status != FL_OK) {
        destroy_shape(stage, shape);
        return status;
    }
    stage->shapes_seen[stage->n_shapes++] = shape;
    stage->graphs.shapes++;
    *out = shape;
    return FL_OK;
}

/* The slot's shape, known or new; *out NULL: there are too many. */
static fl_status find_shape(fl_stage *stage, const fl_stage_slot *s, const fl_shape *longest_raw,
                            fl_stage_shape **out)
{
    int64_t longest[FL_MAX_LAYERS + 1];
    *out = NULL;
    FL_TRY(fl__stage_shapes_of(stage, longest_raw));
    for (int i = 0; i <= stage->n_layers; i++) {
        longest[i] = stage->shapes[i].tokens;
    }
    for (int i = 0; i < stage->n_shapes; i++) {
        if (is_shape(stage, s, stage->shapes_seen[i], longest)) {
            *out = stage->shapes_seen[i];
            return FL_OK;
        }
    }
    return stage->n_shapes < FL_STAGE_SHAPES ? add_shape(stage, s, longest, out) : FL_OK;
}

/* ---- which way ---- */

/* Call by call first: cold, then timed; then the shape as it will be captured; then graphs. */
static void choose_way(fl_stage *stage, fl_stage_slot *s, fl_stage_shape *shape, bool made_up)
{
    fl__stage_capture *c = &shape->capture[s - stage->slots];
    int number = 0;
    while (stage->shapes_seen[number] != shape) {
        number++;
    }
    shape->n_seen++;
    if (shape->way == FL_STAGE_BY_CALLS) {
        return;
    }
    if (shape->way == FL_STAGE_MEASURED && shape->n_seen <= COLD + TIMED) {
        s->label = shape->n_seen > COLD ? 2 * number : -1;
        return;
    }
    s->shape = shape;
    if (!c->warm && (made_up || shape->n_seen <= COLD)) {
        c->warm = true;
        return;
    }
    c->warm = true;
    s->by_graph = true;
    s->label = c->forward != NULL ? 2 * number + 1 : -1; /* not the time of a capture */
}

/* Leave the micro-batch as it is. */
static void undo_make_up(fl_stage *stage, fl_stage_slot *s)
{
    memcpy(s->run, s->at, ((size_t)stage->n_layers + 1) * sizeof *s->run);
    s->run_batch = s->batch;
}

static fl_status choose(fl_stage *stage, fl_stage_slot *s)
{
    const fl_shape like = stage->raw;
    fl_shape longest = like, most;
    int64_t n_targets;
    raw_shape to = {0};
    fl_stage_shape *shape = NULL;
    bool made_up = !is_equal_length(s);
    longest.tokens = s->raw_longest;
    if (made_up) {
        const fl_dataset *d = stage->o.dataset;
        FL_TRY(d->ops->max_shape(d->self, &most, &n_targets));
        if (!choose_raw(stage, s, most.tokens, &to)) {
            return FL_OK;
        }
        longest.tokens = to.longest;
        FL_TRY(make_up(stage, s, &to));
    }
    FL_TRY(find_shape(stage, s, &longest, &shape));
    if (shape != NULL) {
        choose_way(stage, s, shape, made_up);
    }
    return FL_OK;
}

fl_status fl__stage_choose_shape(fl_stage *stage, fl_stage_slot *s)
{
    s->shape = NULL;
    s->by_graph = false;
    s->label = -1;
    undo_make_up(stage, s);
    if (!stage->o.device->ops->has_graphs || stage->graphs.given_up || s->what.plain ||
        s->what.n == 0) {
        return FL_OK;
    }
    FL_TRY(choose(stage, s));
    if (s->shape == NULL) {
        undo_make_up(stage, s);
    }
    return FL_OK;
}

fl_status fl__stage_clear_rest(fl_stage *stage, const fl_stage_slot *s, int i, void *data)
{
    fl_device *d = stage->o.device;
    size_t own = fl__tensor_bytes(&s->at[i]), all = fl__tensor_bytes(&s->run[i]);
    return own == all
               ? FL_OK
               : d->ops->fill_zero(d, stage->o.stream, (unsigned char *)data + own, all - own);
}

void fl__stage_shapes_destroy(fl_stage *stage)
{
    for (int i = 0; i < stage->n_shapes; i++) {
        destroy_shape(stage, stage->shapes_seen[i]);
    }
    stage->n_shapes = 0;
}

/* ---- what was measured ---- */

int fl_stage_label(const fl_stage *stage, int slot)
{
    return stage->slots[slot].label;
}

static double mean_of(const fl__shape_times *t)
{
    return t->n == 0 ? 0.0 : t->us / t->n;
}

void fl_stage_graphs(const fl_stage *stage, fl_stage_graph_report *report)
{
    *report = stage->graphs;
    report->nodes = (int64_t)stage->o.device->graph_nodes;
    report->bytes = (int64_t)stage->o.device->graph_bytes;
    for (int i = 0; i < stage->n_shapes; i++) {
        const fl_stage_shape *shape = stage->shapes_seen[i];
        report->shape[i] = (fl_stage_shape_report){.training = shape->training,
                                                   .way = shape->way,
                                                   .samples = shape->n_samples,
                                                   .rows = shape->rows[0],
                                                   .longest = shape->longest[0],
                                                   .calls_us = mean_of(&shape->calls),
                                                   .graphs_us = mean_of(&shape->launches)};
    }
}

void fl_stage_learn(fl_stage *stage, int label, double us)
{
    if (label < 0 || label / 2 >= stage->n_shapes) {
        return;
    }
    fl_stage_shape *shape = stage->shapes_seen[label / 2];
    fl__shape_times *t = label % 2 == 0 ? &shape->calls : &shape->launches;
    int enough = shape->training ? 2 * TIMED : TIMED; /* forward and backward */
    t->us += us;
    t->n++;
    if (shape->way != FL_STAGE_MEASURED || shape->calls.n < enough || shape->launches.n < enough) {
        return;
    }
    bool faster = mean_of(&shape->launches) <= mean_of(&shape->calls);
    shape->way = faster ? FL_STAGE_BY_GRAPHS : FL_STAGE_BY_CALLS;
    stage->graphs.by_graph += faster ? 1 : 0;
    if (!faster) {
        fl__stage_drop_graphs(stage, shape);
    }
}
