#include "control/events/nonfinite.h"

#include "device/text/plural.h"
#include "nn/model.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { IDS_SHOWN = 8 };

const char *fl_nonfinite_where_text(fl_nonfinite_where where)
{
    static const char *const text[] = {"nowhere", "input", "weights", "output", "loss", "gradient"};
    return text[where];
}

static const char *value_text(double value)
{
    return isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
}

static void describe_place(const fl_nonfinite *found, const fl_model *model, char *text,
                           size_t size_bytes)
{
    char layer[FL_LAYER_TEXT_MAX], sample[48] = "";
    if (model == NULL || found->layer < 0) {
        snprintf(layer, sizeof layer, "layer %d", found->layer);
    } else {
        fl_model_layer_text(model, found->layer, layer);
    }
    if (found->sample >= 0) {
        snprintf(sample, sizeof sample, ", for sample %lld", (long long)found->sample);
    }
    const char *begin = "The first value that is not finite is in";
    switch (found->where) {
    case FL_NONFINITE_NOWHERE:
        snprintf(
            text, size_bytes,
            "Computed once more, every layer's values are finite, on each worker: the sum over "
            "workers overflows, or a layer does not compute the same twice");
        break;
    case FL_NONFINITE_INPUT:
        snprintf(text, size_bytes, "%s the data, in sample %lld, which worker %d reads", begin,
                 (long long)found->sample, found->rank);
        break;
    case FL_NONFINITE_WEIGHT:
        snprintf(text, size_bytes, "%s the weights of %s on worker %d", begin, layer, found->rank);
        break;
    case FL_NONFINITE_OUTPUT:
        snprintf(text, size_bytes, "%s the output of %s on worker %d%s", begin, layer, found->rank,
                 sample);
        break;
    case FL_NONFINITE_LOSS:
        snprintf(text, size_bytes, "%s the loss on worker %d%s; all layers' outputs are finite",
                 begin, found->rank, sample);
        break;
    case FL_NONFINITE_GRADIENT:
        snprintf(text, size_bytes, "%s the gradient that %s computes on worker %d%s", begin, layer,
                 found->rank, sample);
        break;
    }
}

static void list_ids(const fl_nonfinite_report *r, char *text, size_t size_bytes)
{
    size_t n = 0;
    text[0] = 0;
    for (int i = 0; i < r->n_ids && i < IDS_SHOWN && n < size_bytes; i++) {
        n += (size_t)snprintf(text + n, size_bytes - n, "%s%lld", i == 0 ? "" : ", ",
                              (long long)r->ids[i]);
    }
    if (r->n_samples > IDS_SHOWN && n < size_bytes) {
        snprintf(text + n, size_bytes - n, ", ...");
    }
}

static const char *action_text(fl_nonfinite_action action)
{
    switch (action) {
    case FL_NONFINITE_SKIPS:
        return "The optimizer's step was left out (train.on_nonfinite: skip)";
    case FL_NONFINITE_ENDS:
        return "The run stops (train.on_nonfinite: stop). A lower train.lr, train.clip or a longer "
               "train.warmup may help";
    case FL_NONFINITE_ENDS_WEIGHTS:
        return "The run stops: with such weights every further step would fail";
    case FL_NONFINITE_ENDS_ROW:
        return "The run stops: too many steps in a row were skipped for single samples to be the "
               "cause. A lower train.lr, train.clip or a longer train.warmup may help";
    }
    return "";
}

const char *fl_nonfinite_text(const fl_nonfinite_report *r, const fl_model *model, char *text,
                              size_t size_bytes)
{
    char place[384], ids[224], what[64], samples[FL_COUNT_BYTES];
    bool loss = !isfinite(r->loss);
    snprintf(what, sizeof what, "the %s is %s", loss ? "loss" : "gradient norm",
             value_text(loss ? r->loss : r->grad_norm));
    describe_place(&r->found, model, place, sizeof place);
    list_ids(r, ids, sizeof ids);
    snprintf(text, size_bytes, "step %lld: %s. %s. The batch has %s: %s. %s.", (long long)r->step,
             what, place, fl_count(r->n_samples, "sample", samples), ids, action_text(r->action));
    return text;
}
