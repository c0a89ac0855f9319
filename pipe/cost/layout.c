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
