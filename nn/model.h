/* The parts of a model that pipe/ needs and a user does not. */
#ifndef FL_NN_MODEL_H
#define FL_NN_MODEL_H

#include "nn/loss.h"
#include "nn/tensor_names.h"

#include <frostline/model.h>

typedef struct fl_param_spec {
    char name[FL_PARAM_NAME_MAX];
    int64_t rows, cols;
    fl_init init;
    float scale;
    bool decay;
    int tie; /* 0: its values are its own; else the number of its tie, from 1 */
} fl_param_spec;

struct fl_param_list {
    int n, capacity;
    fl_param_spec *spec;
};

/* FL_EINVAL unless `name` is 1 to size_max - 1 letters, digits, '_' and dots, with no dot at either
 * end or behind another. what: "parameter", for the message. */
fl_status fl__check_name(const char *what, const char *name, size_t size_max) FL_MUST_CHECK;

/* FL_EINVAL unless a layer of this name and these parameters can join the model. */
fl_status fl__check_layer_name(const fl_model *model, const char *name,
                               const fl_param_list *params) FL_MUST_CHECK;

/* Whether the layer was given a name; otherwise its name is "layers.<number>". */
bool fl_model_layer_is_named(const fl_model *model, int layer);

enum { FL_LAYER_TEXT_MAX = 2 * FL_LAYER_NAME_MAX + 32 };

/* How messages name a layer: "layer 3, blocks.2.attn (attention)"; without a name of its own,
 * "layer 3 (attention)". Returns text. */
const char *fl_model_layer_text(const fl_model *model, int layer, char text[FL_LAYER_TEXT_MAX]);

/* ---- ties: tie.c ---- */

typedef struct fl_param_place {
    int layer, param;
} fl_param_place;

/* The uses of one parameter. */
typedef struct fl_tie {
    int n;
    fl_param_place *use; /* [n], in the model's order */
} fl_tie;

typedef struct fl_tie_list {
    int n;
    fl_tie *tie; /* [n] */
} fl_tie_list;

int fl_model_n_ties(const fl_model *model);
const fl_tie *fl_model_tie_at(const fl_model *model, int tie); /* from 0 */

/* The tie that a parameter belongs to; -1: none. */
int fl_model_tie_of(const fl_model *model, int layer, int param);

/* Whether a tied parameter trains when the model's first n_frozen layers are frozen: it freezes
 * with the lowest layer that uses it, because the cached outputs of that layer depend on it. */
bool fl_tie_trains(const fl_tie *tie, int n_frozen);

void fl__ties_fini(fl_tie_list *ties);
fl_tie_list *fl__model_ties(fl_model *model);
fl_param_list *fl__model_params(fl_model *model, int layer);

/* ---- parts of a model ---- */

const fl_layer *fl_model_layer(const fl_model *model, int layer);

/* How files that the model begins with and leaves name its parameters; NULL: Frostline's own way.
 * Borrowed. */
const fl_tensor_names *fl_model_tensor_names(const fl_model *model);
const fl_tensor_sizes *fl_model_tensor_sizes(const fl_model *model);
void fl__model_set_tensor_names(fl_model *model, const fl_tensor_names *names,
                                fl_tensor_sizes sizes);

/* Of what makes a model slower or faster beside the shapes of its parameters, as dropout and
 * activations do: a hash of the file that describes it; 0: there is none. */
uint64_t fl_model_fingerprint(const fl_model *model);
void fl__model_set_fingerprint(fl_model *model, uint64_t fingerprint);

const fl_param_list *fl_model_params(const fl_model *model, int layer);
int64_t fl_model_layer_n_params(const fl_model *model, int layer); /* elements */
const fl_loss *fl_model_loss(const fl_model *model);               /* ops NULL: not set */

/* Those of its loss; none for a NULL model, or one without a loss. */
fl_metric_list fl_model_metrics(const fl_model *model);

/* The shape after `layer` of one sample whose raw shape is *input; layer -1 gives *input. */
fl_status fl_model_shape(const fl_model *model, int layer, const fl_shape *input,
                         fl_shape *out) FL_MUST_CHECK;

/* The starting value of a parameter of the model: out [rows * cols], host memory. */
void fl_model_draw_param(const fl_model *model, int layer, int param, uint64_t seed, float *out);

/* The same for a parameter that is not tied, `index` of `layer`. */
void fl_param_init(const fl_param_spec *spec, uint64_t seed, int layer, int index, float *out);

/* FL_BF16 where a layer gives bf16 for samples of this shape; else FL_F32. */
fl_status fl_model_activations(const fl_model *model, const fl_shape *input,
                               fl_dtype *out) FL_MUST_CHECK;

/* Whether the model is complete (has layers, a loss, shapes that fit from *input on). */
fl_status fl_model_check(const fl_model *model, const fl_shape *input) FL_MUST_CHECK;

/* The same, for a process that is watched by another one: *layer is always the layer whose code
 * runs; n_layers: the loss. */
fl_status fl_model_check_watched(const fl_model *model, const fl_shape *input,
                                 volatile int *layer) FL_MUST_CHECK;

#endif
