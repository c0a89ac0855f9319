/* Tied parameters. A tie lists every use of one parameter in the model's order. Each layer keeps a
 * copy of its own; the copies start equal and get the same gradient, the sum over all uses, so
 * every optimizer step changes them alike:
 *
 *     start     every use gets the values of the first             fl_model_draw_param
 *     backward  uses of one stage add to the same gradient          pipe/state/params.c
 *     reduce    its sum over the owners of all uses                 pipe/step/reduce.c
 *     optimizer the same update of each copy                        fl_params_step
 *     freezing  with the lowest block that uses it                  fl_tie_trains
 */
#include "nn/model.h"

#include "device/system/alloc.h"

#include <stdio.h>
#include <string.h>

enum { FULL_NAME_MAX = FL_LAYER_NAME_MAX + FL_PARAM_NAME_MAX };

void fl__ties_fini(fl_tie_list *ties)
{
    for (int i = 0; i < ties->n; i++) {
        fl_free(ties->tie[i].use);
    }
    fl_free(ties->tie);
    *ties = (fl_tie_list){0};
}

bool fl_tie_trains(const fl_tie *tie, int n_frozen)
{
    return tie->use[0].layer >= n_frozen;
}

int fl_model_tie_of(const fl_model *model, int layer, int param)
{
    return fl_model_params(model, layer)->spec[param].tie - 1;
}

void fl_model_draw_param(const fl_model *model, int layer, int param, uint64_t seed, float *out)
{
    int tie = fl_model_tie_of(model, layer, param);
    fl_param_place first = {layer, param};
    if (tie >= 0) {
        first = fl_model_tie_at(model, tie)->use[0];
    }
    const fl_param_spec *spec = &fl_model_params(model, layer)->spec[param];
    fl_param_init(spec, seed, first.layer, first.param, out);
}

static fl_status find_place(const fl_model *model, const char *name, fl_param_place *out)
{
    return fl_model_find_param(model, name, &out->layer, &out->param);
}

static const fl_param_spec *spec_at(const fl_model *model, fl_param_place at)
{
    return &fl_model_params(model, at.layer)->spec[at.param];
}

static fl_status check_pair(const fl_model *model, fl_param_place a, fl_param_place b)
{
    const fl_param_spec *x = spec_at(model, a), *y = spec_at(model, b);
    if (a.layer == b.layer && a.param == b.param) {
        return fl_fail(FL_EINVAL, "a parameter cannot be tied to itself");
    }
    if (x->rows != y->rows || x->cols != y->cols) {
        return fl_fail(FL_EINVAL, "the shapes differ: [%lld, %lld] and [%lld, %lld]",
                       (long long)x->rows, (long long)x->cols, (long long)y->rows,
                       (long long)y->cols);
    }
    return FL_OK;
}

static bool is_before(fl_param_place a, fl_param_place b)
{
    return a.layer != b.layer ? a.layer < b.layer : a.param < b.param;
}

/* The uses of the tie that `at` belongs to, or itself alone. */
static fl_tie uses_of(const fl_model *model, fl_param_place *at)
{
    int tie = fl_model_tie_of(model, at->layer, at->param);
    return tie >= 0 ? *fl_model_tie_at(model, tie) : (fl_tie){.n = 1, .use = at};
}

static void merge_uses(const fl_tie *a, const fl_tie *b, fl_tie *out)
{
    int i = 0, j = 0;
    while (i < a->n || j < b->n) {
        bool first = j == b->n || (i < a->n && is_before(a->use[i], b->use[j]));
        out->use[out->n++] = first ? a->use[i++] : b->use[j++];
    }
}

static void remove_tie(fl_tie_list *ties, int number)
{
    if (number >= 0) {
        fl_free(ties->tie[number].use);
        ties->n--;
        memmove(&ties->tie[number], &ties->tie[number + 1],
                (size_t)(ties->n - number) * sizeof *ties->tie);
    }
}

/* Write every tie's number into its parameters, and what they take from its first use. */
static void mark_uses(fl_model *model)
{
    const fl_tie_list *ties = fl__model_ties(model);
    for (int i = 0; i < ties->n; i++) {
        const fl_param_spec *first = spec_at(model, ties->tie[i].use[0]);
        for (int k = 0; k < ties->tie[i].n; k++) {
            fl_param_place at = ties->tie[i].use[k];
            fl_param_spec *spec = &fl__model_params(model, at.layer)->spec[at.param];
            spec->tie = i + 1;
            spec->init = first->init;
            spec->scale = first->scale;
            spec->decay = first->decay;
        }
    }
}

/* One tie in place of those that a and b belong to. Nothing has changed on failure. */
static fl_status join(fl_model *model, fl_param_place a, fl_param_place b)
{
    fl_tie_list *ties = fl__model_ties(model);
    int old_a = fl_model_tie_of(model, a.layer, a.param);
    int old_b = fl_model_tie_of(model, b.layer, b.param);
    if (old_a >= 0 && old_a == old_b) {
        return FL_OK;
    }
    const fl_tie of_a = uses_of(model, &a), of_b = uses_of(model, &b);
    fl_tie joined = {0};
    void *list = ties->tie;
    FL_TRY(fl_alloc_array((size_t)(of_a.n + of_b.n), sizeof *joined.use, (void **)&joined.use));
    fl_status status = fl_realloc(&list, (size_t)ties->n * sizeof *ties->tie,
                                  (size_t)(ties->n + 1) * sizeof *ties->tie);
    if (status != FL_OK) {
        fl_free(joined.use);
        return status;
    }
    ties->tie = list;
    merge_uses(&of_a, &of_b, &joined);
    remove_tie(ties, old_a > old_b ? old_a : old_b);
    remove_tie(ties, old_a > old_b ? old_b : old_a);
    ties->tie[ties->n++] = joined;
    mark_uses(model);
    return FL_OK;
}

fl_status fl_model_tie(fl_model *model, const char *name, const char *other)
{
    fl_param_place a, b;
    FL_TRY(find_place(model, name, &a));
    FL_TRY(find_place(model, other, &b));
    fl_status status = check_pair(model, a, b);
    if (status == FL_OK) {
        status = join(model, a, b);
    }
    return status == FL_OK
               ? FL_OK
               : fl_within(status, "tie %.*s to %.*s", FULL_NAME_MAX, name, FULL_NAME_MAX, other);
}
