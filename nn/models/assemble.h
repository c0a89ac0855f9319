/* What the ready models do alike: put layers that were just made together, without a leak. */
#ifndef FL_NN_MODELS_ASSEMBLE_H
#define FL_NN_MODELS_ASSEMBLE_H

#include <frostline/model.h>

/* Append a layer that a constructor gave with the status `made`: if that failed, return it. The
 * model owns the layer, or it is freed. Errors of fl_model_add_named. */
fl_status fl__model_take(fl_model *model, int block, const char *name, fl_status made,
                         fl_layer layer) FL_MUST_CHECK;

/* Make and append both sublayers of a block from 1: "blocks.<block>.attn", "blocks.<block>.mlp". */
fl_status fl__model_take_block(fl_model *model, int block, const fl_attention_config *attention,
                               const fl_mlp_config *mlp) FL_MUST_CHECK;

/* End the model with a loss that a constructor gave with the status `made`, likewise. */
fl_status fl__model_take_loss(fl_model *model, fl_status made, fl_loss loss) FL_MUST_CHECK;

#endif
