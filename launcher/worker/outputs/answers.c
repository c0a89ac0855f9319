#include "launcher/worker/outputs/answers.h"

#include "data/view.h"
#include "device/system/alloc.h"
#include "nn/loss.h"
#include "nn/model.h"

/* Of each window. Numbers that floats hold are the same in doubles, and one worker alone has a
 * window, so that the sums over workers are exact. */
enum { EVALUATED, SCORE, NONE, FIRST, LENGTH, VALUES };

bool fl_answers_has_questions(const fl_model *model, const fl_dataset *dataset,
                              const fl_dataset **squad)
{
    *squad = fl_view_of(dataset);
    return fl_loss_is_span(fl_model_loss(model)) && fl_dataset_squad_info(*squad) != NULL;
}

fl_status fl_answers_init(fl_answers *a, const fl_model *model, const fl_dataset *dataset,
                          int64_t sample)
{
    const fl_dataset *squad;
    *a = (fl_answers){0};
    if (!fl_answers_has_questions(model, dataset, &squad)) {
        return FL_OK;
    }
    a->dataset = dataset;
    a->squad = squad;
    a->split = fl_view_own(dataset, FL_TEST, sample).split;
    return fl_alloc_array((size_t)fl_dataset_squad_split(squad, a->split)->n_windows,
                          VALUES * sizeof *a->values, (void **)&a->values);
}

void fl_answers_fini(fl_answers *a)
{
    fl_free(a->values);
    *a = (fl_answers){0};
}

static fl_status take_outputs(void *answers, const fl_outputs *o)
{
    fl_answers *a = answers;
    for (int64_t s = 0; s < o->n_samples; s++) {
        int64_t window = fl_view_own(a->dataset, o->split, o->ids[s]).id;
        const fl_squad_choice choice = fl_squad_choose(fl_dataset_squad_split(a->squad, a->split),
                                                       fl_dataset_squad_frame(a->squad), window,
                                                       o->rows + o->offsets[s] * o->width);
        double *values = a->values + window * VALUES;
        values[EVALUATED] = 1;
        values[SCORE] = (double)choice.score;
        values[NONE] = (double)choice.null;
        values[FIRST] = choice.first;
        values[LENGTH] = choice.n;
    }
    return FL_OK;
}

void fl_answers_watch(fl_answers *a, fl_pipeline *pipeline)
{
    if (a->dataset != NULL) {
        fl_pipeline_watch_outputs(pipeline, take_outputs, a);
    }
}

static fl_squad_choice choice_of(const double *values)
{
    if (values[EVALUATED] == 0) {
        return (fl_squad_choice){.n = -1};
    }
    return (fl_squad_choice){.score = (float)values[SCORE],
                             .null = (float)values[NONE],
                             .first = (int32_t)values[FIRST],
                             .n = (int32_t)values[LENGTH]};
}

static fl_status score_questions(const fl_answers *a, fl_squad_sums *sums)
{
    const fl_squad_split *split = fl_dataset_squad_split(a->squad, a->split);
    fl_squad_choice *choices = NULL;
    FL_TRY(fl_alloc_array((size_t)split->n_windows, sizeof *choices, (void **)&choices));
    for (int64_t i = 0; i < split->n_windows; i++) {
        choices[i] = choice_of(a->values + i * VALUES);
    }
    fl_status status =
        fl_squad_score_all(split, fl_dataset_squad_info(a->squad)->impossible, choices, sums);
    fl_free(choices);
    return status;
}

fl_status fl_answers_end(fl_answers *a, fl_pipeline *pipeline, bool scores, fl_loss_sums *sums)
{
    fl_squad_sums found;
    if (a->dataset == NULL) {
        return FL_OK;
    }
    int64_t n = fl_dataset_squad_split(a->squad, a->split)->n_windows;
    FL_TRY(fl_pipeline_add_up(pipeline, a->values, n * VALUES));
    if (scores) {
        FL_TRY(score_questions(a, &found));
        fl_loss_span_add(sums, found.n_questions, found.exact, found.f1);
    }
    return FL_OK;
}
