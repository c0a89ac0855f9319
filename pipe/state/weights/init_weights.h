/* Weights to start from: the tensors of a safetensors file in place of drawn ones. A tensor belongs
 * to the parameter of its name, <layer>.<parameter>, or of a name that the model's table has
 * (nn/tensor_names.h); shapes are [rows, cols], or [rows] where cols is 1. Tensors are read into
 * the parameters' own memory. */
#ifndef FL_PIPE_STATE_WEIGHTS_INIT_WEIGHTS_H
#define FL_PIPE_STATE_WEIGHTS_INIT_WEIGHTS_H

#include "nn/safetensors/safetensors.h"
#include "nn/tensor_names.h"
#include "pipe/state/state_source.h"

typedef struct fl_init_weights {
    fl_safetensors *file; /* owned; NULL: all weights are drawn */
    /* The layer, or the beginning of layers' names up to a dot, that the file need not fit: what it
     * lacks or has in another shape is drawn. "": no such layer. */
    char allow[FL_LAYER_NAME_MAX];
    const fl_tensor_names *names; /* the file's; NULL: Frostline's own */
} fl_init_weights;

/* path: a file, an index, a folder that holds one of them, or a run directory. Every parameter of
 * the model must be there in its shape and in a type that can be read, and nothing else, but for
 * what `allow` names. Returns FL_EIO or FL_EFORMAT from the file; FL_EINVAL lists all that differs,
 * or names an `allow` that is no layer of the model or the file; FL_ENOMEM. On failure nothing is
 * held. Open it before workers are forked. */
fl_status fl_init_weights_open(const fl_model *model, const char *path, const char *allow,
                               fl_init_weights *out) FL_MUST_CHECK;

/* The same of a file that is open already; `path` names it in messages. Takes *file, which is then
 * NULL. */
fl_status fl_init_weights_take(const fl_model *model, const char *path, const char *allow,
                               fl_safetensors **file, fl_init_weights *out) FL_MUST_CHECK;

/* The parameters that are drawn because the file lacks them, as many names as `text` can hold;
 * returns how many there are. */
int fl_init_weights_list_drawn(const fl_init_weights *init, const fl_model *model, char *text,
                               size_t size_bytes);
void fl_init_weights_close(fl_init_weights *init);

typedef struct fl_init_state {
    const fl_init_weights *init; /* borrowed */
    fl_drawn_state drawn;        /* what the file need not have */
} fl_init_state;

/* The file's tensors in place of drawn weights; the moments are 0. Reads fail with FL_EIO, also if
 * the file was written to since it was opened. Borrows *state. Forked processes: any. */
fl_state_source fl_init_weights_source(fl_init_state *state);

#endif
