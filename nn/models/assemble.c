#include "nn/models/assemble.h"

#include <stdio.h>

fl_status fl__model_take(fl_model *model, int block, const char *name, fl_status made,
                         fl_layer layer)
{
    if (made != FL_OK) {
        return made;
    }
    fl_status status = fl_model_add_named(model, block, name, layer);
    if (status != FL_OK) {
        layer.ops->destroy(layer.self);
    }
    return status;
}

fl_status fl__model_take_block(fl_model *model, int block, const fl_attention_config *attention,
                               const fl_mlp_config *mlp)
{
    fl_layer layer = {0};
    char name[FL_LAYER_NAME_MAX];
    fl_status made = fl_layer_attention(attention, &layer);
    snprintf(name, sizeof name, "blocks.%d.attn", block);
    FL_TRY(fl__model_take(model, block, name, made, layer));
    made = fl_layer_mlp(mlp, &layer);
    snprintf(name, sizeof name, "blocks.%d.mlp", block);
    return fl__model_take(model, block, name, made, layer);
}

fl_status fl__model_take_loss(fl_model *model, fl_status made, fl_loss loss)
{
    if (made != FL_OK) {
        return made;
    }
    fl_status status = fl_model_set_loss(model, loss);
    if (status != FL_OK) {
        loss.ops->destroy(loss.self);
    }
    return status;
}
