#include "launcher/worker/outputs/prediction.h"

#include "data/images/images_dataset.h"
#include "data/table/table_dataset.h"
#include "data/text/lines_dataset.h"
#include "data/view.h"
#include "device/system/alloc.h"
#include "launcher/worker/outputs/answers.h"
#include "nn/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of the classes, unless each is the number of its class. */
static void find_names(fl_prediction *p)
{
    const fl_table_info *table = fl_dataset_table_info(p->whole);
    const fl_images_info *images = fl_dataset_images_info(p->whole);
    const char *const *names = table != NULL    ? table->labels
                               : images != NULL ? images->labels
                                                : NULL;
    int n = table != NULL ? table->n_classes : images != NULL ? (int)images->image.n_classes : 0;
    for (int i = 0; names != NULL && i < n && p->names == NULL; i++) {
        char number[16];
        snprintf(number, sizeof number, "%d", i);
        if (strcmp(names[i], number) != 0) {
            p->names = names;
            p->n_names = n;
        }
    }
}

fl_status fl_prediction_init(fl_prediction *prediction, const fl_model *model,
                             const fl_dataset *dataset)
{
    fl_shape raw, out;
    int64_t n_targets;
    *prediction = (fl_prediction){
        .loss = fl_model_loss(model), .dataset = dataset, .whole = fl_view_of(dataset)};
    if (!fl_answers_has_questions(model, dataset, &prediction->squad)) {
        prediction->squad = NULL;
    }
    FL_TRY(dataset->ops->max_shape(dataset->self, &raw, &n_targets));
    FL_TRY(fl_model_shape(model, fl_model_n_layers(model) - 1, &raw, &out));
    prediction->many_rows = out.tokens > 1;
    find_names(prediction);
    prediction->n_scores = out.width;
    return fl_alloc_array((size_t)out.width, sizeof *prediction->scores,
                          (void **)&prediction->scores);
}

void fl_prediction_fini(fl_prediction *prediction)
{
    fl_free(prediction->scores);
    fl_json_fini(&prediction->line);
    *prediction = (fl_prediction){0};
}

/* The shortest decimal that reads back as the same float. */
static void put_float(fl_json *line, const char *key, float value)
{
    char text[32];
    double near = value;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        near = strtod(text, NULL);
        if ((float)near == value) {
            break;
        }
    }
    fl_json_real(line, key, near);
}

/* One number, or a list. */
static void put_floats(fl_json *line, const char *key, const float *values, int64_t n, bool list)
{
    if (!list) {
        put_float(line, key, values[0]);
        return;
    }
    fl_json_array(line, key);
    for (int64_t i = 0; i < n; i++) {
        put_float(line, NULL, values[i]);
    }
    fl_json_close(line, ']');
}

static void put_name(fl_prediction *p, const char *key, int64_t class)
{
    if (p->names != NULL && class >= 0 && class < p->n_names) {
        fl_json_text(&p->line, key, p->names[class]);
    }
}

/* A class of which nothing is known is below 0. */
static void put_label(fl_prediction *p, const fl_tensor *targets, int64_t s)
{
    int64_t first = targets->offsets[s], n = targets->offsets[s + 1] - first;
    bool list = p->many_rows || n > 1;
    if (n == 0) {
        return;
    }
    if (targets->dtype == FL_F32) {
        put_floats(&p->line, "label", fl_f32(targets) + first, n, list);
        return;
    }
    const int32_t *classes = fl_i32(targets) + first;
    if (list) {
        fl_json_array(&p->line, "label");
        for (int64_t i = 0; i < n; i++) {
            fl_json_integer(&p->line, NULL, classes[i]);
        }
        fl_json_close(&p->line, ']');
    } else if (classes[0] >= 0) {
        fl_json_integer(&p->line, "label", classes[0]);
        put_name(p, "label_name", classes[0]);
    }
}

/* Of scores that are not finite, none is the largest. Returns the class, or -1. */
static int64_t put_class(fl_prediction *p, const char *key, int64_t chosen, int64_t width)
{
    bool finite = true;
    for (int64_t i = 0; finite && i < width; i++) {
        finite = isfinite(p->scores[i]);
    }
    if (finite) {
        fl_json_integer(&p->line, key, chosen);
    } else {
        fl_json_null(&p->line, key);
    }
    return finite ? chosen : -1;
}

static void put_classes(fl_prediction *p, const float *rows, int64_t n_rows, int64_t width)
{
    int64_t chosen;
    const fl_loss_ops *ops = p->loss->ops;
    if (!p->many_rows) {
        ops->predict(p->loss->self, rows, width, p->scores, &chosen);
        put_name(p, "prediction_name", put_class(p, "prediction", chosen, width));
        put_floats(&p->line, "scores", p->scores, width, true);
        return;
    }
    fl_json_array(&p->line, "prediction");
    for (int64_t r = 0; r < n_rows; r++) {
        ops->predict(p->loss->self, rows + r * width, width, p->scores, &chosen);
        put_class(p, NULL, chosen, width);
    }
    fl_json_close(&p->line, ']');
    fl_json_array(&p->line, "scores");
    for (int64_t r = 0; r < n_rows; r++) {
        ops->predict(p->loss->self, rows + r * width, width, p->scores, &chosen);
        put_floats(&p->line, NULL, p->scores, width, true);
    }
    fl_json_close(&p->line, ']');
}

static void put_values(fl_prediction *p, const float *rows, int64_t n_rows, int64_t width)
{
    if (!p->many_rows) {
        put_floats(&p->line, "prediction", rows, width, width > 1);
        return;
    }
    fl_json_array(&p->line, "prediction");
    for (int64_t r = 0; r < n_rows; r++) {
        put_floats(&p->line, NULL, rows + r * width, width, width > 1);
    }
    fl_json_close(&p->line, ']');
}

/* A text of a data set has no zero byte behind it. */
static fl_status put_text(fl_json *line, const char *key, fl_text text)
{
    char *copy = NULL;
    FL_TRY(fl_alloc(text.n_bytes + 1, (void **)&copy));
    memcpy(copy, text.bytes, text.n_bytes);
    fl_json_text(line, key, copy);
    fl_free(copy);
    return FL_OK;
}

/* What one window answers; the question's answer is that of its window with the largest score. */
static fl_status put_answer(fl_prediction *p, fl_sample_id own, const float *rows)
{
    const fl_squad_split *split = fl_dataset_squad_split(p->squad, own.split);
    const fl_squad_choice choice =
        fl_squad_choose(split, fl_dataset_squad_frame(p->squad), own.id, rows);
    int64_t question = split->windows[own.id].question;
    FL_TRY(put_text(&p->line, "question", fl__text_pool_get(&split->ids, question)));
    FL_TRY(put_text(&p->line, "prediction", fl_squad_choice_text(split, own.id, &choice)));
    put_float(&p->line, "score", choice.score);
    put_float(&p->line, "no_answer_score", choice.null);
    return FL_OK;
}

static void put_finite(fl_json *line, const char *key, double value)
{
    if (isfinite(value)) {
        fl_json_real(line, key, value);
    } else {
        fl_json_null(line, key);
    }
}

/* How well the model predicts the sample's tokens; lines count from 1. */
static void put_perplexity(fl_prediction *p, fl_sample_id own, const fl_loss_sums *sums)
{
    fl_line_part part = {.n_targets = (int64_t)sums->n_targets};
    if (fl_dataset_line_part(p->whole, own.split, own.id, &part)) {
        fl_json_integer(&p->line, "line", part.line + 1);
        if (part.n_parts > 1) {
            fl_json_integer(&p->line, "part", part.part + 1);
        }
        fl_json_integer(&p->line, "tokens", part.n_tokens);
    }
    const double loss = part.n_targets > 0 ? sums->loss / sums->n_targets : NAN;
    fl_json_integer(&p->line, "predicted", part.n_targets);
    put_finite(&p->line, "loss", loss);
    put_finite(&p->line, "perplexity", exp(loss));
}

static fl_sample_id find_own(const fl_prediction *p, const fl_outputs *outputs, int64_t s)
{
    return fl_view_own(p->dataset, outputs->split, outputs->ids[s]);
}

/* The file of an image. */
static void put_file(fl_prediction *p, const fl_outputs *outputs, int64_t s)
{
    if (p->whole == NULL) {
        return;
    }
    const fl_sample_id own = find_own(p, outputs, s);
    const char *path = fl_dataset_images_path(p->whole, own.split, own.id);
    if (path != NULL) {
        fl_json_text(&p->line, "file", path);
    }
}

fl_status fl_prediction_write(fl_prediction *prediction, const fl_outputs *outputs, int64_t s,
                              int64_t id)
{
    int64_t first = outputs->offsets[s], n_rows = outputs->offsets[s + 1] - first;
    const float *rows = outputs->rows + first * outputs->width;
    fl_json *line = &prediction->line;
    fl_json_reset(line);
    fl_json_object(line, NULL);
    fl_json_integer(line, "id", id);
    if (outputs->losses != NULL) {
        put_perplexity(prediction, find_own(prediction, outputs, s), &outputs->losses[s]);
    } else {
        put_label(prediction, &outputs->targets, s);
    }
    put_file(prediction, outputs, s);
    if (prediction->squad != NULL) {
        FL_TRY(put_answer(prediction, find_own(prediction, outputs, s), rows));
    } else if (outputs->losses == NULL) {
        (prediction->loss->ops->predict != NULL ? put_classes : put_values)(prediction, rows,
                                                                            n_rows, outputs->width);
    }
    fl_json_close(line, '}');
    fl_json_newline(line);
    return line->broken ? fl_fail(FL_ENOMEM, "no memory for a prediction") : FL_OK;
}
