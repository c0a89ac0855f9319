#include "pipe/state/state_source.h"

#include "nn/model.h"

#include <string.h>

static fl_status read_drawn(void *self, int layer, int index, int part, float *host)
{
    const fl_drawn_state *drawn = self;
    if (part == FL_STATE_WEIGHT) {
        fl_model_draw_param(drawn->model, layer, index, drawn->seed, host);
    } else {
        const fl_param_spec *spec = &fl_model_params(drawn->model, layer)->spec[index];
        memset(host, 0, (size_t)(spec->rows * spec->cols) * sizeof *host);
    }
    return FL_OK;
}

fl_state_source fl_drawn_source(fl_drawn_state *drawn)
{
    return (fl_state_source){.self = drawn, .read = read_drawn};
}
