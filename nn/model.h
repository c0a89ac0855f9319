/* The parts of a model that pipe/ needs and a user does not. */
#ifndef FL_NN_MODEL_H
#define FL_NN_MODEL_H

#include <frostline/model.h>

enum { FL_PARAM_NAME_MAX = 48 };

typedef struct fl_param_spec {
    char name[FL_PARAM_NAME_MAX];
    int64_t rows, cols;
    fl_init init;
    float scale;
    bool decay;
} fl_param_spec;

struct fl_param_list {
    int n, capacity;
    fl_param_spec *spec;
};

const fl_layer *fl_model_layer(const fl_model *model, int layer);
const fl_param_list *fl_model_params(const fl_model *model, int layer);
int64_t fl_model_layer_n_params(const fl_model *model, int layer); /* elements */
const fl_loss *fl_model_loss(const fl_model *model);               /* ops NULL: not set */

/* The shape after `layer` of one sample whose raw shape is *input; layer -1 gives *input. */
fl_status fl_model_shape(const fl_model *model, int layer, const fl_shape *input,
                         fl_shape *out) FL_MUST_CHECK;

/* The starting value of parameter `index` of `layer`: out [rows * cols], host memory. */
void fl_param_init(const fl_param_spec *spec, uint64_t seed, int layer, int index, float *out);

/* Whether the model is complete (has layers, a loss, shapes that fit from *input on). */
fl_status fl_model_check(const fl_model *model, const fl_shape *input) FL_MUST_CHECK;

#endif
