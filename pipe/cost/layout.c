#include "pipe/cost/layout.h"

enum { PAD_ELEMENTS = 16 }; /* 64 bytes of fp32 */

int64_t fl_layout_param(const fl_param_spec *spec)
{
    int64_t n = spec->rows * spec->cols;
    return (n + PAD_ELEMENTS - 1) / PAD_ELEMENTS * PAD_ELEMENTS;
}

int64_t fl_layout_count(const fl_model *model, int first, int last)
{
    int64_t n = 0;
    for (int layer = first; layer < last; layer++) {
        const fl_param_list *list = fl_model_params(model, layer);
        for (int i = 0; i < list->n; i++) {
            n += fl_layout_param(&list->spec[i]);
        }
    }
    return n;
}

int64_t fl_layout_grad_spared(const fl_model *model, int first, int last, int n_frozen)
{
    int64_t n = 0;
    for (int i = 0; i < fl_model_n_ties(model); i++) {
        const fl_tie *tie = fl_model_tie_at(model, i);
        int n_here = 0;
        for (int k = 0; k < tie->n; k++) {
            n_here += tie->use[k].layer >= first && tie->use[k].layer < last;
        }
        if (n_here > 0) {
            const fl_param_list *list = fl_model_params(model, tie->use[0].layer);
            int spared = fl_tie_trains(tie, n_frozen) ? n_here - 1 : n_here;
            n += spared * fl_layout_param(&list->spec[tie->use[0].param]);
        }
    }
    return n;
}
